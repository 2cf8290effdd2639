//! Calls that wait for replicas: on a connection of their own, as `WAIT` holds up all behind it (P-FR13).

use std::{future::poll_fn, pin::Pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{
    CallError, Tasks,
    connection::Frame,
    frame,
    line::{Line, Open},
};
use crate::{
    durability::Durability,
    hash::HashSet,
    wire::{
        Reply, decimal,
        script::{Acknowledged, Operation, Publishing, Script},
    },
};

/// Calls that share a `WAIT`.
const AT_ONCE: usize = 64;
/// How long it is taken for granted how many replicas are connected.
const COUNT_EVERY: Duration = Duration::from_secs(1);

/// What was answered, and by how many replicas it has been acknowledged.
pub(super) struct Answered {
    pub(super) frame: Frame,
    pub(super) acknowledged: Option<Acknowledged>,
}

impl From<Frame> for Answered {
    fn from(frame: Frame) -> Self {
        Self {
            frame,
            acknowledged: None,
        }
    }
}

impl Answered {
    /// The replies to `operations` operations.
    pub(super) fn replies(self, operations: usize) -> Result<Vec<Reply>, CallError> {
        let mut replies = frame::replies(self.frame, operations)?;
        for reply in &mut replies {
            reply.acknowledged = self.acknowledged;
        }
        Ok(replies)
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
        let (name, args) = self.command(wanted);
        let waited = open.send(name, args).await?;
        let by = match frame::error(&waited) {
            Some(message) if !is_lasting(&message) => Some(0),
            _ => frame::acknowledgements(&waited),
        };
        Ok(by.map(|by| Acknowledged { by, wanted }))
    }

    fn command(self, wanted: u32) -> (&'static str, Vec<Bytes>) {
        let (wanted, millis) = (u64::from(wanted), self.longest.as_millis().max(1) as u64);
        let (name, args): (_, &[u64]) = match self.for_disk {
            true => ("WAITAOF", &[1, wanted, millis]),
            false => ("WAIT", &[wanted, millis]),
        };
        (name, args.iter().map(|arg| decimal(*arg)).collect())
    }
}

/// Whether `WAIT` has been refused because the server has no such command, or the user may not use it. Any other error,
/// such as that the server is a replica by now, says that nobody has acknowledged anything.
fn is_lasting(message: &str) -> bool {
    let lasting = ["NOPERM", "unknown command", "appendonly is disabled"];
    lasting.iter().any(|lasting| message.contains(lasting))
}

struct Call {
    script: &'static Script,
    operations: Arc<[Operation]>,
    durability: Durability,
    done: oneshot::Sender<Result<Answered, Arc<str>>>,
}

/// A connection on which calls wait for replicas.
#[derive(Clone)]
pub(super) struct Durable(mpsc::UnboundedSender<Call>);

impl Durable {
    /// `listed` tells how many replicas there are, those that are down included.
    pub(super) fn start(
        line: Line,
        publishing: Publishing,
        wait: Wait,
        listed: impl Fn() -> usize + Send + Sync + 'static,
        tasks: &Tasks,
    ) -> Self {
        let (calls, queued) = mpsc::unbounded_channel();
        let teller = Teller {
            line,
            publishing,
            wait: Some(wait),
            listed,
            connected: None,
            counted: None,
            sent: HashSet::default(),
        };
        tasks.spawn(teller.serve(queued));
        Self(calls)
    }

    /// Runs the call and waits for replicas; without an answer, says why there is none.
    pub(super) async fn run(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
        durability: Durability,
    ) -> Result<Answered, Arc<str>> {
        let (done, answer) = oneshot::channel();
        let _ = self.0.send(Call {
            script,
            operations,
            durability,
            done,
        });
        let closed = |_| Err("the connection was closed".into());
        answer.await.unwrap_or_else(closed)
    }
}

/// Who sends the calls.
struct Teller<L> {
    line: Line,
    publishing: Publishing,
    /// `None` once the server has refused it.
    wait: Option<Wait>,
    listed: L,
    connected: Option<usize>,
    counted: Option<Instant>,
    /// Scripts that have been sent on the present connection.
    sent: HashSet<usize>,
}

type Answer = Result<Frame, Arc<str>>;

impl<L: Fn() -> usize + Send + Sync> Teller<L> {
    async fn serve(mut self, mut calls: mpsc::UnboundedReceiver<Call>) {
        let mut batch = Vec::new();
        let line = self.line.clone();
        loop {
            // Those who could call live as long as their client, whose end waits for this task.
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
            // Nobody waits for these any more, and they have not been sent: their slot has moved meanwhile.
            batch.retain(|call: &Call| !call.done.is_closed());
            if batch.is_empty() {
                continue;
            }
            let answers = self.round(&open, &batch).await;
            if let Err(reason) = &answers {
                tracing::debug!(%reason, "calls that wait for replicas are unanswered");
                if self.line.replaced(&open).await.is_err() {
                    return;
                }
                (self.sent, self.counted) = (HashSet::default(), None);
            }
            let mut answers = answers.map(Vec::into_iter);
            for call in batch.drain(..) {
                let answer = match &mut answers {
                    Ok(answers) => answers.next().ok_or_else(|| "no answer".into()),
                    Err(reason) => Err(reason.clone()),
                };
                let _ = call.done.send(answer);
            }
        }
    }

    /// Sends all calls, and behind them one `WAIT`.
    async fn round(&mut self, open: &Open, calls: &[Call]) -> Result<Vec<Answered>, Arc<str>> {
        if self
            .counted
            .is_none_or(|counted| counted.elapsed() > COUNT_EVERY)
        {
            self.count(open).await?;
        }
        let most = calls.iter().map(|call| self.wanted(call)).max();
        let most = most.unwrap_or_default();
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
        let (mut frames, mut by) = self.send(open, evals, most).await?;
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
            let (again, by_again) = self.send(open, texts, most).await?;
            for (index, frame) in unknown.into_iter().zip(again) {
                frames[index] = frame;
            }
            by = by_again;
        }
        if by.is_some_and(|by| by < most) {
            // Perhaps there are fewer than there were.
            self.count(open).await?;
        }
        let answered = |(frame, call)| Answered {
            frame,
            acknowledged: by.map(|by| Acknowledged {
                by,
                wanted: self.wanted(call),
            }),
        };
        Ok(frames.into_iter().zip(calls).map(answered).collect())
    }

    fn wanted(&self, call: &Call) -> u32 {
        call.durability.wanted(self.connected, (self.listed)())
    }

    /// The answers to `calls`, and how many replicas have what they wrote, if the server says so. `WAIT` is about what came
    /// before it on its own connection (P-T4).
    async fn send(
        &mut self,
        open: &Open,
        calls: impl Iterator<Item = impl Future<Output = Answer> + Send>,
        wanted: u32,
    ) -> Result<(Vec<Frame>, Option<u32>), Arc<str>> {
        let mut answers: Vec<Pin<Box<dyn Future<Output = Answer> + Send + '_>>> = Vec::new();
        answers.extend(calls.map(|call| Box::pin(call) as _));
        let count = answers.len();
        answers.extend(self.wait_on(open, wanted).map(|wait| Box::pin(wait) as _));
        let mut frames: Vec<Frame> = in_order(answers)
            .await
            .into_iter()
            .collect::<Result<_, _>>()?;
        let mut waited = (frames.len() > count).then(|| frames.remove(count));
        while let Some(message) = waited.as_ref().and_then(frame::error) {
            if !is_lasting(&message) {
                return Ok((frames, Some(0)));
            }
            self.is_refused(&message);
            waited = match self.wait_on(open, wanted) {
                Some(wait) => Some(wait.await?),
                None => None,
            };
        }
        Ok((frames, waited.as_ref().and_then(frame::acknowledgements)))
    }

    /// `WAIT`, in the form that the server knows.
    fn wait_on<'a>(
        &self,
        open: &'a Open,
        wanted: u32,
    ) -> Option<impl Future<Output = Answer> + Send + use<'a, L>> {
        let (name, args) = self.wait?.command(wanted);
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
