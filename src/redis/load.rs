//! How many operations a client has under way.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};

use super::time_limits::CROWD_WAIT;

/// With this many operations under way, a further attempt first waits for an answer: each operation takes more than a
/// kilobyte, which malloc does not return to the system.
const CROWD: usize = 1_024;

/// The operations of the client for which a caller waits.
#[derive(Default)]
pub(crate) struct Load {
    count: AtomicUsize,
    /// Attempts that wait for an answer to one of these operations.
    behind: AtomicUsize,
    answered: Notify,
}

impl Load {
    /// Whether so many operations are under way that further attempts wait.
    pub(crate) fn is_crowded(&self) -> bool {
        self.count.load(Ordering::SeqCst) >= CROWD
    }

    /// Completes, in order of arrival, when an operation is answered; after a while, or at `limit`, without an answer.
    pub(crate) async fn wait_for_capacity(&self, limit: Instant) {
        let mut answered = pin!(self.answered.notified());
        answered.as_mut().enable();
        let _behind = Behind::one_more(self);
        // An earlier answer needs no wait.
        if self.is_crowded() {
            let longest = Instant::now() + CROWD_WAIT;
            let _ = timeout_at(limit.min(longest), answered).await;
        }
    }
}

/// Counts one operation in the load until its drop.
pub(super) struct CountedInLoad<'a>(&'a Load);

impl<'a> CountedInLoad<'a> {
    /// Returns the load with this operation.
    pub(super) fn new(load: &'a Load) -> (Self, usize) {
        let before = load.count.fetch_add(1, Ordering::Relaxed);
        (Self(load), before + 1)
    }
}

impl Drop for CountedInLoad<'_> {
    fn drop(&mut self) {
        let Load {
            count,
            behind,
            answered,
        } = self.0;
        count.fetch_sub(1, Ordering::SeqCst);
        if behind.load(Ordering::SeqCst) > 0 {
            answered.notify_one();
        }
    }
}

/// An attempt that waits for the answer to one of many operations.
struct Behind<'a>(&'a AtomicUsize);

impl<'a> Behind<'a> {
    fn one_more(load: &'a Load) -> Self {
        load.behind.fetch_add(1, Ordering::SeqCst);
        Self(&load.behind)
    }
}

impl Drop for Behind<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    fn crowd(load: &Load) -> Vec<CountedInLoad<'_>> {
        (0..CROWD).map(|_| CountedInLoad::new(load).0).collect()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(3)
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_among_few_operations_waits_for_none() {
        let load = Load::default();
        let mut on_their_way = crowd(&load);
        on_their_way.pop();
        assert!(!load.is_crowded());
        assert!(load.wait_for_capacity(soon()).now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn each_answer_lets_one_attempt_go_in_turn() {
        let load = Load::default();
        let mut on_their_way = crowd(&load);
        let mut first = pin!(load.wait_for_capacity(soon()));
        let mut second = pin!(load.wait_for_capacity(soon()));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        on_their_way.pop();
        // The next operation takes the place of the one that was answered.
        on_their_way.push(CountedInLoad::new(&load).0);
        assert!(second.as_mut().now_or_never().is_none());
        assert!(first.as_mut().now_or_never().is_some());
        on_their_way.pop();
        assert!(second.as_mut().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_is_given_up_leaves_its_answer_to_the_next() {
        let load = Load::default();
        let mut on_their_way = crowd(&load);
        let mut first = Box::pin(load.wait_for_capacity(soon()));
        let mut second = pin!(load.wait_for_capacity(soon()));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        on_their_way.pop();
        drop(first);
        assert!(second.as_mut().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_answer_an_attempt_goes_after_a_while_and_at_its_deadline() {
        let load = Load::default();
        let _on_their_way = crowd(&load);
        let began = Instant::now();
        load.wait_for_capacity(soon()).await;
        assert_eq!(began.elapsed(), CROWD_WAIT);
        let deadline = Duration::from_millis(7);
        let began = Instant::now();
        load.wait_for_capacity(began + deadline).await;
        assert_eq!(began.elapsed(), deadline);
    }
}
