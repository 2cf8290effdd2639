//! Looks at the holds of this client: the gauge of the longest ones, and log lines about long ones.
//!
//! The watchdog's task looks, and only while the client holds a lock: a client without holds has no timer for it. Without the gauges
//! and [`Config::slow_hold`](crate::Config::slow_hold) there is no look at all, and neither costs an acquisition anything.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Engine, tenure::Tenure, time_limits::LOOK_INTERVAL};
use crate::{
    config::Config,
    gauges::{self, Oldest},
    owner::OwnerId,
};

/// What the looks at the holds have found so far.
pub(super) struct HoldLooks {
    /// `None` where neither a gauge nor a setting asks for looks.
    interval: Option<Duration>,
    next: Instant,
    /// The last look has found holds: the next one tells the gauges that they are over.
    found: bool,
    oldest: Oldest,
    /// The numbers of the tenures that are logged and not over.
    logged: BTreeSet<u64>,
}

impl HoldLooks {
    pub(super) fn new(config: &Config) -> Self {
        let for_gauges = gauges::ON.then_some(LOOK_INTERVAL);
        // A log line comes soon after its time, however long that is.
        let for_lines = config.slow_hold.map(|longest| longest.min(LOOK_INTERVAL));
        Self {
            interval: for_gauges.into_iter().chain(for_lines).min(),
            next: Instant::now(),
            found: false,
            oldest: Oldest::of_holds(config.lock_name_label),
            logged: BTreeSet::new(),
        }
    }

    /// The time of the next look, by whether the client holds any lock.
    pub(super) fn next(&self, is_holding: bool) -> Option<Instant> {
        (self.interval.is_some() && (is_holding || self.found)).then_some(self.next)
    }

    /// Returns whether a look is due at `now`.
    fn begin(&mut self, now: Instant) -> bool {
        let Some(interval) = self.interval.filter(|_| self.next <= now) else {
            return false;
        };
        self.next = now + interval;
        true
    }
}

impl Engine {
    /// Looks at the holds, if that is due.
    pub(super) fn look_at_holds(&self, looks: &mut HoldLooks) {
        let now = Instant::now();
        if !looks.begin(now) {
            return;
        }
        let tenures = self.live_tenures(now);
        looks.found = !tenures.is_empty();
        let ages = tenures.iter().map(|tenure| {
            let kind = tenure.spec.protocol.kind();
            (kind, &tenure.spec.name, now - tenure.since)
        });
        looks.oldest.show(ages);
        if let Some(longest) = self.config.slow_hold {
            self.warn_of_slow_holds(&tenures, longest, now, &mut looks.logged);
        }
    }

    /// Logs each hold once that has lasted for `longest`.
    fn warn_of_slow_holds(
        &self,
        tenures: &[Arc<Tenure>],
        longest: Duration,
        now: Instant,
        logged: &mut BTreeSet<u64>,
    ) {
        let slow = |tenure: &&Arc<Tenure>| now - tenure.since >= longest;
        let mut lasting = BTreeSet::new();
        for tenure in tenures.iter().filter(slow) {
            lasting.insert(tenure.number);
            if logged.contains(&tenure.number) {
                continue;
            }
            let (Some((owner, _)), Some(suppressed)) = (
                tenure.live_owners().first().copied(),
                self.log_limits.slow_holds.may_log(),
            ) else {
                continue;
            };
            let (name, held) = (&tenure.spec.name, now - tenure.since);
            let owner = OwnerId::new(self.id, owner);
            tracing::warn!(
                name: "lock.held",
                %name, %owner, ?held, suppressed,
                "a task holds a lock for long"
            );
        }
        *logged = lasting;
    }
}
