//! The plain semaphore: acquires permits, hands them off, and releases them.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{
    super::{Engine, detach::Caller, request::Deadline, runtime},
    operation::{GivenBack, unexpected_answer},
    remaining::Remaining,
    waiters::{Waiters, Wanted},
    waiting::AttemptOutcome,
};
use crate::{
    error::Error,
    wire::{
        reply::{Detail, Outcome},
        semaphore,
        sync_spec::{Attempt, SyncSpec},
    },
};

/// Permits of a semaphore. The drop hands them to waiters of this client within the hand-off
/// window, and releases the rest to the server.
pub(crate) struct PermitGuard {
    engine: Arc<Engine>,
    spec: Arc<SyncSpec>,
    permits: u32,
    /// Its number among the held permits.
    number: u64,
    /// The end of the hand-off window: other clients may wait too.
    hand_off_until: Instant,
    /// A shutdown may wait for it.
    _holder: TaskTrackerToken,
}

impl PermitGuard {
    pub(crate) fn permits(&self) -> u32 {
        self.permits
    }

    pub(crate) fn spec(&self) -> &SyncSpec {
        &self.spec
    }

    /// Leaves the permits taken.
    pub(crate) fn leak(mut self) {
        self.take_permits();
    }

    fn take_permits(&mut self) -> u32 {
        if self.permits > 0 {
            self.engine.synchronizers.held.remove(self.number);
        }
        std::mem::take(&mut self.permits)
    }

    /// Hands permits to waiters of this client. Returns the number that is left for the server.
    fn hand_off(&mut self) -> u32 {
        let permits = self.take_permits();
        let now = Instant::now();
        if permits == 0 || now >= self.hand_off_until || self.engine.refuses() {
            return permits;
        }
        let give =
            |waiters: &mut Waiters| waiters.give(&self.spec, permits, self.hand_off_until, now);
        self.engine.synchronizers.change(&self.spec, give)
    }

    pub(crate) async fn release(mut self) -> Result<(), Error> {
        runtime::check()?;
        // On an error the guard is dropped here, which releases the permits unless the client has
        // ended.
        self.engine.check_open()?;
        let permits = self.hand_off();
        if permits == 0 {
            return Ok(());
        }
        let (engine, spec) = (self.engine.clone(), self.spec.clone());
        let what = GivenBack::NumberOfGuard;
        engine.give_permits(&spec, what, permits.into()).await
    }

    /// Releases the permits for a caller that discards the error: a failure is logged.
    #[cfg(feature = "blocking")]
    pub(crate) async fn release_or_log(mut self) {
        // The drop of this guard adds a final request.
        if self.engine.is_closed() {
            return;
        }
        let permits = self.hand_off();
        if permits > 0 {
            let release =
                |attempt: &Attempt| semaphore::release(&self.spec, permits.into(), attempt);
            (self.engine)
                .give_back_permits_now(&self.spec, GivenBack::NumberOfGuard, release)
                .await;
        }
    }
}

impl Drop for PermitGuard {
    fn drop(&mut self) {
        let permits = self.hand_off();
        if permits == 0 {
            return;
        }
        let release = |attempt: &Attempt| semaphore::release(&self.spec, permits.into(), attempt);
        self.engine
            .give_back_permits(&self.spec, GivenBack::NumberOfGuard, release);
    }
}

impl Engine {
    /// Acquires permits of a semaphore. Returns `None` if there were too few at the deadline.
    pub(crate) async fn acquire_permits(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        permits: u32,
        deadline: Deadline,
    ) -> Result<Option<PermitGuard>, Error> {
        if permits == 0 {
            self.check_accepts()?;
            return Ok(Some(self.permit_guard(spec, 0, Instant::now())));
        }
        let try_once = |caller: Caller| {
            let (engine, spec) = (self.clone(), spec.clone());
            async move {
                engine.may_announce(&spec).await?;
                let ongoing = engine.synchronizers.attempts.begin();
                let request = semaphore::acquire(&spec, permits, &ongoing.attempt);
                let longest_doubt = engine.synchronizers.attempts.longest_doubt();
                let answer =
                    engine.until_answered(&spec, request, Some(&caller), Some(longest_doubt));
                let answer = answer.await?;
                match answer.outcome {
                    Outcome::Done(Detail::Number(left)) => {
                        let hand_off_until = Instant::now() + engine.config.local_hand_off;
                        Ok(AttemptOutcome::Granted(
                            engine.permit_guard(&spec, permits, hand_off_until),
                            Remaining::plain(left),
                        ))
                    }
                    Outcome::Busy { remaining: left } => {
                        Ok(AttemptOutcome::Busy(Remaining::plain(left)))
                    }
                    Outcome::Absent => Ok(AttemptOutcome::Busy(Remaining::no_semaphore())),
                    other => Err(unexpected_answer(other)),
                }
            }
        };
        let given = |hand_off_until| self.permit_guard(spec, permits, hand_off_until);
        let wanted = Wanted::Permits(permits);
        self.acquire_by(spec, wanted, deadline, try_once, given)
            .await
    }

    pub(super) fn permit_guard(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        permits: u32,
        hand_off_until: Instant,
    ) -> PermitGuard {
        PermitGuard {
            engine: self.clone(),
            spec: spec.clone(),
            permits,
            number: self
                .synchronizers
                .held
                .add(&spec.name, permits, hand_off_until),
            hand_off_until,
            _holder: self.permit_holders.token(),
        }
    }

    pub(crate) async fn release_permits(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        permits: i64,
    ) -> Result<(), Error> {
        self.check_open()?;
        self.give_permits(spec, GivenBack::Number, permits).await
    }

    async fn give_permits(
        self: &Arc<Self>,
        spec: &Arc<SyncSpec>,
        what: GivenBack,
        permits: i64,
    ) -> Result<(), Error> {
        let release = |attempt: &Attempt| semaphore::release(spec, permits, attempt);
        let released = self.run_release_of_permits(spec, what, release);
        released.await.map(drop)
    }
}
