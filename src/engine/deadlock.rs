//! Says so when a client seems to wait for itself.

use std::sync::Arc;

use tokio::time::{Instant, sleep_until};

use super::Engine;

impl Engine {
    /// Completes when those who wait are to be looked at, if anybody waits; `at` is when.
    pub(super) fn next_look(&self, at: &mut Option<Instant>) -> impl Future<Output = ()> + use<> {
        let longest = self.config.deadlock_warning;
        *at = longest
            .filter(|_| self.wakeups.is_awaited())
            .map(|longest| at.unwrap_or_else(|| Instant::now() + longest));
        let at = *at;
        async move {
            match at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        }
    }

    /// Whoever has held a lock for long, while another owner of this client waited for it, may be waiting for that one.
    pub(super) fn warn_of_deadlocks(self: &Arc<Self>) {
        let Some(longest) = self.config.deadlock_warning else {
            return;
        };
        for (name, waiter) in self.wakeups.waiting_for(longest) {
            for holder in self.slots.tenures(Some(&name)) {
                let (owner, since) = (holder.slot().owner_id().owner(), holder.since);
                if owner != waiter
                    && since.elapsed() >= longest
                    && holder.live_count() > 0
                    && holder.suspect()
                {
                    tracing::warn!(
                        %name, holder = %owner, %waiter,
                        "a task has waited for {longest:?} for a lock that another owner of this client holds; if the \
                         holder waits for that task, neither goes on: run what it spawns by owner.spawn or owner.scope"
                    );
                }
            }
        }
    }
}
