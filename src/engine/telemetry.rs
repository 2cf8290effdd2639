//! Gauges and spans of acquisitions and holds, for operators. The spans are `lock.acquire` and
//! `lock.hold`.

use tokio::time::Instant;
use tracing::{Span, field};

use super::{Engine, hold_guard::HoldGuard, request::AcquireRequest};
use crate::{
    error::Error,
    gauges::{self, HolderGauge, Loss, Outcome},
    sync::{Mutex, lock},
    wire::LockSpec,
};

/// An acquisition that is counted or traced. A drop before [`finish`](Self::finish) counts as
/// cancelled.
pub(crate) struct AcquisitionTelemetry<'a> {
    engine: &'a Engine,
    spec: &'a LockSpec,
    span: Option<Span>,
    began: Instant,
    ended: Option<Instant>,
    outcome: Outcome,
}

impl AcquisitionTelemetry<'_> {
    /// Records how the acquisition ended.
    pub(crate) fn finish(&mut self, done: &Result<Option<HoldGuard>, Error>) {
        self.outcome = match done {
            Ok(Some(_)) => Outcome::Acquired,
            Ok(None) => Outcome::Busy,
            Err(Error::Unavailable { .. }) => Outcome::Unavailable,
            Err(_) => Outcome::Failed,
        };
        let Ok(Some(hold)) = done else { return };
        // The tenure has read the clock already, unless this is a re-entry.
        let since = hold.tenure().since;
        self.ended = (since >= self.began).then_some(since);
        if self.span.is_some() {
            hold.tenure().telemetry().trace(self.spec);
        }
    }
}

impl Drop for AcquisitionTelemetry<'_> {
    fn drop(&mut self) {
        let waited = self.ended.unwrap_or_else(Instant::now) - self.began;
        let gauges = &self.engine.gauges;
        gauges.record_acquisition(self.spec.protocol.kind(), self.outcome, waited);
        if let Some(span) = &self.span {
            span.record("outcome", self.outcome.label());
            span.record("waited", waited.as_secs_f64());
        }
    }
}

impl Engine {
    /// Begins an acquisition, which ends with [`AcquisitionTelemetry::finish`]. Returns `None`
    /// where neither a gauge nor a subscriber sees it: then no clock is read and nothing is
    /// allocated.
    ///
    /// The span is not entered: that would make the future of every wait larger, and no span begins
    /// inside.
    pub(crate) fn acquisition<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Option<Box<AcquisitionTelemetry<'a>>> {
        let spec = &*request.spec;
        let span = tracing::info_span!(
            "lock.acquire",
            name = %spec.name,
            kind = spec.protocol.kind().as_str(),
            outcome = field::Empty,
            waited = field::Empty,
        );
        let span = (!span.is_disabled()).then_some(span);
        (gauges::ON || span.is_some()).then(|| {
            Box::new(AcquisitionTelemetry {
                engine: self,
                spec,
                span,
                began: Instant::now(),
                ended: None,
                outcome: Outcome::Cancelled,
            })
        })
    }
}

/// The gauge and the span of a tenure, until it ends.
#[derive(Default)]
pub(super) struct TenureTelemetry(Mutex<State>);

#[derive(Default)]
struct State {
    is_over: bool,
    /// Its drop ends the tenure in the gauge.
    holder: Option<HolderGauge>,
    /// The span `lock.hold`.
    span: Option<Box<Span>>,
}

impl TenureTelemetry {
    /// Begins the gauge of the tenure, unless this is a re-entry.
    pub(super) fn begin(&self, holder: impl FnOnce() -> Option<HolderGauge>) {
        let mut state = lock(&self.0);
        if !state.is_over && state.holder.is_none() {
            state.holder = holder();
        }
    }

    /// Begins the span, unless an outer hold of the same tenure has one.
    fn trace(&self, spec: &LockSpec) {
        let mut state = lock(&self.0);
        if !state.is_over && state.span.is_none() {
            let kind = spec.protocol.kind().as_str();
            let span =
                tracing::info_span!("lock.hold", name = %spec.name, kind, end = field::Empty);
            state.span = Some(Box::new(span));
        }
    }

    pub(super) fn end(&self, end: End) {
        let mut state = lock(&self.0);
        state.is_over = true;
        let (_holder, span) = (state.holder.take(), state.span.take());
        drop(state);
        if let Some(span) = span {
            span.record("end", end.label());
        }
    }
}

/// How a tenure ends.
#[derive(Debug, Clone, Copy)]
pub(super) enum End {
    Released,
    HandedOff,
    Lost(Loss),
}

impl End {
    fn label(self) -> &'static str {
        match self {
            End::Released => "released",
            End::HandedOff => "handed-off",
            End::Lost(loss) => loss.label(),
        }
    }
}
