//! The gauges without the feature `metrics`: nothing.

use std::time::Duration;

use super::{Outcome, RenewalEnd, WakeUp};
use crate::{error::LostReason, wire::KindName};

pub(crate) const ON: bool = false;

pub(crate) struct Gauges;

impl Gauges {
    pub(crate) fn new() -> Self {
        Self
    }

    pub(crate) fn begins(&self, _: KindName, _waits: bool) {}

    pub(crate) fn ends(&self, _: KindName, _waits: bool, _: Outcome, _after: Duration) {}

    pub(crate) fn holds(&self, _: KindName) -> Option<Holder> {
        None
    }

    pub(crate) fn handed_off(&self, _: KindName) {}

    pub(crate) fn lost(&self, _: KindName, _: LostReason) {}

    pub(crate) fn renewal(&self, _: RenewalEnd) {}

    pub(crate) fn woken(&self, _: WakeUp, _waiters: usize) {}
}

pub(crate) enum Holder {}

pub(crate) fn batch(_operations: usize) {}

pub(crate) struct Connections;

impl Connections {
    pub(crate) fn new(_purpose: &'static str) -> Self {
        Self
    }

    pub(crate) fn lost(&self) {}

    pub(crate) fn failed(&self) {}

    pub(crate) fn again(&self) {}
}
