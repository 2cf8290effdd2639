//! The one loop that takes a lock, for every kind: try, subscribe, try again, wait, try again.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Engine,
    ask::{Ask, Limit},
    attempt::{Tried, Try},
    line::InLine,
    offer::Along,
    pause::Pause,
    release::Held,
    runtime,
};
use crate::error::Error;

/// How long after its caller's limit an answer that is on its way is still waited for: a lock that was granted at the
/// last moment is not reported as busy (P-A12).
const GRACE: Duration = Duration::from_millis(100);

/// The tries of one wait, as a queue on the server is told of them.
struct Tries {
    last: Option<Instant>,
    nudged: Option<Instant>,
    /// How often the connection had been replaced at the last try.
    reconnections: u64,
}

impl Tries {
    fn new(engine: &Engine) -> Self {
        Self {
            last: None,
            nudged: None,
            reconnections: engine.wakeups.reconnections(),
        }
    }

    /// The next try begins. The one whose turn it is is told so once per poll floor.
    fn next(&mut self, engine: &Engine) -> Try {
        let now = Instant::now();
        let nudge = self
            .nudged
            .is_none_or(|last| now >= last + engine.config.poll_floor);
        if nudge {
            self.nudged = Some(now);
        }
        let reconnections = engine.wakeups.reconnections();
        // On another connection there may be another server, which knows nothing of the last try.
        let last = self.last.replace(now);
        let last = last.filter(|_| self.reconnections == reconnections);
        self.reconnections = reconnections;
        Try { last, nudge }
    }
}

impl Engine {
    /// Takes the lock, or answers `None` when it was still taken at the limit.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future of an async fn has its arguments twice, and everybody holds it who waits"
    )]
    pub(crate) fn acquire<'a>(
        self: &'a Arc<Self>,
        ask: &'a Ask,
        limit: Limit,
    ) -> impl Future<Output = Result<Option<Held>, Error>> + Send + use<'a> {
        async move {
            runtime::check()?;
            let waits = !matches!(limit, Limit::Once);
            let until = limit.earlier(Instant::now() + self.config.command_wait);
            if let Some(released) = self.dropped.released(&ask.place.name, until)
                && !released.await
                && !waits
            {
                let reason = "the release of a dropped guard was not answered in time";
                return Err(self.unavailable(&ask.place, reason));
            }
            if waits && let Some(left) = self.leaves_to_pollers(ask, limit) {
                left.await;
            }
            let in_line = waits.then(|| InLine::enter(self, ask)).flatten();
            let mut pause = waits.then(|| Pause::before(self, ask)).flatten();
            let mut tries = Tries::new(self);
            let mut rests = true;
            let mut was_busy = false;
            loop {
                if let Some(pause) = &mut pause
                    && rests
                {
                    // A client that closes tells those who wait. Who begins to after that sees it before, the others behind.
                    let is_time = self.is_closed() || pause.over(self, limit).await;
                    if self.is_closed() {
                        return Err(Error::Closed);
                    }
                    if !is_time {
                        if tries.last.is_none() && !self.lanes.is_ready(&ask.place) {
                            let reason = "there is no connection, and the lock was not asked for";
                            return Err(self.unavailable(&ask.place, reason));
                        }
                        return Ok(None);
                    }
                }
                let along = pause.as_ref().map_or(Along::Nothing, Pause::trying);
                let next = waits.then(|| tries.next(self));
                let tried = self.try_until(ask, self.patience(limit), next, along);
                match (tried.await?, &mut pause) {
                    (Tried::Granted(held), pause) => {
                        match pause {
                            Some(pause) => pause.granted(held.tenure().valid_until()),
                            None => self.entered(&held),
                        }
                        if let Some(in_line) = in_line {
                            in_line.served();
                        }
                        return Ok(Some(held));
                    }
                    (Tried::Busy { .. }, None) if !waits => return Ok(None),
                    (Tried::Busy { remaining }, None) => {
                        was_busy = true;
                        pause = Some(Pause::begin(self, ask, remaining));
                    }
                    (Tried::Busy { remaining }, Some(pause)) => {
                        was_busy = true;
                        rests = !pause.refused(remaining) || limit.is_over();
                    }
                    // It was busy when last heard of.
                    (Tried::Unanswered { .. }, Some(_)) if was_busy && limit.is_over() => {
                        return Ok(None);
                    }
                    (Tried::Unanswered { reason }, _) => {
                        return Err(self.unavailable(&ask.place, reason));
                    }
                }
            }
        }
    }

    /// A lock was taken without a wait. Another branch of the same task may wait for it.
    pub(super) fn entered(&self, held: &Held) {
        if self.wakeups.is_awaited() {
            let (place, slot) = (&held.tenure().place, held.tenure().slot());
            let listens = place.wire.listens_at(place, &slot.owner);
            self.wakeups.entered(&listens, slot.key().1.owner());
        }
    }

    /// Until when an answer is waited for: as long as the limit and our patience with an unreachable server allow.
    pub(super) fn patience(&self, limit: Limit) -> Instant {
        let now = Instant::now();
        match limit {
            Limit::Once => now + self.config.command_wait,
            Limit::Until(deadline) => {
                (deadline.max(now) + GRACE).min(now + self.config.outage_wait)
            }
            Limit::Never => now + self.config.outage_wait,
        }
    }
}
