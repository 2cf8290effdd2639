//! What the machine is told with each event, and what it asks for.

use std::time::Duration;

use super::{
    keys::{Channel, OpKey, Owner},
    time::Time,
};

/// What the client knows beside the lock.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub now: Time,
    /// Counts the connections. Answers to requests of an earlier one may be those of another server.
    pub epoch: u32,
    pub limits: &'a Limits,
    /// Whether the client serves callers: it is not being shut down.
    pub is_open: bool,
}

/// What the kind of the lock and the configuration say.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// The lease of a hold that the client renews.
    pub watched_lease: Duration,
    /// The part of a lease by which clocks may drift, in hundredths.
    pub drift_percent: u32,
    /// The least allowance for drift.
    pub least_drift: Duration,
    /// How long a refused waiter waits for a message. If too short, waiters ask in vain; if too long, a lost message costs as much.
    pub poll: Duration,
    /// How long after its grant a tenure may pass from task to task. If too long, other clients wait.
    pub window: Duration,
    /// How long a given hold waits for its task. If too short, a busy runtime loses holds; if too long, a task that is not polled
    /// keeps the lock.
    pub pick_up: Duration,
    /// How long the message of an own release may take. A lost one would hide another client's.
    pub echo: Duration,
    /// How long after a passing refusal the request is repeated. If too short, a server that loads its data is asked often; if too
    /// long, a lock is not served although its server is.
    pub retry: Duration,
    /// Whether tasks hand the lock off in memory.
    pub hands_off: bool,
    /// Whether the server keeps the queue of the waiters. Each owner then asks for itself, and none is handed the lock in memory.
    pub is_fair: bool,
}

impl Limits {
    /// The allowance for the drift of clocks over a lease. The validity ends that much before the server's lease, and a belief that
    /// much after it.
    pub fn drift(&self, lease: Duration) -> Duration {
        lease * self.drift_percent / 100 + self.least_drift
    }

    /// The end of the validity of a lease that was requested at `sent`.
    pub fn validity(&self, sent: Time, lease: Duration) -> Time {
        sent + lease.saturating_sub(self.drift(lease))
    }

    /// When the server has certainly ended a lease that it was told by `now`.
    pub fn certain_end(&self, now: Time, lease: Duration) -> Time {
        now + lease + self.drift(lease)
    }
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    /// Asks for `holds` holds in all. A fair lock gives a waiter a place in its queue.
    Acquire {
        holds: u32,
        lease: Duration,
        wait: Option<Wait>,
    },
    /// Leaves `holds` holds, with the lease that these need. Without holds, the lock is free.
    Release { holds: u32, lease: Duration },
    /// Leaves the queue of a fair lock.
    Abandon,
    /// Keeps the holds for at least `lease`, from now.
    Renew { lease: Duration },
}

/// What a waiter tells the queue of a fair lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Wait {
    /// The time since this wait last asked on this connection; zero if it has not.
    pub since_last: Duration,
    /// Whether the server notifies the head of the queue if the lock is free: the end of a lease has no message.
    pub notify_head: bool,
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    Done,
    /// Another owner has the lock, for so long as far as the server knows.
    Busy {
        remaining: Option<Duration>,
    },
    /// The server counts fewer holds than the request relies on.
    Absent,
    /// The server refuses the request, and would refuse it again.
    Refused,
    /// The server has not executed the request, for a reason that passes.
    Passing,
    /// The connection ended. The server may have executed the request, but will not execute it any more.
    Unanswered,
}

/// What the shell does after an event, in this order. The machine never waits for any of it.
#[derive(Clone, Debug)]
pub struct Effects<W> {
    /// Operations that travel: [`Machine::build`](super::Machine::build) gives the request when its batch leaves.
    pub send: Vec<OpKey>,
    /// Channels to subscribe to, or to unsubscribe from.
    pub listen: Vec<(Channel, bool)>,
    /// Wakers of tasks that can go on.
    pub wake: Vec<W>,
}

impl<W> Default for Effects<W> {
    fn default() -> Self {
        Self {
            send: Vec::new(),
            listen: Vec::new(),
            wake: Vec::new(),
        }
    }
}

/// The terms of a hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Terms {
    /// The client renews the hold.
    Watched,
    /// The hold ends after this lease.
    Fixed(Duration),
}

impl Terms {
    pub fn lease(self, limits: &Limits) -> Duration {
        match self {
            Self::Watched => limits.watched_lease,
            Self::Fixed(lease) => lease,
        }
    }
}

/// An acquisition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ask {
    pub owner: Owner,
    pub terms: Terms,
    /// Whether the caller waits for a lock that is not free.
    pub waits: bool,
}
