//! What operators see of acquisitions and holds: gauges, and the spans `lock.acquire` and `lock.hold`.

use tokio::time::Instant;
use tracing::{Span, field};

use super::{Engine, hold_guard::HoldGuard, request::AcquireRequest};
use crate::{
    error::Error,
    gauges::{self, Holder, Loss, Outcome},
    sync::{Mutex, lock},
    wire::LockSpec,
};

/// An acquisition that is counted or traced. Dropped before it has ended, it was cancelled.
pub(crate) struct Acquisition<'a> {
    engine: &'a Engine,
    spec: &'a LockSpec,
    span: Option<Span>,
    began: Instant,
    ended: Option<Instant>,
    outcome: Outcome,
}

impl Acquisition<'_> {
    /// It has ended so.
    pub(crate) fn ended(&mut self, done: &Result<Option<HoldGuard>, Error>) {
        self.outcome = match done {
            Ok(Some(_)) => Outcome::Acquired,
            Ok(None) => Outcome::Busy,
            Err(Error::Unavailable { .. }) => Outcome::Unavailable,
            Err(_) => Outcome::Failed,
        };
        let Ok(Some(hold)) = done else { return };
        // The clock has been read already, unless this is a re-entry.
        let since = hold.tenure().since;
        self.ended = (since >= self.began).then_some(since);
        if self.span.is_some() {
            hold.tenure().seen().trace(self.spec);
        }
    }
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        let waited = self.ended.unwrap_or_else(Instant::now) - self.began;
        let gauges = &self.engine.gauges;
        gauges.acquisition(self.spec.protocol.kind(), self.outcome, waited);
        if let Some(span) = &self.span {
            span.record("outcome", self.outcome.label());
            span.record("waited", waited.as_secs_f64());
        }
    }
}

impl Engine {
    /// An acquisition begins, and ends with what [`Acquisition::ended`] is told. `None` where neither a gauge nor a subscriber sees it: then no
    /// clock is read and nothing is allocated.
    ///
    /// The span is not entered, which would make the future of every wait larger: no span begins inside.
    pub(crate) fn acquisition<'a>(
        &'a self,
        request: &'a AcquireRequest,
    ) -> Option<Box<Acquisition<'a>>> {
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
            Box::new(Acquisition {
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

/// What is seen of a tenure, until it ends.
#[derive(Default)]
pub(super) struct Seen(Mutex<Shown>);

#[derive(Default)]
struct Shown {
    is_over: bool,
    /// Dropped, it says that the tenure is over.
    holder: Option<Holder>,
    /// The span `lock.hold`.
    span: Option<Box<Span>>,
}

impl Seen {
    /// The tenure begins, unless this is a re-entry.
    pub(super) fn begin(&self, holder: impl FnOnce() -> Option<Holder>) {
        let mut shown = lock(&self.0);
        if !shown.is_over && shown.holder.is_none() {
            shown.holder = holder();
        }
    }

    /// Its span begins, unless an outer hold of the same tenure has one.
    fn trace(&self, spec: &LockSpec) {
        let mut shown = lock(&self.0);
        if !shown.is_over && shown.span.is_none() {
            let kind = spec.protocol.kind().as_str();
            let span =
                tracing::info_span!("lock.hold", name = %spec.name, kind, end = field::Empty);
            shown.span = Some(Box::new(span));
        }
    }

    pub(super) fn end(&self, end: End) {
        let mut shown = lock(&self.0);
        shown.is_over = true;
        let (_holder, span) = (shown.holder.take(), shown.span.take());
        drop(shown);
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
