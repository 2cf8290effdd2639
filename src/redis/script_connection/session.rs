//! One open connection for scripts: its calls, its checks and its end.

use std::{
    future::{poll_fn, ready},
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::Either;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::keepalive::{InFlight, Keepalive};
use crate::{
    redis::{
        batch_scope::{ConnectionScope, NOT_SENT},
        client_info::{ConnectionIdentity, Identity},
        connector::Connector,
        frame,
        liveness::{End, LivenessCheck, provable},
        open_connection::{self, Lifetime, OpenConnection, Pong},
        time_limits::CHECK_EVERY,
    },
    sync::lock,
    transport::{Connection, Frame, TransportError},
    wire::{
        decimal,
        script::{Operation, Publishing, Script},
    },
};

/// An open connection for scripts.
pub(in crate::redis) struct ScriptSession {
    connection: Arc<dyn Connection>,
    /// The identity of the connection. Requested again until the server tells it, because it is needed when the connection
    /// breaks.
    identity: Mutex<ConnectionIdentity>,
    scope: Option<ConnectionScope>,
    /// How long a `PING` may stay unanswered.
    ping_wait: Duration,
    /// How the peer answers the first `PING`, if its handshake shows that: plainly after a bare one.
    pong: Pong,
    /// The number of answered calls of scripts.
    answers: AtomicU32,
    /// Whether the arguments of a batch travel as one list of MessagePack.
    packs: AtomicBool,
    /// Whether the peer has refused `EVALSHA`: each call then sends the text.
    lacks_evalsha: AtomicBool,
    proving: Notify,
    /// Notified when the connection leads to the wrong server.
    wrong_server: Notify,
    /// Cancelled when the connection has ended: a later command may stay unanswered.
    ended: CancellationToken,
    keepalive: Keepalive,
}

impl ScriptSession {
    pub(super) fn new(
        connection: Arc<dyn Connection>,
        identity: ConnectionIdentity,
        (ping_wait, pong): (Duration, Pong),
        scope: Option<ConnectionScope>,
    ) -> Self {
        if let Some(scope) = &scope {
            scope.becomes_current();
        }
        Self {
            connection,
            identity: Mutex::new(identity),
            scope,
            ping_wait,
            pong,
            answers: AtomicU32::new(0),
            packs: AtomicBool::new(true),
            lacks_evalsha: AtomicBool::new(false),
            proving: Notify::new(),
            wrong_server: Notify::new(),
            ended: CancellationToken::new(),
            keepalive: Keepalive::new(),
        }
    }

    /// Requests a new connection: the address may belong to another server now.
    pub(in crate::redis) fn report_wrong_server(&self) {
        // Once for each connection that is old enough: a new one may have the same server.
        if self.keepalive.age() >= CHECK_EVERY {
            self.wrong_server.notify_one();
        }
    }

    /// Counts a call on another connection to the server until the result ends. Meanwhile, this connection pings the
    /// server.
    pub(in crate::redis) fn count_call_elsewhere(&self) -> InFlight<'_> {
        self.keepalive.sent()
    }

    /// Whether the peer closes the connection on a command that it does not know.
    pub(super) fn is_bare(&self) -> bool {
        self.pong == Pong::Plain
    }

    pub(in crate::redis) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Has the server kill `old`, another connection to it. Returns whether the server has answered that it is dead.
    pub(in crate::redis) async fn kill(&self, old: &ScriptSession) -> bool {
        let ConnectionIdentity::Known(Identity { id, address }) = old.identity() else {
            return false;
        };
        let words = ["KILL".into(), "ID".into(), id, "ADDR".into(), address];
        let answer = self.send("CLIENT", words.map(Bytes::from).into()).await;
        answer.is_ok_and(|answer| frame::error(&answer).is_none())
    }

    /// Completes when the connection has ended.
    pub(in crate::redis) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    /// Whether the server has described the connection. Over a unix socket, the description has no identity.
    pub(in crate::redis) fn has_description(&self) -> bool {
        let is_known = matches!(self.identity(), ConnectionIdentity::Known(_));
        let scope = self.scope.as_ref();
        is_known || scope.is_some_and(ConnectionScope::leads_straight)
    }

    pub(super) fn identity(&self) -> ConnectionIdentity {
        lock(&self.identity).clone()
    }

    /// Records the server's description of the connection, which a busy server gives late.
    fn is_described(&self, info: &Frame) {
        *lock(&self.identity) = ConnectionIdentity::read(info);
        if let (Some(scope), Some(info)) = (&self.scope, frame::text(info)) {
            scope.judge(&info);
            scope.becomes_current();
        }
    }

    /// Runs `operations` of `script` in one call. An error says why there is no answer.
    pub(in crate::redis) async fn run(
        &self,
        script: &'static Script,
        publishing: Publishing,
        operations: &[Operation],
    ) -> Result<Frame, Arc<str>> {
        let text = script.text(publishing);
        let (name, sent) = match self.lacks_evalsha() {
            true => ("EVAL", &text.source),
            false => ("EVALSHA", &text.sha),
        };
        let mut answer = self.eval(name, sent.clone(), script, operations).await?;
        let mut repetitions = 0..2;
        while self.must_repeat(&answer) && repetitions.next().is_some() {
            let again = self.eval("EVAL", text.source.clone(), script, operations);
            answer = again.await?;
        }
        Ok(self.proved_by(answer))
    }

    /// Whether the peer has refused `EVALSHA`.
    pub(in crate::redis) fn lacks_evalsha(&self) -> bool {
        self.lacks_evalsha.load(Ordering::Relaxed)
    }

    /// Whether the server has run nothing of a call, but may run it from the script's text: a repetition at once is safe (P-T1).
    pub(in crate::redis) fn must_repeat(&self, answer: &Frame) -> bool {
        let Frame::Error(message) = answer else {
            return false;
        };
        // The name of the library that some servers lack, in the error of Lua.
        let cannot_unpack = message.contains("cmsgpack");
        if cannot_unpack {
            self.packs.store(false, Ordering::Relaxed);
        }
        if frame::lacks_evalsha(answer) {
            self.lacks_evalsha.store(true, Ordering::Relaxed);
        }
        cannot_unpack || frame::is_unknown_script(answer)
    }

    /// An answered script proves the connection.
    fn proved_by(&self, answer: Frame) -> Frame {
        if self.answers.fetch_add(1, Ordering::Relaxed) == 0 {
            self.proving.notify_one();
        }
        answer
    }

    /// `EVALSHA` or `EVAL`, once. A call that exceeds the scope of this connection is not sent, and its answer is
    /// [`NOT_SENT`].
    pub(in crate::redis) fn eval(
        &self,
        name: &'static str,
        text: Bytes,
        script: &Script,
        operations: &[Operation],
    ) -> impl Future<Output = Result<Frame, Arc<str>>> + use<'_> {
        let is_within = |scope: &ConnectionScope| scope.now().allows(operations);
        if operations.len() > 1 && !self.scope.as_ref().is_none_or(is_within) {
            return Either::Right(ready(Ok(Frame::Error(NOT_SENT.to_owned()))));
        }
        let packs = self.packs.load(Ordering::Relaxed);
        Either::Left(self.send(name, arguments(text, script, operations, packs)))
    }

    /// Sends one command. An error says why there is no answer.
    pub(in crate::redis) async fn send(
        &self,
        name: &'static str,
        args: Vec<Bytes>,
    ) -> Result<Frame, Arc<str>> {
        let in_flight = self.keepalive.sent();
        let mut answer = self.connection.send(name, args);
        let mut ended = pin!(self.ended.cancelled());
        let answer = poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(answer.map_err(TransportError::into_message)),
            Poll::Pending => ended
                .as_mut()
                .poll(context)
                .map(|()| Err("the connection ended".into())),
        });
        let answer = answer.await?;
        in_flight.answered();
        self.keepalive.answered();
        Ok(answer)
    }

    /// Ends the connection. A closing connection waits only briefly for answers.
    pub(super) async fn quit(&self) {
        open_connection::quit(&*self.connection).await;
        self.end();
    }

    /// Fails the pending calls.
    pub(super) fn end(&self) {
        self.ended.cancel();
    }

    /// The number of answered calls of scripts.
    pub(super) fn answers(&self) -> u32 {
        self.answers.load(Ordering::Relaxed)
    }

    /// Completes when the connection has ended or its server has stopped answering on it; `connector` leads to that server.
    /// Reports once that the connection is proved.
    pub(super) async fn broken(
        &self,
        lifetime: &mut Lifetime,
        connector: &Connector,
        mut is_proven: impl FnMut(),
    ) -> End {
        let mut checks = tokio::time::interval(CHECK_EVERY);
        let (mut number, mut pong) = (0, self.pong);
        let mut liveness = LivenessCheck::new(self.ping_wait);
        let endpoint = connector.endpoint();
        loop {
            number += 1;
            tokio::select! {
                reason = lifetime.ended() => return reason.into(),
                () = self.proving.notified() => {
                    is_proven();
                    continue;
                }
                () = self.wrong_server.notified() => {
                    connector.leads_astray();
                    return String::from("the server is a replica").into();
                }
                _ = checks.tick() => {}
                () = self.keepalive.ping_due() => {}
            }
            if self.identity() == ConnectionIdentity::NotNow {
                match lifetime
                    .run(OpenConnection::describe(&*self.connection))
                    .await
                {
                    Ok(Some(info)) => self.is_described(&info),
                    Ok(None) => {}
                    Err(reason) => return reason.into(),
                }
            }
            if !self.keepalive.is_ping_due() {
                continue;
            }
            let ping = OpenConnection::ping(&*self.connection, number, self.ping_wait, &mut pong);
            let identity = self.identity();
            // Without a call that waits, nothing is worth a second connection to a busy server.
            let is_awaited = self.keepalive.lacks_replies();
            let old = provable(&identity, self.scope.as_ref()).filter(|_| is_awaited);
            let connecting = connector.connect_beside(&endpoint);
            let answered = Box::pin(lifetime.run(ping));
            if let Err(end) = liveness.settle(answered, old, connecting).await {
                return end;
            }
            self.keepalive.answered();
            is_proven();
        }
    }
}

/// `text`, the number of keys, the keys, the arguments.
fn arguments(text: Bytes, script: &Script, operations: &[Operation], packs: bool) -> Vec<Bytes> {
    let keys = script.keys(operations);
    let count = keys.clone().count();
    let most_args = operations.first().map_or(0, Vec::len);
    let mut arguments = Vec::with_capacity(2 + count + most_args);
    arguments.push(text);
    arguments.push(decimal(count as u64));
    arguments.extend(keys.cloned());
    match operations {
        [one] => arguments.extend(script.args(one).iter().cloned()),
        several if packs => arguments.push(script.packed_args(several)),
        several => arguments.extend(script.args_of_all(several).cloned()),
    }
    arguments
}
