//! When a connection is due for a `PING`, by its calls and replies.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use crate::redis::time_limits::{CHECK_EVERY, PING_EVERY};

/// The calls and replies of one connection.
pub(super) struct Keepalive {
    since: Instant,
    in_flight: AtomicUsize,
    /// In milliseconds after `since`.
    last_reply: AtomicU64,
    /// Whether a call was given up since the last reply.
    given_up: AtomicBool,
}

impl Keepalive {
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            in_flight: AtomicUsize::new(0),
            last_reply: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
        }
    }

    pub(super) fn sent(&self) -> InFlight<'_> {
        let is_first = self.in_flight.fetch_add(1, Ordering::Relaxed) == 0;
        // The first call after a quiet time restarts the clock. Calls that are given up would restart it again and again.
        if is_first && !self.given_up.load(Ordering::Relaxed) {
            self.mark();
        }
        InFlight {
            keepalive: self,
            is_answered: false,
        }
    }

    pub(super) fn answered(&self) {
        self.given_up.store(false, Ordering::Relaxed);
        self.mark();
    }

    /// How long ago the connection opened.
    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    fn mark(&self) {
        self.last_reply
            .store(self.since.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last_reply.load(Ordering::Relaxed));
        self.since.elapsed().saturating_sub(last)
    }

    /// Whether calls wait, or were given up without a reply.
    pub(super) fn lacks_replies(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0 || self.given_up.load(Ordering::Relaxed)
    }

    /// Whether a `PING` is due: replies are missing, or the connection has been quiet for long.
    pub(super) fn is_ping_due(&self) -> bool {
        let longest = if self.lacks_replies() {
            CHECK_EVERY
        } else {
            PING_EVERY
        };
        self.silence() >= longest
    }

    /// Completes when a `PING` is due, if no reply comes to the calls that wait now. Without such calls, it never completes: no
    /// call wakes the task that checks the connection.
    pub(super) async fn ping_due(&self) {
        match self.lacks_replies() {
            true => sleep(CHECK_EVERY.saturating_sub(self.silence())).await,
            false => std::future::pending().await,
        }
    }
}

/// A call that waits for its answer.
pub(in crate::redis) struct InFlight<'a> {
    keepalive: &'a Keepalive,
    is_answered: bool,
}

impl InFlight<'_> {
    /// Ends the call. A drop without it means that the caller has given up.
    pub(in crate::redis) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.keepalive.given_up.store(true, Ordering::Relaxed);
        }
        self.keepalive.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_is_no_sign_of_life() {
        let keepalive = Keepalive::new();
        let _waits = keepalive.sent();
        for _ in 0..4 {
            let given_up = keepalive.sent();
            tokio::time::advance(CHECK_EVERY / 4).await;
            drop(given_up);
        }
        assert!(keepalive.is_ping_due());
        keepalive.answered();
        assert!(!keepalive.is_ping_due());
    }

    /// A readiness probe gave up sooner than a connection is checked, and each probe restarted the clock.
    #[tokio::test(start_paused = true)]
    async fn calls_given_up_one_after_the_other_are_no_sign_of_life() {
        let keepalive = Keepalive::new();
        for _ in 0..2 {
            let given_up = keepalive.sent();
            tokio::time::advance(CHECK_EVERY / 2).await;
            drop(given_up);
            tokio::time::advance(CHECK_EVERY).await;
        }
        let _next = keepalive.sent();
        assert!(keepalive.is_ping_due());
        keepalive.answered();
        assert!(!keepalive.is_ping_due());
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_connection_without_unanswered_calls_is_not_suspicious() {
        let keepalive = Keepalive::new();
        keepalive.sent().answered();
        tokio::time::advance(CHECK_EVERY).await;
        assert!(!keepalive.is_ping_due());
        tokio::time::advance(PING_EVERY).await;
        assert!(keepalive.is_ping_due());
    }
}
