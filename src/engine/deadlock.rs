//! Says so when a client seems to wait for itself.

use std::{sync::Arc, time::Duration};

use super::Engine;

impl Engine {
    /// Looks at those who wait, for as long as it is polled.
    pub(super) async fn look_for_deadlocks(self: &Arc<Self>) {
        let Some(longest) = self.config.deadlock_warning else {
            return std::future::pending().await;
        };
        loop {
            tokio::select! {
                () = self.wakeups.awaited() => {}
                () = self.crowds.awaited() => {}
            }
            tokio::time::sleep(longest).await;
            self.warn_of_deadlocks(longest);
        }
    }

    /// Whoever has held a lock for long, while another owner of this client waited for it, may be waiting for that one.
    fn warn_of_deadlocks(&self, longest: Duration) {
        let mut waiting = self.waiting_here(longest);
        waiting.extend(self.wakeups.waiting_for(longest));
        for (name, waiter) in waiting {
            for holder in self.slots.tenures(Some(&name)) {
                let (owner, since) = (holder.owner().owner(), holder.since);
                if owner != waiter
                    && since.elapsed() >= longest
                    && holder.live_count() > 0
                    && holder.suspect()
                    && let Some(untold) = self.lines.deadlocks.may_tell()
                {
                    tracing::warn!(
                        %name, holder = %owner, %waiter, untold,
                        "a task has waited for {longest:?} for a lock that another owner of this client holds; if the \
                         holder waits for that task, neither goes on: run what it spawns by owner.spawn or owner.scope"
                    );
                }
            }
        }
    }
}
