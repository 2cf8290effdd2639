//! Sends calls that wait for replicas, and a `WAIT` after them.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::wait::{Wait, Waited};
use crate::{
    durability::{Acknowledged, Durability},
    hash::HashSet,
    rate_limit::RateLimit,
    redis::{
        Answered, frame,
        script_connection::{ClosedForGood, ScriptConnection, ScriptSession},
        time_limits::{REPLACEMENT_WAIT, REPLICAS_COUNTED_EVERY},
    },
    transport::{BoxFuture, Frame},
    wire::script::{Operation, Publishing, Script},
};

/// The most calls that share a `WAIT`.
const AT_ONCE: usize = 64;
/// The most log lines a minute about refused commands, for each durability.
const MOST_LOG_LINES: u32 = 3;

/// A call in the queue of the worker.
pub(super) struct Call {
    pub(super) script: &'static Script,
    pub(super) operations: Arc<[Operation]>,
    pub(super) queued: Instant,
    /// The answer, once it has arrived.
    pub(super) frame: Frame,
    pub(super) done: oneshot::Sender<Result<Answered<Frame>, Arc<str>>>,
}

/// The task that sends the calls.
pub(super) struct DurableWorker {
    connection: ScriptConnection,
    /// The server's connection for scripts. It kills a broken connection that stays.
    scripts: ScriptConnection,
    publishing: Publishing,
    /// The way to wait on a new connection.
    configured: Wait,
    log_limit: RateLimit,
    durability: Durability,
    listed: Listed,
    /// The connection to which the further fields belong.
    used: Option<Arc<ScriptSession>>,
    /// The way to wait, or the words of a server that has refused the command.
    wait: Result<Wait, Arc<str>>,
    connected: Option<usize>,
    counted: Option<Instant>,
    /// The scripts that it has sent.
    sent: HashSet<usize>,
}

/// Returns the number of replicas, including replicas that are down.
pub(super) type Listed = Box<dyn Fn() -> usize + Send + Sync>;

type Answer<'a> = BoxFuture<'a, Result<Frame, Arc<str>>>;

impl DurableWorker {
    pub(super) fn new(
        connection: ScriptConnection,
        scripts: ScriptConnection,
        publishing: Publishing,
        wait: Wait,
        durability: Durability,
        listed: Listed,
    ) -> Self {
        Self {
            connection,
            scripts,
            publishing,
            configured: wait,
            log_limit: RateLimit::new(MOST_LOG_LINES),
            durability,
            listed,
            used: None,
            wait: Ok(wait),
            connected: None,
            counted: None,
            sent: HashSet::default(),
        }
    }

    pub(super) async fn serve(mut self, mut calls: mpsc::UnboundedReceiver<Call>) {
        let mut batch = Vec::new();
        let own = self.connection.clone();
        loop {
            // Each caller belongs to the client, and the client's end waits for this task.
            let called = tokio::select! {
                biased;
                called = calls.recv_many(&mut batch, AT_ONCE) => called,
                () = own.closed() => 0,
            };
            if called == 0 {
                return;
            }
            if self.connection.current().is_none() {
                // The connection broke while these calls were queued. They are unsent. A renewal must not keep its lock's
                // operation lock until there is another connection.
                let reason: Arc<str> = "the connection broke before the call was sent".into();
                for call in batch.drain(..) {
                    let _ = call.done.send(Err(reason.clone()));
                }
            }
            let Ok(session) = self.connection.ready().await else {
                return;
            };
            // The callers of these unsent calls have gone: the slot has moved meanwhile.
            batch.retain(|call: &Call| !call.done.is_closed());
            if batch.is_empty() {
                continue;
            }
            self.use_connection(&session);
            if let Err(reason) = self.round(&session, &mut batch).await {
                tracing::debug!(%reason, "calls that wait for replicas are unanswered");
                if self.dropped(&session).await.is_err() {
                    return;
                }
                for call in batch.drain(..) {
                    let _ = call.done.send(Err(reason.clone()));
                }
            }
        }
    }

    /// Waits until the server has dropped the broken connection `old`: a later one has replaced it, or killed it.
    async fn dropped(&self, old: &Arc<ScriptSession>) -> Result<(), ClosedForGood> {
        let killed = async {
            tokio::time::sleep(REPLACEMENT_WAIT).await;
            match self.scripts.ready().await {
                Ok(session) if session.kill(old).await => {}
                _ => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            replaced = self.connection.replaced(old) => replaced,
            () = killed => Ok(()),
        }
    }

    /// Forgets the state of another connection, which may have led to another server.
    fn use_connection(&mut self, session: &Arc<ScriptSession>) {
        let is_same = |used: &Arc<ScriptSession>| Arc::ptr_eq(used, session);
        if !self.used.as_ref().is_some_and(is_same) {
            self.used = Some(session.clone());
            self.wait = Ok(self.configured);
            (self.sent, self.counted) = (HashSet::default(), None);
        }
    }

    /// Sends all calls and then a `WAIT`. Answers each call once enough replicas have it, or at its deadline.
    async fn round(
        &mut self,
        session: &ScriptSession,
        calls: &mut Vec<Call>,
    ) -> Result<(), Arc<str>> {
        if self
            .counted
            .is_none_or(|counted| counted.elapsed() > REPLICAS_COUNTED_EVERY)
        {
            self.count(session).await?;
        }
        let mut wanted = self.wanted();
        let (frames, mut waited) = self.write(session, calls, wanted).await?;
        for (call, frame) in calls.iter_mut().zip(frames) {
            call.frame = frame;
        }
        loop {
            if matches!(waited, Waited::By(by) if by < wanted) {
                // The number of replicas may have fallen.
                self.count(session).await?;
                wanted = self.wanted();
            }
            let now = Instant::now();
            let is_settled = !matches!(waited, Waited::By(by) if by < wanted);
            for call in calls.extract_if(.., |call| is_settled || self.end(call) <= now) {
                let acknowledged = self.acknowledged(&waited, wanted);
                let _ = call.done.send(Ok(Answered {
                    reply: call.frame,
                    acknowledged,
                }));
            }
            if calls.is_empty() {
                return Ok(());
            }
            let left = self.left(calls);
            (_, waited) = self.send(session, Vec::new(), wanted, left).await?;
        }
    }

    fn acknowledged(&self, waited: &Waited, wanted: u32) -> Option<Acknowledged> {
        let by = match waited {
            Waited::By(by) => *by,
            Waited::NotNow => 0,
            Waited::Refused(words) => {
                return Acknowledged::without_wait(self.durability, wanted, words);
            }
        };
        Some(Acknowledged {
            by,
            wanted,
            connected: self.connected.map(|connected| connected as u32),
            refused: None,
        })
    }

    /// The deadline of a call that too few replicas have acknowledged. It includes the wait behind earlier calls.
    fn end(&self, call: &Call) -> Instant {
        call.queued + self.configured.longest
    }

    /// How long a `WAIT` may take: until the first deadline of its calls.
    fn left(&self, calls: &[Call]) -> Duration {
        let first = calls.iter().map(|call| self.end(call)).min();
        first.map_or(Duration::ZERO, |end| {
            end.saturating_duration_since(Instant::now())
        })
    }

    /// The answers to the calls and to a following `WAIT`.
    async fn write(
        &mut self,
        session: &ScriptSession,
        calls: &[Call],
        wanted: u32,
    ) -> Result<(Vec<Frame>, Waited), Arc<str>> {
        let publishing = self.publishing;
        let texts: Vec<_> = calls
            .iter()
            .map(|call| {
                let text = call.script.text(publishing);
                // The first sending has the text: a NOSCRIPT would waste a WAIT.
                let is_first = self.sent.insert(std::ptr::from_ref(call.script).addr());
                match is_first || session.lacks_evalsha() {
                    true => ("EVAL", text.source.clone()),
                    false => ("EVALSHA", text.sha.clone()),
                }
            })
            .collect();
        let evals: Vec<_> = calls
            .iter()
            .zip(texts)
            .map(|(call, (name, text))| -> Answer {
                Box::pin(session.eval(name, text, call.script, &call.operations))
            })
            .collect();
        let left = self.left(calls);
        let (mut frames, mut waited) = self.send(session, evals, wanted, left).await?;
        let unknown: Vec<_> = (0..calls.len())
            .filter(|index| session.must_repeat(&frames[*index]))
            .collect();
        if !unknown.is_empty() {
            let texts = unknown.iter().map(|index| {
                let Call {
                    script, operations, ..
                } = &calls[*index];
                let source = script.text(publishing).source.clone();
                Box::pin(session.eval("EVAL", source, script, operations)) as Answer
            });
            let left = self.left(calls);
            let (again, waited_again) = self.send(session, texts.collect(), wanted, left).await?;
            for (index, frame) in unknown.into_iter().zip(again) {
                frames[index] = frame;
            }
            waited = waited_again;
        }
        Ok((frames, waited))
    }

    fn wanted(&self) -> u32 {
        self.durability.wanted(self.connected, (self.listed)())
    }

    /// The answers to `calls` and to a `WAIT` of `left`. `WAIT` covers the earlier writes of its own connection (P-T4).
    async fn send<'a>(
        &mut self,
        session: &'a ScriptSession,
        mut answers: Vec<Answer<'a>>,
        wanted: u32,
        left: Duration,
    ) -> Result<(Vec<Frame>, Waited), Arc<str>> {
        let count = answers.len();
        answers.extend(self.wait_on(session, wanted, left));
        let mut frames: Vec<Frame> = in_order(answers)
            .await
            .into_iter()
            .collect::<Result<_, _>>()?;
        let mut waited = (frames.len() > count).then(|| frames.remove(count));
        while let Some(answer) = &waited {
            let words = match Waited::read(answer) {
                Waited::Refused(words) => words,
                known => return Ok((frames, known)),
            };
            self.is_refused(words);
            waited = match self.wait_on(session, wanted, left) {
                Some(wait) => Some(wait.await?),
                None => None,
            };
        }
        let words = self.wait.as_ref().err().cloned();
        Ok((frames, Waited::Refused(words.unwrap_or_default())))
    }

    /// `WAIT` or `WAITAOF`.
    fn wait_on<'a>(
        &self,
        session: &'a ScriptSession,
        wanted: u32,
        left: Duration,
    ) -> Option<Answer<'a>> {
        let (name, args) = self.wait.as_ref().ok()?.command(wanted, left);
        Some(Box::pin(session.send(name, args)))
    }

    /// Later calls on this connection do without. The next connection may have the right or the command.
    fn is_refused(&mut self, words: Arc<str>) {
        match &mut self.wait {
            Ok(wait) if wait.for_disk => {
                wait.for_disk = false;
                self.tell(
                    "WAITAOF is refused: acquisitions do not wait for disks",
                    &words,
                );
            }
            wait => {
                *wait = Err(words.clone());
                self.tell(
                    "WAIT is refused: acquisitions do not wait for replicas",
                    &words,
                );
            }
        }
    }

    fn tell(&self, what: &str, message: &str) {
        if let Some(suppressed) = self.log_limit.may_log_about(message) {
            tracing::warn!(message, suppressed, "{what}");
        }
    }

    /// Asks for the number of connected replicas.
    async fn count(&mut self, session: &ScriptSession) -> Result<(), Arc<str>> {
        let role = session.send("ROLE", Vec::new()).await?;
        if let (Some(message), None) = (frame::error(&role), self.counted) {
            self.tell(
                "ROLE is refused: the client assumes that replicas are connected",
                &message,
            );
        }
        self.connected = frame::list_len_at(&role, 2);
        self.counted = Some(Instant::now());
        Ok(())
    }
}

/// Polls all futures in order, and completes when all are complete.
async fn in_order<T>(mut futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let Poll::Ready(value) = future.as_mut().poll(context)
            {
                *done = Some(value);
            }
        }
        match done.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    done.into_iter().flatten().collect()
}
