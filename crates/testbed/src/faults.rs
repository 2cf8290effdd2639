//! The faults and the counters of a proxy.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::resp;

/// A handle to a proxy's faults and counters: cheap to clone, usable from any thread or task.
///
/// Losses apply to `EVAL` and `EVALSHA` only; all other faults apply to all bytes.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<State>);

#[derive(Debug, Default)]
struct State {
    losses: Mutex<Losses>,
    stalled: watch::Sender<bool>,
    replies_stalled: watch::Sender<bool>,
    cut: watch::Sender<()>,
    forgotten: watch::Sender<()>,
    refuse: AtomicBool,
    mute: AtomicBool,
    delay_micros: AtomicU64,
    reply_delay_micros: AtomicU64,
    requests: AtomicU64,
    lost_replies: AtomicU64,
    lost_requests: AtomicU64,
    connections: AtomicU64,
}

#[derive(Debug, Default)]
struct Losses {
    random: fastrand::Rng,
    replies: f64,
    requests: f64,
    segments: f64,
    next_replies: u32,
    next_request: bool,
    only: Option<String>,
}

/// The fate of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Pass,
    LoseReply { once: bool },
    LoseRequest,
}

impl Faults {
    /// From now on, with this probability, a script runs but its reply is lost and its connection cut.
    /// A script that the server does not know (NOSCRIPT) has not run, and its reply is never lost.
    pub fn lose_replies(&self, probability: f64) {
        self.losses().replies = probability;
    }

    /// From now on, with this probability, a script is not forwarded and its connection is cut.
    pub fn lose_requests(&self, probability: f64) {
        self.losses().requests = probability;
    }

    /// From now on, with this probability, delays a chunk of data by TCP's retransmission time, and all later data of the connection
    /// with it. Cuts no connection.
    pub fn lose_segments(&self, probability: f64) {
        self.losses().segments = probability;
    }

    /// Loses the reply of the next script that runs. Each call loses one reply.
    pub fn lose_next_reply(&self) {
        self.losses().next_replies += 1;
    }

    /// Loses the next script itself.
    pub fn lose_next_request(&self) {
        self.losses().next_request = true;
    }

    /// Limits losses to requests that contain these bytes: a script's SHA-1, a key, an owner; `None` for all.
    pub fn only(&self, part: Option<String>) {
        self.losses().only = part.filter(|part| !part.is_empty());
    }

    /// Makes the random losses repeatable, if the requests come in the same order.
    pub fn seed(&self, seed: u64) {
        self.losses().random.seed(seed);
    }

    /// Closes every open connection.
    pub fn cut_all(&self) {
        self.0.cut.send_replace(());
    }

    /// Passes no byte of the open connections on any more, and keeps them open; new connections work. A firewall or a NAT that
    /// loses its state does the same. No later fault but [`cut_all`](Self::cut_all) ends these connections.
    pub fn forget_all(&self) {
        self.0.forgotten.send_replace(());
    }

    /// While on, closes new connections at once.
    pub fn refuse(&self, on: bool) {
        self.0.refuse.store(on, Relaxed);
    }

    /// While on, holds all bytes and keeps connections open. Afterwards all held bytes arrive.
    pub fn stall(&self, on: bool) {
        self.0.stalled.send_replace(on);
    }

    /// While on, requests run and replies are held. Afterwards the replies arrive.
    pub fn stall_replies(&self, on: bool) {
        self.0.replies_stalled.send_replace(on);
    }

    /// Delays all requests by this latency from now on.
    pub fn delay(&self, latency: Duration) {
        self.0.delay_micros.store(micros(latency), Relaxed);
    }

    /// Delays all replies and messages by this latency from now on.
    pub fn delay_replies(&self, latency: Duration) {
        self.0.reply_delay_micros.store(micros(latency), Relaxed);
    }

    /// While on, drops published messages; everything else passes, confirmations included.
    pub fn mute_messages(&self, on: bool) {
        self.0.mute.store(on, Relaxed);
    }

    /// Ends every current and scheduled fault. Counters and the random sequence continue.
    pub fn heal(&self) {
        let mut losses = self.losses();
        let random = losses.random.clone();
        *losses = Losses {
            random,
            ..Losses::default()
        };
        drop(losses);
        self.refuse(false);
        self.mute_messages(false);
        self.delay(Duration::ZERO);
        self.delay_replies(Duration::ZERO);
        self.stall_replies(false);
        self.stall(false);
    }

    /// The number of requests of clients, lost ones included.
    pub fn requests(&self) -> u64 {
        self.0.requests.load(Relaxed)
    }

    /// The number of scripts whose reply was lost.
    pub fn lost_replies(&self) -> u64 {
        self.0.lost_replies.load(Relaxed)
    }

    /// The number of scripts that were not forwarded.
    pub fn lost_requests(&self) -> u64 {
        self.0.lost_requests.load(Relaxed)
    }

    /// The number of open connections. While stalled, a connection that its client has closed still counts.
    pub fn connections(&self) -> u64 {
        self.0.connections.load(Relaxed)
    }

    /// Decides about the fate of a request before it is forwarded, and counts it.
    pub(crate) fn fate(&self, request: &[u8]) -> Fate {
        self.0.requests.fetch_add(1, Relaxed);
        let fate = if is_script(request) {
            self.losses().fate(request)
        } else {
            Fate::Pass
        };
        if fate == Fate::LoseRequest {
            self.0.lost_requests.fetch_add(1, Relaxed);
        }
        fate
    }

    /// Returns whether the reply to a request of this fate is lost, and counts it.
    pub(crate) fn loses_reply(&self, fate: Fate, reply: &[u8]) -> bool {
        let Fate::LoseReply { once } = fate else {
            return false;
        };
        if resp::without_attributes(reply).starts_with(b"-NOSCRIPT") {
            self.losses().next_replies += u32::from(once);
            return false;
        }
        self.0.lost_replies.fetch_add(1, Relaxed);
        true
    }

    /// A connection ends before these requests are answered: its client may have closed it, tired of waiting.
    pub(crate) fn ended(&self, unanswered: impl Iterator<Item = Fate>) {
        let lost = unanswered.filter(|fate| matches!(fate, Fate::LoseReply { .. }));
        self.0.lost_replies.fetch_add(lost.count() as u64, Relaxed);
    }

    pub(crate) fn refuses(&self) -> bool {
        self.0.refuse.load(Relaxed)
    }

    pub(crate) fn mutes(&self) -> bool {
        self.0.mute.load(Relaxed)
    }

    pub(crate) fn latency(&self) -> Duration {
        Duration::from_micros(self.0.delay_micros.load(Relaxed))
    }

    pub(crate) fn reply_latency(&self) -> Duration {
        Duration::from_micros(self.0.reply_delay_micros.load(Relaxed))
    }

    /// Decides whether a segment is lost.
    pub(crate) fn loses_segment(&self) -> bool {
        let mut losses = self.losses();
        let probability = losses.segments;
        losses.happens(probability)
    }

    /// Waits while requests are held.
    pub(crate) async fn requests_move(&self) {
        off(&self.0.stalled).await;
    }

    /// Waits while replies are held.
    pub(crate) async fn replies_move(&self) {
        while *self.0.stalled.borrow() || *self.0.replies_stalled.borrow() {
            off(&self.0.stalled).await;
            off(&self.0.replies_stalled).await;
        }
    }

    /// Counts an open connection until it is dropped.
    pub(crate) fn open(&self) -> Open {
        self.0.connections.fetch_add(1, Relaxed);
        Open {
            faults: self.clone(),
            cut: self.0.cut.subscribe(),
            forgotten: self.0.forgotten.subscribe(),
        }
    }

    fn losses(&self) -> MutexGuard<'_, Losses> {
        self.0.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Losses {
    fn fate(&mut self, request: &[u8]) -> Fate {
        if self
            .only
            .as_ref()
            .is_some_and(|part| !contains(request, part.as_bytes()))
        {
            Fate::Pass
        } else if std::mem::take(&mut self.next_request) {
            Fate::LoseRequest
        } else if self.next_replies > 0 {
            self.next_replies -= 1;
            Fate::LoseReply { once: true }
        } else if self.happens(self.requests) {
            Fate::LoseRequest
        } else if self.happens(self.replies) {
            Fate::LoseReply { once: false }
        } else {
            Fate::Pass
        }
    }

    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.random.f64() < probability
    }
}

/// An open connection, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Open {
    faults: Faults,
    cut: watch::Receiver<()>,
    forgotten: watch::Receiver<()>,
}

impl Open {
    /// Waits until all connections must be cut.
    async fn cut(&mut self) {
        self.cut.changed().await.expect("`faults` holds the sender");
    }

    /// Runs `relay` until all connections must be cut, or for as long as this one passes bytes on.
    pub(crate) async fn pass<T>(&mut self, relay: impl Future<Output = T>) -> Option<T> {
        let mut relay = pin!(relay);
        tokio::select! {
            changed = self.cut.changed() => changed.expect("`faults` holds the sender"),
            changed = self.forgotten.changed() => {
                changed.expect("`faults` holds the sender");
                self.cut().await;
            }
            ended = &mut relay => return Some(ended),
        }
        None
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.faults.0.connections.fetch_sub(1, Relaxed);
    }
}

fn micros(latency: Duration) -> u64 {
    u64::try_from(latency.as_micros()).expect("a latency that a test can wait for")
}

async fn off(switch: &watch::Sender<bool>) {
    if *switch.borrow() {
        let mut watched = switch.subscribe();
        watched
            .wait_for(|on| !on)
            .await
            .expect("the switch outlives the wait");
    }
}

fn is_script(request: &[u8]) -> bool {
    let words = resp::words(request, 1);
    let command = words.first().copied().unwrap_or_default();
    command.eq_ignore_ascii_case(b"EVALSHA") || command.eq_ignore_ascii_case(b"EVAL")
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}
