//! What the machine is told with each event, and what it asks for.

use std::time::Duration;

use super::{super::time::Time, attempts::AttemptKey};

/// What the client knows beside the semaphore.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub now: Time,
    pub limits: &'a Limits,
}

/// What the configuration says.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Limits {
    /// How long the news of the permits that are left count. If too short, waiters ask in vain; if too long, a lost message costs
    /// as much.
    pub poll: Duration,
    /// How long after their grant permits may pass from task to task. If too long, other clients wait.
    pub window: Duration,
    /// How long given permits wait for their task. If too short, a busy runtime loses them; if too long, a task that is not polled
    /// keeps them.
    pub pick_up: Duration,
    /// The time between a refusal and the next sending of a request that has to be executed.
    pub pause: Duration,
    /// How long a request without an answer is repeated. The server knows the attempt for longer: a repetition after that would be
    /// executed again.
    pub longest_doubt: Duration,
    /// Whether tasks hand permits off in memory.
    pub hands_off: bool,
}

/// What a request does. All or none of the permits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Request {
    Acquire { permits: u32 },
    Release { permits: u32 },
}

/// The answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Answer {
    /// Executed, now or by an earlier sending of the attempt. So many permits were left then.
    Done { left: i64 },
    /// Too few permits are left, or there is no semaphore.
    Busy { left: i64 },
    /// The server does not execute this sending. It may have executed an earlier one.
    Refused,
    /// The connection ended. The server may have executed the request, but will not execute it any more.
    Unanswered,
}

/// What the shell does after an event, in this order. The machine never waits for any of it.
#[derive(Clone, Debug)]
pub struct Effects<W> {
    /// Attempts that travel: [`Pool::build`](super::Pool::build) gives the request when its batch leaves.
    pub send: Vec<AttemptKey>,
    /// Whether to subscribe to the channel, or to unsubscribe from it.
    pub listen: Option<bool>,
    /// Wakers of tasks that can go on.
    pub wake: Vec<W>,
    /// Permits of attempts that were given up in doubt: they may be missing at the server. The shell logs them.
    pub forgotten: u32,
}

impl<W> Default for Effects<W> {
    fn default() -> Self {
        Self {
            send: Vec::new(),
            listen: None,
            wake: Vec::new(),
            forgotten: 0,
        }
    }
}

/// An acquisition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ask {
    /// At least one.
    pub permits: u32,
    /// Whether the caller waits for permits that are not left.
    pub waits: bool,
}
