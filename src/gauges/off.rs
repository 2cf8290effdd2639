//! The gauges without the feature `metrics`: empty functions.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{Outcome, RenewalEnd, WakeUp};
use crate::{error::LostReason, wire::KindName};

pub(crate) const ON: bool = false;

pub(crate) struct Gauges;

impl Gauges {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn add_waiter(&self, _: KindName) {}

    pub(crate) fn remove_waiter(&self, _: KindName) {}

    pub(crate) fn waiter(&self, _: KindName) -> Option<WaiterGauge> {
        None
    }

    pub(crate) fn record_acquisition(&self, _: KindName, _: Outcome, _after: Duration) {}

    pub(crate) fn holder(&self, _: KindName, _since: Instant) -> Option<HolderGauge> {
        None
    }

    pub(crate) fn record_hand_off(&self, _: KindName) {}

    pub(crate) fn record_loss(&self, _: KindName, _: LostReason) {}

    pub(crate) fn record_renewal(&self, _: RenewalEnd) {}

    pub(crate) fn record_wake_ups(&self, _: WakeUp, _waiters: usize) {}
}

pub(crate) enum WaiterGauge {}

pub(crate) enum HolderGauge {}

pub(crate) struct Oldest;

impl Oldest {
    pub(crate) fn of_holds(_by_name: bool) -> Self {
        Self
    }

    pub(crate) fn of_waits(_by_name: bool) -> Self {
        Self
    }

    pub(crate) fn show<'a>(&mut self, _: impl Iterator<Item = (KindName, &'a Arc<str>, Duration)>) {
    }
}

pub(crate) struct Batches;

impl Batches {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn sent(&self, _operations: usize) {}
}

pub(crate) struct Connections;

impl Connections {
    pub(crate) fn new(_purpose: &'static str) -> Self {
        Self
    }

    pub(crate) fn record_loss(&self) {}

    pub(crate) fn record_failure(&self) {}

    pub(crate) fn record_recovery(&self) {}
}
