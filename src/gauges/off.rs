//! The gauges without the feature `metrics`: nothing.

use std::time::Duration;

use tokio::time::Instant;

use super::{Outcome, RenewalEnd, WakeUp};
use crate::{error::LostReason, wire::KindName};

pub(crate) const ON: bool = false;

pub(crate) struct Gauges;

impl Gauges {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn waits(&self, _: KindName) {}

    pub(crate) fn waits_no_more(&self, _: KindName) {}

    pub(crate) fn waiter(&self, _: KindName) -> Option<Waiter> {
        None
    }

    pub(crate) fn acquisition(&self, _: KindName, _: Outcome, _after: Duration) {}

    pub(crate) fn holds(&self, _: KindName, _since: Instant) -> Option<Holder> {
        None
    }

    pub(crate) fn handed_off(&self, _: KindName) {}

    pub(crate) fn lost(&self, _: KindName, _: LostReason) {}

    pub(crate) fn renewal(&self, _: RenewalEnd) {}

    pub(crate) fn woken(&self, _: WakeUp, _waiters: usize) {}
}

pub(crate) enum Waiter {}

pub(crate) enum Holder {}

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

    pub(crate) fn lost(&self) {}

    pub(crate) fn failed(&self) {}

    pub(crate) fn again(&self) {}
}
