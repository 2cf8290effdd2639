//! The regular check of a contended lock, for stalled tasks and for a tenure that may be over.
//!
//! A future may be kept and never polled, and must not block the queue. A waiter that has not taken
//! its hold within [`PICK_UP`] enqueues again, and an asker that is late is replaced.

use std::time::Duration;

use tokio::time::Instant;

use super::{EntryId, LocalLock, State, contention::Contention};
use crate::engine::{
    room::ToNotify,
    time_limits::{ASKER_WAIT, CHECK_INTERVAL, LONGEST_ASKER_WAIT, PICK_UP},
};

/// The result of a check.
pub(in crate::engine) struct Check<T, O> {
    /// A tenure that waiters have waited behind for long. The caller verifies it.
    pub(in crate::engine) to_verify: Option<T>,
    /// A hold that its waiter has not picked up, to be dropped after the lock's mutex is released.
    pub(in crate::engine) withdrawn: Option<O>,
    pub(in crate::engine) notified: ToNotify<O>,
    /// The time of the next check; `None` if there is nothing to check.
    pub(in crate::engine) next: Option<Instant>,
}

impl<T: Clone, W, O> LocalLock<T, W, O> {
    /// Checks for stalled tasks. The next waiter replaces a stalled asker if it `can_ask`. Returns a
    /// tenure to verify, once per `pause`. `mark` marks a withdrawn hold as dropped under the mutex:
    /// its owner must not re-enter by it.
    pub(in crate::engine) fn check(
        &self,
        now: Instant,
        pause: impl Fn(&T) -> Duration,
        can_ask: impl Fn(&W) -> bool,
        mark: impl FnOnce(&O),
    ) -> Check<T, O> {
        let mut check = Check {
            to_verify: None,
            withdrawn: None,
            notified: ToNotify::none(),
            next: None,
        };
        let mut state = self.state();
        let state = &mut *state;
        let Some(contention) = &mut state.contention else {
            return check;
        };
        check.withdrawn = contention.withdraw_hold(now, mark);
        check.next = contention.check_soon.then(|| now + PICK_UP);
        if contention.waiters.is_empty() {
            contention.is_listed = check.next.is_some();
            return check;
        }
        check.next = check.next.or(Some(now + CHECK_INTERVAL));
        if let Some(current) = &state.current {
            let is_due =
                contention.must_verify(current.number, now, || now + pause(&current.tenure));
            check.to_verify = is_due.then(|| current.tenure.clone());
        }
        let is_stalled = state.is_asker_stalled(now) && state.current.is_none();
        let waiters = state
            .contention
            .iter()
            .flat_map(|contention| &contention.waiters);
        if is_stalled && waiters.take(1).any(|first| can_ask(&first.request)) {
            (state.asker, state.listener) = (None, None);
            check.notified = state.notify_next();
        }
        check
    }
}

impl<T, W, O> State<T, W, O> {
    /// Whether the asker was notified and not polled, or has not sent its attempt in time.
    fn is_asker_stalled(&mut self, now: Instant) -> bool {
        let Some(contention) = &mut self.contention else {
            return false;
        };
        let waits = self.listener.as_ref().filter(|asker| asker.waits());
        match (self.asker, waits) {
            (_, Some(waits)) => {
                contention.asking_since = None;
                waits.is_stalled(now)
            }
            (Some(id), None) => contention.asks_too_long(id, now),
            (None, None) => false,
        }
    }
}

impl<W, O> Contention<W, O> {
    /// Takes the hold from a successor that has not taken it in time. That waiter enqueues again.
    fn withdraw_hold(&mut self, now: Instant, mark: impl FnOnce(&O)) -> Option<O> {
        let passed = (self.successor).take_if(|passed| passed.signal.has_hold());
        self.check_soon = passed.is_some();
        let passed = passed?;
        if !passed.signal.is_stalled(now) {
            self.successor = Some(passed);
            return None;
        }
        let withdrawn = passed.signal.take().inspect(mark)?;
        self.push(passed);
        Some(withdrawn)
    }

    /// Whether the tenure `number` is due to be verified. `next` is the time of the verification
    /// after that.
    fn must_verify(&mut self, number: u64, now: Instant, next: impl FnOnce() -> Instant) -> bool {
        let since = self.verify_at.filter(|(verified, _)| *verified == number);
        let at = since.map_or(now + CHECK_INTERVAL, |(_, at)| at);
        let is_due = at <= now;
        self.verify_at = Some((number, if is_due { next() } else { at }));
        is_due
    }

    /// Whether the attempt of the asker `id` takes too long.
    fn asks_too_long(&mut self, id: EntryId, now: Instant) -> bool {
        let since = self.asking_since.filter(|(asker, _)| *asker == id);
        let (_, since) = *self.asking_since.insert(since.unwrap_or((id, now)));
        let answers = 4 * self.answer_takes;
        since + answers.clamp(ASKER_WAIT, LONGEST_ASKER_WAIT) <= now
    }
}
