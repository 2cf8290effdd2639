//! Log lines about long waits: the waiter, the holder, and whether a client seems to wait for
//! itself.

use std::{collections::HashMap, pin::Pin, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Engine, local_wait::Signal, synchronizers, time_limits::LOOK_INTERVAL};
use crate::{
    gauges::{self, Oldest},
    owner::Owner,
    wire::{KindName, LockSpec},
};

/// The most waits that one check logs: each of them costs a request.
const MOST_LOGGED: usize = 10;

/// The longest wait for a lock in a local queue or a wake-up queue, or at a semaphore or a latch.
struct LongWait {
    since: Instant,
    at: Awaited,
}

enum Awaited {
    Lock { spec: Arc<LockSpec>, waiter: Owner },
    Synchronizer(synchronizers::LongWait),
}

/// The logged waits: the start of the wait, and its duration at the next log line.
type LoggedWaits = HashMap<WaitKey, (Instant, Duration)>;

/// A name, and whether it is that of a lock.
type WaitKey = (Arc<str>, bool);

impl LongWait {
    fn key(&self) -> WaitKey {
        match &self.at {
            Awaited::Lock { spec, .. } => (spec.name.clone(), true),
            Awaited::Synchronizer(wait) => (wait.spec.name.clone(), false),
        }
    }

    /// The age of a wait for a lock.
    fn age(&self) -> Option<(KindName, &Arc<str>, Duration)> {
        let Awaited::Lock { spec, .. } = &self.at else {
            return None;
        };
        Some((spec.protocol.kind(), &spec.name, self.since.elapsed()))
    }
}

impl Engine {
    /// Checks the waiters, as long as it is polled.
    pub(super) async fn watch_long_waits(self: &Arc<Self>) {
        let (suspicious, slow) = (self.config.deadlock_warning, self.config.slow_wait);
        let for_gauges = gauges::ON.then_some(LOOK_INTERVAL);
        let periods = [suspicious, slow, for_gauges];
        let Some(period) = periods.into_iter().flatten().min() else {
            return std::future::pending().await;
        };
        let mut logged = LoggedWaits::new();
        let mut oldest = Oldest::of_waits(self.config.lock_name_label);
        let mut is_shown = false;
        loop {
            // The gauges are told of the end of the waits that they show.
            if !is_shown {
                tokio::select! {
                    () = self.wakeups.awaited() => {}
                    () = self.contended.awaited() => {}
                    () = self.awaited_synchronizers() => {}
                }
            }
            tokio::time::sleep(period).await;
            let waits = self.waits(period);
            is_shown = gauges::ON && !waits.is_empty();
            oldest.show(waits.iter().filter_map(LongWait::age));
            if let Some(longest) = suspicious {
                self.warn_of_deadlocks(&waits, longest);
            }
            if let Some(longest) = slow {
                logged.retain(|key, (since, _)| {
                    let lasts = |wait: &LongWait| wait.since == *since && wait.key() == *key;
                    waits.iter().any(lasts)
                });
                self.warn_of_slow_waits(waits, longest, &mut logged).await;
            }
        }
    }

    /// The longest wait for each lock, semaphore and latch that has lasted for `least`.
    fn waits(&self, least: Duration) -> Vec<LongWait> {
        let lasts = |signal: &Signal| signal.since.elapsed() >= least;
        let wait = |spec: &Arc<LockSpec>, signal: &Signal| LongWait {
            since: signal.since,
            at: Awaited::Lock {
                spec: spec.clone(),
                waiter: signal.owner,
            },
        };
        let mut waits = self.owners.locals(|local| {
            let signal = local.foremost().filter(|signal| lasts(signal))?;
            Some(wait(&local.spec, &signal))
        });
        self.wakeups.foremost(|spec, signal| {
            if lasts(signal) {
                waits.push(wait(spec, signal));
            }
        });
        let of_synchronizers = self.long_waits_at_synchronizers(least).into_iter();
        waits.extend(of_synchronizers.map(|wait| LongWait {
            since: wait.since,
            at: Awaited::Synchronizer(wait),
        }));
        waits
    }

    /// Logs holders that may be waiting for a task that has waited for them for long.
    fn warn_of_deadlocks(&self, waits: &[LongWait], longest: Duration) {
        let mut at_synchronizers = Vec::new();
        for wait in waits.iter().filter(|wait| wait.since.elapsed() >= longest) {
            match &wait.at {
                Awaited::Lock { spec, waiter } => self.warn_of_own_holders(spec, *waiter, longest),
                Awaited::Synchronizer(wait) => at_synchronizers.push(wait),
            }
        }
        self.warn_of_stuck_permits(&at_synchronizers, longest);
    }

    /// Logs holders of a lock that another owner of this client has waited for for long: the holder
    /// may be waiting for that owner.
    fn warn_of_own_holders(&self, spec: &LockSpec, waiter: Owner, longest: Duration) {
        let name = &spec.name;
        for holder in self.owners.tenures(Some(name)) {
            let owners = holder.live_owners();
            if let Some((owner, _)) = owners.iter().find(|(owner, _)| *owner != waiter)
                && holder.since.elapsed() >= longest
                && holder.mark_suspected()
                && let Some(suppressed) = self.log_limits.deadlocks.may_log()
            {
                tracing::warn!(
                    %name, holder = %owner, %waiter, suppressed,
                    "a task has waited for {longest:?} for a lock that another owner of this client holds; if the \
                     holder waits for that task, neither goes on: run what it spawns by owner.spawn or owner.scope (the time is \
                     Config::deadlock_warning)"
                );
            }
        }
    }

    /// Logs a wait when it has lasted for `longest`, and each time that its duration has doubled
    /// since.
    async fn warn_of_slow_waits(
        self: &Arc<Self>,
        mut waits: Vec<LongWait>,
        longest: Duration,
        logged: &mut LoggedWaits,
    ) {
        // Sorted, so that of several waits at one name the longest is logged.
        waits.sort_by_key(|wait| wait.since);
        let mut count = 0;
        for wait in waits {
            let (key, waited) = (wait.key(), wait.since.elapsed());
            let next = logged.get(&key).map_or(longest, |(_, next)| *next);
            if waited < next || count == MOST_LOGGED {
                continue;
            }
            logged.insert(key, (wait.since, waited * 2));
            let Some(suppressed) = self.log_limits.slow_waits.may_log() else {
                continue;
            };
            count += 1;
            match &wait.at {
                Awaited::Lock { spec, waiter } => {
                    let (name, holders) = (&spec.name, self.shown_holders(spec).await);
                    tracing::warn!(
                        name: "lock.waiting",
                        %name, %waiter, ?waited, holders, suppressed,
                        "a task waits for a lock"
                    );
                }
                Awaited::Synchronizer(wait) => {
                    Box::pin(self.log_slow_wait_at(wait, suppressed)).await;
                }
            }
        }
    }

    /// The holders, for a log line.
    fn shown_holders<'a>(
        self: &'a Arc<Self>,
        spec: &'a LockSpec,
    ) -> Pin<Box<dyn Future<Output = String> + Send + 'a>> {
        Box::pin(async move {
            match self.holders(spec).await {
                Ok(holders) if holders.is_empty() => "none now".into(),
                Ok(holders) => {
                    let shown: Vec<_> = holders.iter().take(3).map(ToString::to_string).collect();
                    let more = match holders.len() - shown.len() {
                        0 => String::new(),
                        more => format!("; {more} more"),
                    };
                    format!("{}{more}", shown.join("; "))
                }
                Err(error) => format!("not known: {error}"),
            }
        })
    }
}
