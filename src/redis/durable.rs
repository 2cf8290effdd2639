//! Calls that wait for replicas: on connections of their own, one for each [`Durability`], as `WAIT` holds up all behind it
//! (P-FR13).

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    Answered, CallError, Tasks,
    connection::Frame,
    frame,
    script_conn::{Open, ScriptConn},
};
use crate::{
    durability::{Acknowledged, Durability},
    hash::{HashMap, HashSet},
    wire::{
        decimal,
        script::{Operation, Publishing, Script},
    },
};

/// Calls that share a `WAIT`.
const AT_ONCE: usize = 64;
/// How long it is taken for granted how many replicas are connected.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl From<Frame> for Answered<Frame> {
    fn from(reply: Frame) -> Self {
        Self {
            reply,
            acknowledged: None,
        }
    }
}

impl Answered<Frame> {
    /// What came of each of the `operations` operations of the call.
    pub(super) fn answers(self, operations: usize) -> Result<Vec<Answered>, CallError> {
        let acknowledged = self.acknowledged;
        let answered = |reply| Answered {
            reply,
            acknowledged,
        };
        let replies = frame::replies(self.reply, operations)?;
        Ok(replies.into_iter().map(answered).collect())
    }
}

/// How replicas are waited for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait {
    pub(super) longest: Duration,
    /// Until it is on their disks, and on the master's.
    pub(super) for_disk: bool,
}

impl Wait {
    /// Waits once on `open`, where a script has been answered just before.
    pub(super) async fn on(
        self,
        open: &Open,
        wanted: u32,
    ) -> Result<Option<Acknowledged>, Arc<str>> {
        if wanted == 0 {
            return Ok(None);
        }
        let (name, args) = self.command(wanted, self.longest);
        let waited = open.send(name, args).await?;
        let by = match frame::error(&waited) {
            Some(message) if !is_lasting(&message) => Some(0),
            _ => frame::acknowledgements(&waited),
        };
        Ok(by.map(|by| Acknowledged { by, wanted }))
    }

    fn command(self, wanted: u32, longest: Duration) -> (&'static str, Vec<Bytes>) {
        // Zero would be without an end.
        let millis = longest.as_micros().div_ceil(1_000).max(1) as u64;
        let wanted = u64::from(wanted);
        let (name, args): (_, &[u64]) = match self.for_disk {
            true => ("WAITAOF", &[1, wanted, millis]),
            false => ("WAIT", &[wanted, millis]),
        };
        (name, args.iter().map(|arg| decimal(*arg)).collect())
    }
}

/// Whether `WAIT` has been refused because the server has no such command, or the user may not use it. Any other error,
/// such as that the server is a replica by now, means that no replica has acknowledged.
fn is_lasting(message: &str) -> bool {
    let lasting = ["NOPERM", "unknown command", "appendonly is disabled"];
    lasting.iter().any(|lasting| message.contains(lasting))
}

struct Call {
    script: &'static Script,
    operations: Arc<[Operation]>,
    queued: Instant,
    /// Its answer, once there is one.
    frame: Frame,
    done: oneshot::Sender<Result<Answered<Frame>, Arc<str>>>,
}

/// The connections of a server on which calls wait for replicas.
#[derive(Default)]
pub(super) struct Durables(Mutex<HashMap<Durability, Durable>>);

impl Durables {
    /// The one for calls that are to be so durable, which is made for the first of them.
    pub(super) fn get(&self, durability: Durability, make: impl FnOnce() -> Durable) -> Durable {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(durability).or_insert_with(make).clone()
    }
}

/// A connection on which calls of one durability wait for replicas.
#[derive(Clone)]
pub(super) struct Durable(mpsc::UnboundedSender<Call>);

impl Durable {
    /// `listed` tells how many replicas there are, those that are down included.
    pub(super) fn start(
        line: ScriptConn,
        publishing: Publishing,
        wait: Wait,
        durability: Durability,
        listed: impl Fn() -> usize + Send + Sync + 'static,
        tasks: &Tasks,
    ) -> Self {
        let (calls, queued) = mpsc::unbounded_channel();
        let worker = DurableWorker {
            line,
            publishing,
            longest: wait.longest,
            wait: Some(wait),
            durability,
            listed,
            used: None,
            connected: None,
            counted: None,
            sent: HashSet::default(),
        };
        tasks.spawn(worker.serve(queued));
        Self(calls)
    }

    /// Runs the call and waits for replicas; without an answer, says why there is none.
    pub(super) async fn run(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
    ) -> Result<Answered<Frame>, Arc<str>> {
        let (done, answer) = oneshot::channel();
        let _ = self.0.send(Call {
            script,
            operations,
            queued: Instant::now(),
            frame: Frame::Null,
            done,
        });
        let closed = |_| Err("the connection was closed".into());
        answer.await.unwrap_or_else(closed)
    }
}

/// The task that sends the calls.
struct DurableWorker<L> {
    line: ScriptConn,
    publishing: Publishing,
    /// How long a call may take to be acknowledged, including its wait behind earlier calls.
    longest: Duration,
    /// `None` once the server has refused it.
    wait: Option<Wait>,
    durability: Durability,
    listed: L,
    /// The connection that the rest is about.
    used: Option<Arc<Open>>,
    connected: Option<usize>,
    counted: Option<Instant>,
    /// Scripts that have been sent on it.
    sent: HashSet<usize>,
}

type Answer = Result<Frame, Arc<str>>;

/// What became of a `WAIT`.
#[derive(Clone, Copy)]
struct Waited {
    /// How many replicas have what was written before, if the server says so.
    by: Option<u32>,
    /// There was an error: to wait on is in vain.
    failed: bool,
}

impl<L: Fn() -> usize + Send + Sync> DurableWorker<L> {
    async fn serve(mut self, mut calls: mpsc::UnboundedReceiver<Call>) {
        let mut batch = Vec::new();
        let line = self.line.clone();
        loop {
            // A caller lives no longer than its client, whose end waits for this task.
            let called = tokio::select! {
                biased;
                called = calls.recv_many(&mut batch, AT_ONCE) => called,
                () = line.closed() => 0,
            };
            if called == 0 {
                return;
            }
            let Ok(open) = self.line.opened().await else {
                return;
            };
            // These callers are gone, and their calls have not been sent: their slot has moved meanwhile.
            batch.retain(|call: &Call| !call.done.is_closed());
            if batch.is_empty() {
                continue;
            }
            self.use_connection(&open);
            if let Err(reason) = self.round(&open, &mut batch).await {
                tracing::debug!(%reason, "calls that wait for replicas are unanswered");
                if self.line.replaced(&open).await.is_err() {
                    return;
                }
                for call in batch.drain(..) {
                    let _ = call.done.send(Err(reason.clone()));
                }
            }
        }
    }

    /// Forgets what was known of another connection, which may have been to another server.
    fn use_connection(&mut self, open: &Arc<Open>) {
        let is_same = |used: &Arc<Open>| Arc::ptr_eq(used, open);
        if !self.used.as_ref().is_some_and(is_same) {
            self.used = Some(open.clone());
            (self.sent, self.counted) = (HashSet::default(), None);
        }
    }

    /// Sends all calls, and behind them a `WAIT`; answers each once enough replicas have it, or its time is over.
    async fn round(&mut self, open: &Open, calls: &mut Vec<Call>) -> Result<(), Arc<str>> {
        if self
            .counted
            .is_none_or(|counted| counted.elapsed() > COUNT_EVERY)
        {
            self.count(open).await?;
        }
        let mut wanted = self.wanted();
        let (frames, mut waited) = self.write(open, calls, wanted).await?;
        for (call, frame) in calls.iter_mut().zip(frames) {
            call.frame = frame;
        }
        loop {
            if waited.by.is_some_and(|by| by < wanted) {
                // Perhaps there are fewer than there were.
                self.count(open).await?;
                wanted = self.wanted();
            }
            let now = Instant::now();
            let is_settled = waited.failed || waited.by.is_none_or(|by| by >= wanted);
            for call in calls.extract_if(.., |call| is_settled || self.end(call) <= now) {
                let acknowledged = waited.by.map(|by| Acknowledged { by, wanted });
                let _ = call.done.send(Ok(Answered {
                    reply: call.frame,
                    acknowledged,
                }));
            }
            if calls.is_empty() {
                return Ok(());
            }
            let left = self.left(calls);
            (_, waited) = self.send(open, no_calls(), wanted, left).await?;
        }
    }

    /// When a call is answered that too few replicas have acknowledged.
    fn end(&self, call: &Call) -> Instant {
        call.queued + self.longest
    }

    /// How long a `WAIT` for calls takes, until the first of them is to be answered.
    fn left(&self, calls: &[Call]) -> Duration {
        let first = calls.iter().map(|call| self.end(call)).min();
        first.map_or(Duration::ZERO, |end| {
            end.saturating_duration_since(Instant::now())
        })
    }

    /// The answers to the calls, and to a `WAIT` behind them.
    async fn write(
        &mut self,
        open: &Open,
        calls: &[Call],
        wanted: u32,
    ) -> Result<(Vec<Frame>, Waited), Arc<str>> {
        let publishing = self.publishing;
        let texts: Vec<_> = calls
            .iter()
            .map(|call| {
                let text = call.script.text(publishing);
                // By its text at first: one that the server does not know would cost a WAIT in vain.
                match self.sent.insert(std::ptr::from_ref(call.script).addr()) {
                    true => ("EVAL", text.source.clone()),
                    false => ("EVALSHA", text.sha.clone()),
                }
            })
            .collect();
        let evals = calls
            .iter()
            .zip(texts)
            .map(|(call, (name, text))| open.eval(name, text, call.script, &call.operations));
        let left = self.left(calls);
        let (mut frames, mut waited) = self.send(open, evals, wanted, left).await?;
        let unknown: Vec<_> = (0..calls.len())
            .filter(|index| frame::is_unknown_script(&frames[*index]))
            .collect();
        if !unknown.is_empty() {
            let texts = unknown.iter().map(|index| {
                let Call {
                    script, operations, ..
                } = &calls[*index];
                let source = script.text(publishing).source.clone();
                open.eval("EVAL", source, script, operations)
            });
            let left = self.left(calls);
            let (again, waited_again) = self.send(open, texts, wanted, left).await?;
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

    /// The answers to `calls`, and to a `WAIT` that lasts for `left`. `WAIT` is about what came before it on its own
    /// connection (P-T4).
    async fn send(
        &mut self,
        open: &Open,
        calls: impl Iterator<Item = impl Future<Output = Answer> + Send>,
        wanted: u32,
        left: Duration,
    ) -> Result<(Vec<Frame>, Waited), Arc<str>> {
        let mut answers: Vec<Pin<Box<dyn Future<Output = Answer> + Send + '_>>> = Vec::new();
        answers.extend(calls.map(|call| Box::pin(call) as _));
        let count = answers.len();
        answers.extend(
            self.wait_on(open, wanted, left)
                .map(|wait| Box::pin(wait) as _),
        );
        let mut frames: Vec<Frame> = in_order(answers)
            .await
            .into_iter()
            .collect::<Result<_, _>>()?;
        let mut waited = (frames.len() > count).then(|| frames.remove(count));
        while let Some(message) = waited.as_ref().and_then(frame::error) {
            if !is_lasting(&message) {
                let (by, failed) = (Some(0), true);
                return Ok((frames, Waited { by, failed }));
            }
            self.is_refused(&message);
            waited = match self.wait_on(open, wanted, left) {
                Some(wait) => Some(wait.await?),
                None => None,
            };
        }
        let by = waited.as_ref().and_then(frame::acknowledgements);
        Ok((frames, Waited { by, failed: false }))
    }

    /// `WAIT`, in the form that the server knows.
    fn wait_on<'a>(
        &self,
        open: &'a Open,
        wanted: u32,
        left: Duration,
    ) -> Option<impl Future<Output = Answer> + Send + use<'a, L>> {
        let (name, args) = self.wait?.command(wanted, left);
        Some(open.send(name, args))
    }

    /// What comes after goes without.
    fn is_refused(&mut self, message: &str) {
        match &mut self.wait {
            Some(wait) if wait.for_disk => {
                wait.for_disk = false;
                tracing::warn!(message, "WAITAOF is refused: disks are not waited for");
            }
            wait => {
                *wait = None;
                tracing::warn!(message, "WAIT is refused: replicas are not waited for");
            }
        }
    }

    /// Asks how many replicas are connected.
    async fn count(&mut self, open: &Open) -> Result<(), Arc<str>> {
        let role = open.send("ROLE", Vec::new()).await?;
        if let (Some(message), None) = (frame::error(&role), self.counted) {
            tracing::warn!(
                message,
                "ROLE is refused: replicas are taken to be connected"
            );
        }
        self.connected = frame::list_len_at(&role, 2);
        self.counted = Some(Instant::now());
        Ok(())
    }
}

fn no_calls() -> std::iter::Empty<std::future::Ready<Answer>> {
    std::iter::empty()
}

/// Completes all, having begun each before the next.
async fn in_order<T>(mut futures: Vec<Pin<Box<dyn Future<Output = T> + Send + '_>>>) -> Vec<T> {
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
