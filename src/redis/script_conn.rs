//! A connection for scripts that reopens whenever it breaks.

use std::{
    future::poll_fn,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use super::{
    CallError, Event, Tasks,
    attempts::{ConnectLog, PROVEN_AFTER, Trouble},
    client_info::{ConnIdentity, Identity},
    conn::{Conn, Connector, Router},
    connection::{Connection, Frame},
    frame,
};
use crate::{
    error::Cause,
    sync::lock,
    wire::{
        Refusal, decimal,
        script::{Operation, Publishing, Script},
    },
};

/// How often a connection is checked.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long a quiet connection gets no `PING`.
pub(super) const PING_EVERY: Duration = Duration::from_secs(5);

/// A caller's handle to the connection for scripts.
#[derive(Clone)]
pub(super) struct ScriptConn {
    states: watch::Sender<State>,
    trouble: Trouble,
}

#[derive(Clone)]
enum State {
    Up(Arc<Open>),
    Down,
    Closed,
}

/// The connection is closed for good.
#[derive(Debug)]
pub(super) struct Closed;

impl ScriptConn {
    /// Keeps a connection open until `closed` is cancelled.
    pub(super) fn keep(
        connector: Connector,
        first: Option<Conn>,
        events: mpsc::UnboundedSender<Event>,
        closed: CancellationToken,
        tasks: &Tasks,
    ) -> Self {
        let connect_log = connector.connect_log("scripts");
        let line = ScriptConn {
            states: watch::Sender::new(State::Down),
            trouble: connect_log.trouble.clone(),
        };
        let reconnector = Reconnector {
            connector,
            line: line.clone(),
            events,
            closed,
            connect_log,
        };
        let first = first.map(|conn| reconnector.open(conn));
        tasks.spawn(reconnector.keep(first));
        line
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(*self.states.borrow(), State::Up(_))
    }

    /// Why the server does not answer; `None` if it does.
    pub(super) fn trouble(&self) -> Option<Arc<Cause>> {
        self.trouble.cause()
    }

    /// The connection to send on, if there is one.
    pub(super) fn open(&self) -> Option<Arc<Open>> {
        match &*self.states.borrow() {
            State::Up(open) => Some(open.clone()),
            _ => None,
        }
    }

    /// The connection to send on, once there is one.
    pub(super) async fn opened(&self) -> Result<Arc<Open>, Closed> {
        match self.open() {
            Some(open) => Ok(open),
            None => self.other_than(None).await,
        }
    }

    /// Completes when the connection is closed for good.
    pub(super) async fn closed(&self) {
        let mut states = self.states.subscribe();
        let _ = states
            .wait_for(|state| matches!(state, State::Closed))
            .await;
    }

    /// Waits until `old` is replaced. By then the server has dropped it.
    pub(super) async fn replaced(&self, old: &Arc<Open>) -> Result<(), Closed> {
        self.other_than(Some(old)).await.map(drop)
    }

    /// Pings the server once there is a connection.
    pub(super) async fn ping(&self) -> Result<(), CallError> {
        let open = self.opened().await?;
        match open.send("PING", Vec::new()).await {
            Ok(answer) => match frame::error(&answer).map(Refusal::from_message) {
                Some(refusal @ Refusal::Transient { .. }) => Err(CallError::Refused(refusal)),
                // A refusal for lack of the right is an answer too.
                _ => Ok(()),
            },
            Err(reason) => Err(CallError::Unanswered { reason }),
        }
    }

    async fn other_than(&self, old: Option<&Arc<Open>>) -> Result<Arc<Open>, Closed> {
        let mut states = self.states.subscribe();
        let settled = states
            .wait_for(|state| match state {
                State::Up(open) => old.is_none_or(|old| !Arc::ptr_eq(open, old)),
                State::Down => false,
                State::Closed => true,
            })
            .await;
        match settled.as_deref() {
            Ok(State::Up(open)) => Ok(open.clone()),
            _ => Err(Closed),
        }
    }
}

/// An open connection for scripts.
pub(super) struct Open {
    connection: Arc<dyn Connection>,
    /// The identity of the connection. Requested again until the server tells it, because it is needed when the connection
    /// breaks.
    identity: Mutex<ConnIdentity>,
    /// How long a `PING` may stay unanswered.
    ping_wait: Duration,
    /// Whether a script was answered.
    proven: AtomicBool,
    proving: Notify,
    /// Notified when the connection leads to the wrong server.
    wrong_server: Notify,
    /// Cancelled when the connection has ended: a later command may stay unanswered.
    ended: CancellationToken,
    traffic: Traffic,
}

/// Whether the server answers.
struct Traffic {
    since: Instant,
    in_flight: AtomicUsize,
    /// In milliseconds after `since`.
    last_reply: AtomicU64,
    /// Whether a call was given up since the last reply.
    given_up: AtomicBool,
}

impl Traffic {
    fn new() -> Self {
        Self {
            since: Instant::now(),
            in_flight: AtomicUsize::new(0),
            last_reply: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
        }
    }

    fn sent(&self) -> InFlight<'_> {
        let is_first = self.in_flight.fetch_add(1, Ordering::Relaxed) == 0;
        // The first call after a quiet time restarts the clock. Calls that are given up would restart it again and again.
        if is_first && !self.given_up.load(Ordering::Relaxed) {
            self.mark();
        }
        InFlight {
            traffic: self,
            is_answered: false,
        }
    }

    fn answered(&self) {
        self.given_up.store(false, Ordering::Relaxed);
        self.mark();
    }

    fn mark(&self) {
        self.last_reply
            .store(self.since.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last_reply.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(last)
    }

    /// Whether a `PING` is due: calls wait or were given up without a reply, or the connection has been quiet for long.
    fn is_suspicious(&self) -> bool {
        let waiting =
            self.in_flight.load(Ordering::Relaxed) > 0 || self.given_up.load(Ordering::Relaxed);
        self.silence() >= if waiting { LOOK_EVERY } else { PING_EVERY }
    }
}

/// A call that waits for its answer.
pub(super) struct InFlight<'a> {
    traffic: &'a Traffic,
    is_answered: bool,
}

impl InFlight<'_> {
    /// Ends the call. A drop without it means that the caller has given up.
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.traffic.given_up.store(true, Ordering::Relaxed);
        }
        self.traffic.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Open {
    /// Requests a new connection: the address may belong to another server now.
    pub(super) fn is_wrong_server(&self) {
        // Once for each connection that is old enough: a new one may have the same server.
        if self.traffic.since.elapsed() >= LOOK_EVERY {
            self.wrong_server.notify_one();
        }
    }

    /// Counts a call on another connection to the server until the result ends. Meanwhile, this connection pings the
    /// server.
    pub(super) fn awaits(&self) -> InFlight<'_> {
        self.traffic.sent()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_cancelled()
    }

    /// Has the server kill `old`, another connection to it. Returns whether the server has answered that it is dead.
    pub(super) async fn kills(&self, old: &Open) -> bool {
        let ConnIdentity::Known(Identity { id, address }) = old.identity() else {
            return false;
        };
        let words = ["KILL".into(), "ID".into(), id, "ADDR".into(), address];
        let answer = self.send("CLIENT", words.map(Bytes::from).into()).await;
        answer.is_ok_and(|answer| frame::error(&answer).is_none())
    }

    /// Completes when the connection has ended.
    pub(super) async fn ended(&self) {
        self.ended.cancelled().await;
    }

    fn identity(&self) -> ConnIdentity {
        lock(&self.identity).clone()
    }

    /// Runs `operations` of `script` in one call. An error says why there is no answer.
    pub(super) async fn run(
        &self,
        script: &'static Script,
        publishing: Publishing,
        operations: &[Operation],
    ) -> Result<Frame, Arc<str>> {
        let text = script.text(publishing);
        let answer = self.eval("EVALSHA", text.sha.clone(), script, operations);
        let answer = answer.await?;
        if !frame::is_unknown_script(&answer) {
            return Ok(self.proved_by(answer));
        }
        // A NOSCRIPT means that the server has run nothing: repeating at once is safe (P-T1).
        let answer = self.eval("EVAL", text.source.clone(), script, operations);
        Ok(self.proved_by(answer.await?))
    }

    /// An answered script proves the connection.
    fn proved_by(&self, answer: Frame) -> Frame {
        if !self.proven.swap(true, Ordering::Relaxed) {
            self.proving.notify_one();
        }
        answer
    }

    /// `EVALSHA` or `EVAL`, once.
    pub(super) fn eval(
        &self,
        name: &'static str,
        text: Bytes,
        script: &Script,
        operations: &[Operation],
    ) -> impl Future<Output = Result<Frame, Arc<str>>> + use<'_> {
        self.send(name, arguments(text, script, operations))
    }

    /// Sends one command. An error says why there is no answer.
    pub(super) async fn send(
        &self,
        name: &'static str,
        args: Vec<Bytes>,
    ) -> Result<Frame, Arc<str>> {
        let in_flight = self.traffic.sent();
        let mut answer = self.connection.send(name, args);
        let mut ended = pin!(self.ended.cancelled());
        let answer = poll_fn(|context| match answer.as_mut().poll(context) {
            Poll::Ready(answer) => Poll::Ready(answer),
            Poll::Pending => ended
                .as_mut()
                .poll(context)
                .map(|()| Err("the connection ended".into())),
        });
        let answer = answer.await?;
        in_flight.answered();
        self.traffic.answered();
        Ok(answer)
    }
}

/// `text`, the number of keys, the keys, the arguments.
fn arguments(text: Bytes, script: &Script, operations: &[Operation]) -> Vec<Bytes> {
    let keys = script.keys(operations);
    let count = keys.clone().count();
    let most_args = operations.first().map_or(0, Vec::len);
    let mut arguments = Vec::with_capacity(2 + count + most_args);
    arguments.push(text);
    arguments.push(decimal(count as u64));
    arguments.extend(keys.cloned());
    match operations {
        [one] => arguments.extend(script.args(one).iter().cloned()),
        several => arguments.push(script.packed_args(several)),
    }
    arguments
}

/// Keeps the connection of a handle open.
struct Reconnector {
    connector: Connector,
    line: ScriptConn,
    events: mpsc::UnboundedSender<Event>,
    closed: CancellationToken,
    connect_log: ConnectLog,
}

impl Reconnector {
    /// Makes `conn` available to callers.
    fn open(&self, conn: Conn) -> (Arc<Open>, Router) {
        let open = Arc::new(Open {
            connection: conn.connection,
            identity: Mutex::new(conn.identity),
            ping_wait: conn.ping_wait,
            proven: AtomicBool::new(false),
            proving: Notify::new(),
            wrong_server: Notify::new(),
            ended: CancellationToken::new(),
            traffic: Traffic::new(),
        });
        self.line.states.send_replace(State::Up(open.clone()));
        (open, conn.router)
    }

    async fn keep(mut self, first: Option<(Arc<Open>, Router)>) {
        let mut up = match first {
            Some(first) => Some(first),
            None => self.connect(None).await,
        };
        let mut opened = Instant::now();
        while let Some((open, mut router)) = up.take() {
            let endpoint = self.connector.endpoint();
            let broken = broken(&open, &mut router, || self.connect_log.is_proven(&endpoint));
            let Some(reason) = self.closed.run_until_cancelled(broken).await else {
                self.line.states.send_replace(State::Closed);
                // A closing connection waits only briefly for answers.
                open.connection.quit().await;
                open.ended.cancel();
                return;
            };
            let is_proven = open.proven.load(Ordering::Relaxed) || opened.elapsed() >= PROVEN_AFTER;
            let rest = self.connect_log.lost(&endpoint, &reason, is_proven);
            self.line.states.send_replace(State::Down);
            drop(router);
            open.ended.cancel();
            let resting = tokio::time::sleep(rest);
            if self.closed.run_until_cancelled(resting).await.is_none() {
                break;
            }
            up = self.connect(Some(&open)).await;
            opened = Instant::now();
        }
    }

    /// Connects, and has the server kill the previous connection.
    async fn connect(&mut self, old: Option<&Open>) -> Option<(Arc<Open>, Router)> {
        let identity = match old.map(Open::identity) {
            Some(ConnIdentity::Known(identity)) => Some(identity),
            _ => None,
        };
        let conn = loop {
            let connecting = self
                .connector
                .connect_until(&self.closed, &mut self.connect_log);
            let mut conn = connecting.await?;
            let Some(identity) = &identity else {
                break conn;
            };
            // A connection that breaks before its predecessor is dead has sent nothing. The next one kills that same
            // predecessor.
            let Err(reason) = conn.kill(identity).await else {
                break conn;
            };
            let rest = self
                .connect_log
                .lost(&self.connector.endpoint(), &reason, false);
            let resting = tokio::time::sleep(rest);
            self.closed.run_until_cancelled(resting).await?;
        };
        let up = self.open(conn);
        if old.is_some() {
            let _ = self.events.send(Event::Reconnected);
        }
        Some(up)
    }
}

impl Drop for Reconnector {
    /// Also runs when the runtime ends before the client: no caller may wait for a connection that will not come.
    fn drop(&mut self) {
        if let State::Up(open) = self.line.states.send_replace(State::Closed) {
            open.ended.cancel();
        }
    }
}

/// Completes with the reason when the connection has ended or its server has stopped answering. Reports once that the
/// connection is proved.
async fn broken(open: &Open, router: &mut Router, mut is_proven: impl FnMut()) -> String {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    let mut number = 0;
    loop {
        number += 1;
        tokio::select! {
            reason = router.ended() => return reason,
            () = open.proving.notified() => {
                is_proven();
                continue;
            }
            () = open.wrong_server.notified() => return "the server is a replica".into(),
            _ = looks.tick() => {}
        }
        if open.identity() == ConnIdentity::NotNow {
            match router.run(Conn::identify(&*open.connection)).await {
                Ok(asked) => *lock(&open.identity) = asked,
                Err(reason) => return reason,
            }
        }
        if !open.traffic.is_suspicious() {
            continue;
        }
        if let Err(reason) = router
            .run(Conn::ping(&*open.connection, number, open.ping_wait))
            .await
        {
            return reason;
        }
        open.traffic.answered();
        is_proven();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_is_no_sign_of_life() {
        let traffic = Traffic::new();
        let _waits = traffic.sent();
        for _ in 0..4 {
            let given_up = traffic.sent();
            tokio::time::advance(LOOK_EVERY / 4).await;
            drop(given_up);
        }
        assert!(traffic.is_suspicious());
        traffic.answered();
        assert!(!traffic.is_suspicious());
    }

    /// A readiness probe gave up sooner than a connection is checked, and each probe restarted the clock.
    #[tokio::test(start_paused = true)]
    async fn calls_given_up_one_after_the_other_are_no_sign_of_life() {
        let traffic = Traffic::new();
        for _ in 0..2 {
            let given_up = traffic.sent();
            tokio::time::advance(LOOK_EVERY / 2).await;
            drop(given_up);
            tokio::time::advance(LOOK_EVERY).await;
        }
        let _next = traffic.sent();
        assert!(traffic.is_suspicious());
        traffic.answered();
        assert!(!traffic.is_suspicious());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_connection_without_unanswered_calls_is_not_suspicious() {
        let traffic = Traffic::new();
        traffic.sent().answered();
        tokio::time::advance(LOOK_EVERY).await;
        assert!(!traffic.is_suspicious());
        tokio::time::advance(PING_EVERY).await;
        assert!(traffic.is_suspicious());
    }
}
