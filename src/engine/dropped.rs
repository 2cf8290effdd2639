//! Releases of dropped guards that are not done yet. The client's later operations on the same lock
//! wait for them, so that a drop of the guard before `try_lock` frees the lock.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures_util::future::join_all;
use smallvec::SmallVec;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use super::BoxFuture;
use crate::{hash::HashMap, sync::lock};

/// Tokens of releases, each cancelled when its release is done.
type Pending = SmallVec<[CancellationToken; 1]>;

/// The releases of dropped guards, by lock.
#[derive(Debug, Default)]
pub(super) struct PendingReleases {
    pending: Mutex<HashMap<Arc<str>, Pending>>,
    /// The number of pending releases. It is usually zero, and then no operation takes the mutex
    /// above.
    count: AtomicUsize,
}

/// The release of one dropped guard. Its drop marks the release as done.
#[derive(Debug)]
pub(super) struct PendingRelease {
    guards: Arc<PendingReleases>,
    name: Arc<str>,
    done: CancellationToken,
}

impl PendingReleases {
    /// Adds a dropped guard of the lock `name`.
    pub(super) fn add(self: &Arc<Self>, name: &Arc<str>) -> PendingRelease {
        let done = CancellationToken::new();
        let mut pending = lock(&self.pending);
        pending.entry(name.clone()).or_default().push(done.clone());
        self.count.fetch_add(1, Ordering::Relaxed);
        drop(pending);
        PendingRelease {
            guards: self.clone(),
            name: name.clone(),
            done,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Completes when every guard of the lock `name` that was dropped before this call is released, or at `until`: an owner
    /// with a future that is never polled delays its own releases, and must not stop other owners.
    ///
    /// Returns whether they are released. `None` if there are none, which is the usual case; boxed, because every waiting task stores
    /// this future.
    pub(super) fn wait_for(&self, name: &str, until: Instant) -> Option<BoxFuture<bool>> {
        if self.is_empty() {
            return None;
        }
        let pending = lock(&self.pending).get(name).cloned()?;
        let all = async move { join_all(pending.iter().map(CancellationToken::cancelled)).await };
        let released = async move { timeout_at(until, all).await.is_ok() };
        Some(Box::pin(released))
    }
}

impl Drop for PendingRelease {
    fn drop(&mut self) {
        self.done.cancel();
        let mut pending = lock(&self.guards.pending);
        self.guards.count.fetch_sub(1, Ordering::Relaxed);
        if let Some(of_lock) = pending.get_mut(&self.name) {
            of_lock.retain(|token| !token.is_cancelled());
            if of_lock.is_empty() {
                pending.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    fn long() -> Instant {
        Instant::now() + Duration::from_secs(3_600)
    }

    #[tokio::test(start_paused = true)]
    async fn operation_waits_for_guards_dropped_before_it_and_no_later_ones() {
        let guards = Arc::<PendingReleases>::default();
        let (name, other): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        assert!(guards.wait_for("a", long()).is_none());
        let (first, second) = (guards.add(&name), guards.add(&name));
        assert!(guards.wait_for("b", long()).is_none());
        let mut operation = guards.wait_for("a", long()).expect("two are pending");
        assert_eq!((&mut operation).now_or_never(), None);
        let later = (guards.add(&name), guards.add(&other));
        drop(second);
        assert_eq!((&mut operation).now_or_never(), None);
        drop(first);
        assert_eq!((&mut operation).now_or_never(), Some(true));
        drop(later);
        assert!(lock(&guards.pending).is_empty());
        assert_eq!(guards.count.load(Ordering::Relaxed), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn release_that_is_never_done_stops_an_operation_for_a_bounded_time() {
        let guards = Arc::<PendingReleases>::default();
        let _never = guards.add(&"a".into());
        let from = tokio::time::Instant::now();
        let released = guards.wait_for("a", from + Duration::from_secs(3));
        assert!(!released.expect("one is pending").await);
        assert_eq!(from.elapsed(), Duration::from_secs(3));
    }
}
