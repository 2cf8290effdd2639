//! The gauges, by the facade `metrics`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ptr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};
use tokio::time::Instant;

use super::{Loss, Outcome, RenewalEnd, WakeUp};
use crate::{
    error::LostReason,
    sync::{Mutex, lock},
    wire::KindName,
};

/// Whether anything is counted.
pub(crate) const ON: bool = true;

const ACQUISITIONS: &str = "redisson_lock_acquisitions_total";
const WAIT: &str = "redisson_lock_wait_seconds";
const WAITERS: &str = "redisson_lock_waiters";
const HOLDERS: &str = "redisson_lock_holders";
const HOLD: &str = "redisson_lock_hold_seconds";
const OLDEST_HOLD: &str = "redisson_lock_oldest_hold_seconds";
const OLDEST_WAIT: &str = "redisson_lock_oldest_wait_seconds";
const HAND_OFFS: &str = "redisson_lock_hand_offs_total";
const LOST: &str = "redisson_lock_lost_total";
const RENEWALS: &str = "redisson_lock_renewals_total";
const WAKE_UPS: &str = "redisson_lock_wake_ups_total";
const BATCH: &str = "redisson_lock_batch_operations";
const DISCONNECTIONS: &str = "redisson_lock_disconnections_total";
const FAILED_CONNECTS: &str = "redisson_lock_failed_connects_total";
const RECONNECTIONS: &str = "redisson_lock_reconnections_total";

/// The number of kinds, from the last one.
const KINDS: usize = KindName::Simple as usize + 1;

/// The gauges of one client. They belong to the recorder that is installed when the client is created.
///
/// Keeps the handles: a look-up costs more than an update, and a pair of lock and unlock needs five.
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

/// Tells the recorder what each name counts. The sentences are those of docs/metrics.md.
fn describe() {
    describe_counter!(
        ACQUISITIONS,
        "Ended calls of lock, try_lock and try_lock_for"
    );
    describe_histogram!(WAIT, Unit::Seconds, "Time from such a call to its end");
    describe_gauge!(WAITERS, "Tasks that wait now for a held lock");
    describe_gauge!(
        HOLDERS,
        "Owners that hold a lock now; a re-entry does not count"
    );
    describe_histogram!(
        HOLD,
        Unit::Seconds,
        "Time from an owner's first hold to its last release, its hand-off or its loss"
    );
    describe_gauge!(
        OLDEST_HOLD,
        Unit::Seconds,
        "Age of the longest hold that lasts now, read every 5 s"
    );
    describe_gauge!(
        OLDEST_WAIT,
        Unit::Seconds,
        "Age of the longest wait that lasts now, from 5 s on"
    );
    describe_counter!(
        HAND_OFFS,
        "Hand-offs from one task of a client to the next, without a script"
    );
    describe_counter!(LOST, "Owners that lost a lock before they released it");
    describe_counter!(
        RENEWALS,
        "Renewals and failed verifications by the watchdog, one for each owner of a lock"
    );
    describe_counter!(WAKE_UPS, "Waiters that were woken to ask again");
    describe_histogram!(BATCH, "Operations that travel in one call of a script");
    describe_counter!(DISCONNECTIONS, "Connections that broke");
    describe_counter!(FAILED_CONNECTS, "Attempts to connect that failed");
    describe_counter!(
        RECONNECTIONS,
        "Outages that ended with a working connection"
    );
}

impl Gauges {
    pub(crate) fn new() -> Self {
        describe();
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

    /// Counts a task that waits for a held lock.
    pub(crate) fn add_waiter(&self, kind: KindName) {
        self.of(kind).waiters.increment(1.0);
    }

    pub(crate) fn remove_waiter(&self, kind: KindName) {
        self.of(kind).waiters.decrement(1.0);
    }

    /// As above, until the returned value is dropped.
    pub(crate) fn waiter(&self, kind: KindName) -> Option<WaiterGauge> {
        self.add_waiter(kind);
        Some(WaiterGauge(self.of(kind).clone()))
    }

    /// Counts an ended acquisition.
    pub(crate) fn record_acquisition(&self, kind: KindName, outcome: Outcome, after: Duration) {
        let of = self.of(kind);
        of.acquisitions[outcome as usize].increment(1);
        of.wait[outcome as usize].record(after);
    }

    /// Counts a holder until the returned value is dropped, and then records its time since `since`.
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

/// Counts a waiting task until it is dropped.
pub(crate) struct WaiterGauge(Arc<OfKind>);

impl Drop for WaiterGauge {
    fn drop(&mut self) {
        self.0.waiters.decrement(1.0);
    }
}

/// Counts a holder until it is dropped.
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

/// A series of a gauge of ages. Several recorders may be in one process, so their addresses tell them apart.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct AgeSeries {
    recorder: usize,
    gauge: &'static str,
    kind: KindName,
    /// The lock's name, if that is a label.
    name: Option<Arc<str>>,
}

impl AgeSeries {
    /// Shows the longest of `ages`.
    fn show(&self, ages: &Ages) {
        let (gauge, kind) = (self.gauge, self.kind.as_str());
        let gauge = match &self.name {
            Some(name) => gauge!(gauge, "kind" => kind, "name" => name.to_string()),
            None => gauge!(gauge, "kind" => kind),
        };
        gauge.set(ages.values().max().copied().unwrap_or_default());
    }
}

/// The age that each client shows.
type Ages = BTreeMap<u64, Duration>;

/// The ages of all clients: a gauge has one value, and the clients of a process share it.
static AGES: Mutex<BTreeMap<AgeSeries, Ages>> = Mutex::new(BTreeMap::new());
static CLIENTS: AtomicU64 = AtomicU64::new(0);

/// What a client shows of its longest holds, or of its longest waits.
pub(crate) struct Oldest {
    client: u64,
    gauge: &'static str,
    by_name: bool,
    shown: BTreeSet<AgeSeries>,
}

impl Oldest {
    pub(crate) fn of_holds(by_name: bool) -> Self {
        Self::new(OLDEST_HOLD, by_name)
    }

    pub(crate) fn of_waits(by_name: bool) -> Self {
        Self::new(OLDEST_WAIT, by_name)
    }

    fn new(gauge: &'static str, by_name: bool) -> Self {
        Self {
            client: CLIENTS.fetch_add(1, Ordering::Relaxed),
            gauge,
            by_name,
            shown: BTreeSet::new(),
        }
    }

    /// Shows the longest of the ages for each series, and none for the other series.
    pub(crate) fn show<'a>(
        &mut self,
        ages: impl Iterator<Item = (KindName, &'a Arc<str>, Duration)>,
    ) {
        let recorder = metrics::with_recorder(|recorder| ptr::from_ref(recorder).addr());
        let mut longest = BTreeMap::<AgeSeries, Duration>::new();
        for (kind, name, age) in ages {
            let series = AgeSeries {
                recorder,
                gauge: self.gauge,
                kind,
                name: self.by_name.then(|| name.clone()),
            };
            let longest = longest.entry(series).or_default();
            *longest = age.max(*longest);
        }
        let shown = longest.keys().cloned().collect();
        let before = std::mem::replace(&mut self.shown, shown);
        if before.is_empty() && longest.is_empty() {
            return;
        }
        let mut all = lock(&AGES);
        for (series, age) in longest {
            let ages = all.entry(series.clone()).or_default();
            ages.insert(self.client, age);
            series.show(ages);
        }
        for series in before.difference(&self.shown) {
            if let Some(ages) = all.get_mut(series) {
                ages.remove(&self.client);
                series.show(ages);
            }
        }
        all.retain(|_, ages| !ages.is_empty());
    }
}

impl Drop for Oldest {
    fn drop(&mut self) {
        self.show(std::iter::empty());
    }
}

/// The number of operations per call.
pub(crate) struct Batches(Histogram);

impl Batches {
    pub(crate) fn new() -> Self {
        Self(histogram!(BATCH))
    }

    pub(crate) fn sent(&self, operations: usize) {
        self.0.record(operations as f64);
    }
}

/// The counters of connections of one purpose.
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

    /// Counts a broken connection.
    pub(crate) fn record_loss(&self) {
        self.lost.increment(1);
    }

    /// Counts a failed attempt to connect.
    pub(crate) fn record_failure(&self) {
        self.failed.increment(1);
    }

    /// Counts the end of an outage: a connection works again.
    pub(crate) fn record_recovery(&self) {
        self.again.increment(1);
    }
}
