//! The gauges, by the facade `metrics`.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

use super::{Loss, Outcome, RenewalEnd, WakeUp};
use crate::{error::LostReason, wire::KindName};

/// Whether anything is counted.
pub(crate) const ON: bool = true;

const ACQUISITIONS: &str = "redisson_lock_acquisitions_total";
const WAIT: &str = "redisson_lock_wait_seconds";
const WAITERS: &str = "redisson_lock_waiters";
const HOLDERS: &str = "redisson_lock_holders";
const HOLD: &str = "redisson_lock_hold_seconds";
const HAND_OFFS: &str = "redisson_lock_hand_offs_total";
const LOST: &str = "redisson_lock_lost_total";
const RENEWALS: &str = "redisson_lock_renewals_total";
const WAKE_UPS: &str = "redisson_lock_wake_ups_total";
const BATCH: &str = "redisson_lock_batch_operations";
const DISCONNECTIONS: &str = "redisson_lock_disconnections_total";
const FAILED_CONNECTS: &str = "redisson_lock_failed_connects_total";
const RECONNECTIONS: &str = "redisson_lock_reconnections_total";

/// How many kinds there are, by the last of them.
const KINDS: usize = KindName::Simple as usize + 1;

/// The gauges of one client. The recorder that is installed when the client is made receives them.
///
/// Handles are kept: looking one up costs more than what it counts, and a pair of lock and unlock needs five.
pub(crate) struct Gauges {
    kinds: [OnceLock<Arc<OfKind>>; KINDS],
    renewals: [Counter; RenewalEnd::ALL.len()],
    wake_ups: [Counter; WakeUp::ALL.len()],
}

struct OfKind {
    acquisitions: [Counter; Outcome::ALL.len()],
    wait: [Histogram; Outcome::ALL.len()],
    waiters: Gauge,
    holders: Gauge,
    hold: Histogram,
    hand_offs: Counter,
    lost: [Counter; Loss::ALL.len()],
}

impl OfKind {
    fn new(kind: KindName) -> Self {
        let kind = kind.as_str();
        Self {
            acquisitions: Outcome::ALL.map(
                |outcome| counter!(ACQUISITIONS, "kind" => kind, "outcome" => outcome.label()),
            ),
            wait: Outcome::ALL
                .map(|outcome| histogram!(WAIT, "kind" => kind, "outcome" => outcome.label())),
            waiters: gauge!(WAITERS, "kind" => kind),
            holders: gauge!(HOLDERS, "kind" => kind),
            hold: histogram!(HOLD, "kind" => kind),
            hand_offs: counter!(HAND_OFFS, "kind" => kind),
            lost: Loss::ALL
                .map(|reason| counter!(LOST, "kind" => kind, "reason" => reason.label())),
        }
    }
}

impl Gauges {
    pub(crate) fn new() -> Self {
        Self {
            kinds: Default::default(),
            renewals: RenewalEnd::ALL
                .map(|outcome| counter!(RENEWALS, "outcome" => outcome.label())),
            wake_ups: WakeUp::ALL.map(|cause| counter!(WAKE_UPS, "cause" => cause.label())),
        }
    }

    fn of(&self, kind: KindName) -> &Arc<OfKind> {
        self.kinds[kind as usize].get_or_init(|| Arc::new(OfKind::new(kind)))
    }

    /// Counts a task that waits for a lock.
    pub(crate) fn add_waiter(&self, kind: KindName) {
        self.of(kind).waiters.increment(1.0);
    }

    pub(crate) fn remove_waiter(&self, kind: KindName) {
        self.of(kind).waiters.decrement(1.0);
    }

    /// The same, until what is returned is dropped.
    pub(crate) fn waiter(&self, kind: KindName) -> Option<WaiterGauge> {
        self.add_waiter(kind);
        Some(WaiterGauge(self.of(kind).clone()))
    }

    /// Records the end of an acquisition.
    pub(crate) fn record_acquisition(&self, kind: KindName, outcome: Outcome, after: Duration) {
        let of = self.of(kind);
        of.acquisitions[outcome as usize].increment(1);
        of.wait[outcome as usize].record(after);
    }

    /// Counts an owner that has a lock, until what is returned is dropped.
    pub(crate) fn holder(&self, kind: KindName, since: Instant) -> Option<HolderGauge> {
        let of = self.of(kind).clone();
        of.holders.increment(1.0);
        Some(HolderGauge { of, since })
    }

    pub(crate) fn record_hand_off(&self, kind: KindName) {
        self.of(kind).hand_offs.increment(1);
    }

    pub(crate) fn record_loss(&self, kind: KindName, reason: LostReason) {
        self.of(kind).lost[Loss::from(reason) as usize].increment(1);
    }

    pub(crate) fn record_renewal(&self, outcome: RenewalEnd) {
        self.renewals[outcome as usize].increment(1);
    }

    pub(crate) fn record_wake_ups(&self, cause: WakeUp, waiters: usize) {
        self.wake_ups[cause as usize].increment(waiters as u64);
    }
}

/// A task that waits for a lock, until this is dropped.
pub(crate) struct WaiterGauge(Arc<OfKind>);

impl Drop for WaiterGauge {
    fn drop(&mut self) {
        self.0.waiters.decrement(1.0);
    }
}

/// An owner that has a lock, until this is dropped.
pub(crate) struct HolderGauge {
    of: Arc<OfKind>,
    since: Instant,
}

impl Drop for HolderGauge {
    fn drop(&mut self) {
        self.of.holders.decrement(1.0);
        self.of.hold.record(self.since.elapsed());
    }
}

/// How many operations travel in a call.
pub(crate) struct Batches(Histogram);

impl Batches {
    pub(crate) fn new() -> Self {
        Self(histogram!(BATCH))
    }

    pub(crate) fn sent(&self, operations: usize) {
        self.0.record(operations as f64);
    }
}

/// What becomes of the connections of one purpose.
pub(crate) struct Connections {
    lost: Counter,
    failed: Counter,
    again: Counter,
}

impl Connections {
    pub(crate) fn new(purpose: &'static str) -> Self {
        Self {
            lost: counter!(DISCONNECTIONS, "purpose" => purpose),
            failed: counter!(FAILED_CONNECTS, "purpose" => purpose),
            again: counter!(RECONNECTIONS, "purpose" => purpose),
        }
    }

    /// Records the end of a connection.
    pub(crate) fn record_loss(&self) {
        self.lost.increment(1);
    }

    /// Records a connection that could not be made.
    pub(crate) fn record_failure(&self) {
        self.failed.increment(1);
    }

    /// Records that, after one of these, a connection has proved itself.
    pub(crate) fn record_recovery(&self) {
        self.again.increment(1);
    }
}
