//! The guard of one hold inside the engine: it releases the hold when it is dropped. [`Guard`](crate::Guard) contains one.

use std::sync::Arc;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    BoxFuture, Engine,
    dropped::PendingRelease,
    hold_set::HoldId,
    loss::{cancel_at_the_end, elsewhere},
    request::AcquireOptions,
    runtime,
    tenure::Tenure,
};
use crate::{
    error::{Error, LostReason},
    owner::Owner,
    wire::Released,
};

/// Where the error of a release goes. A loss has a log line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnFailure {
    /// Only to the caller.
    Return,
    /// Into the log too: the caller discards it.
    Log,
}

/// One hold of a tenure. Its drop releases the hold.
pub(crate) struct HoldGuard {
    engine: Arc<Engine>,
    tenure: Arc<Tenure>,
    id: HoldId,
    /// The number of replicas that had acknowledged the grant, if its acquisition waited for
    /// replicas.
    pub(crate) acknowledged: Option<u32>,
    armed: bool,
}

impl HoldGuard {
    pub(super) fn new(engine: Arc<Engine>, tenure: Arc<Tenure>, id: HoldId) -> Self {
        Self {
            engine,
            tenure,
            id,
            acknowledged: None,
            armed: true,
        }
    }

    pub(crate) fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    pub(super) fn id(&self) -> HoldId {
        self.id
    }

    /// The end of the hold's validity if it is not renewed again.
    pub(crate) fn valid_until(&self) -> Instant {
        let lasts = self.tenure.hold_valid_until(self.id);
        lasts.unwrap_or_else(|| self.tenure.valid_until())
    }

    pub(crate) fn owner(&self) -> Owner {
        self.tenure.owner_of(self.id)
    }

    /// Returns a token that is cancelled if the hold is lost before its release.
    pub(crate) fn token(&self) -> CancellationToken {
        let (lost, ended) = self.tenure.hold_tokens(self.id);
        let token = lost.child_token();
        if let Some(here) = elsewhere(self.engine.runtime()) {
            let lost = cancel_at_the_end(Arc::downgrade(&self.tenure), token.clone());
            let task: BoxFuture<()> = Box::pin(async move {
                let _: Option<()> = ended.run_until_cancelled(lost).await;
            });
            here.spawn(task);
        }
        token
    }

    /// Calls `callback` with the reason if the hold is lost before its end.
    pub(crate) fn on_lost(&self, callback: impl FnOnce(LostReason) + Send + 'static) {
        let (lost, ended) = self.tenure.hold_tokens(self.id);
        let tenure = self.tenure.clone();
        self.engine.runtime().spawn(async move {
            tokio::select! {
                biased;
                () = lost.cancelled() => {
                    let reason = tenure.lost_reason(Instant::now());
                    // A lost tenure stays lost.
                    callback(reason.unwrap_or(LostReason::Gone));
                }
                () = ended.cancelled() => {}
            }
        });
    }

    /// The options of a further hold on the same terms: with the lease and the durability of this one.
    pub(crate) fn terms(&self) -> AcquireOptions {
        let (engine, tenure) = (&self.engine, &self.tenure);
        let (lease, watched) = tenure
            .hold_set()
            .terms_of(self.id)
            .unwrap_or_else(|| (engine.options.lease.clone(), engine.options.watched));
        AcquireOptions {
            lease,
            watched,
            back_off: None,
            durability: tenure.strictest_durability(engine.batcher.replicas(&tenure.spec)),
            ends_when_done: false,
            refused: None,
        }
    }

    /// Hands the hold to another task of the client, or leaves it to the readers that share its
    /// tenure. Returns what is left to its owner, or `None` if a release must be sent.
    fn end_without_request(&mut self) -> Option<Released> {
        let left = match self.tenure.leave(self.id) {
            Some(left) => {
                self.engine.verify_if_stale(&self.tenure);
                left
            }
            None => self
                .engine
                .hand_off(&self.tenure, self.id, self.acknowledged)
                .then_some(0)?,
        };
        self.armed = false;
        Some(released(left))
    }

    /// Releases the hold and returns what is left. Dropping the future does not stop the release.
    pub(crate) async fn release(mut self, on_failure: OnFailure) -> Result<Released, Error> {
        // Without a runtime, the guard is dropped here: a drop needs none.
        runtime::check()?;
        if let Some(released) = self.end_without_request() {
            return Ok(released);
        }
        self.armed = false;
        let (engine, tenure) = (&self.engine, self.tenure.clone());
        engine.release(tenure, self.id, on_failure).await
    }

    /// Marks the hold as dropped: the owner's next operation releases it. Keep the returned entry until the guard is dropped.
    pub(super) fn mark_dropped(&self) -> PendingRelease {
        let dropped = self.engine.dropped.add(self.tenure.name());
        self.tenure.mark_dropped(self.id);
        dropped
    }

    /// Keeps the hold without a guard: `Lock::unlock` releases it.
    pub(crate) fn leak(mut self) {
        self.armed = false;
        self.tenure.leak(self.id);
    }
}

impl Drop for HoldGuard {
    fn drop(&mut self) {
        if !self.armed || self.end_without_request().is_some() {
            return;
        }
        let (engine, tenure, id) = (self.engine.clone(), self.tenure.clone(), self.id);
        let dropped = self.mark_dropped();
        let is_queued = self.engine.jobs.push(async move {
            let _dropped = dropped;
            let _op_lock = tenure.entry().take_op_lock().await;
            if tenure.take_if_dropped(id) {
                engine.release_dropped(&tenure, id).await;
            }
        });
        if !is_queued {
            self.engine
                .release_without_tasks(std::slice::from_ref(&self.tenure));
        }
    }
}

/// The result of a release that leaves `holds` to the owner.
pub(super) fn released(holds: u32) -> Released {
    match holds {
        0 => Released::Fully,
        holds => Released::StillHeld { holds },
    }
}
