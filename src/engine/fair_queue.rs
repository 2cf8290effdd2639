//! A waiter's entry in a fair queue on the server. It is removed when the wait ends without a
//! grant.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::{Instant, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{CallError, Engine, owners::OwnerEntryRef, request::AcquireRequest, retry::Retry};
use crate::{
    durability::Durability,
    error::Error,
    wire::{Request, presence},
};

/// An acquisition that may have an entry in its lock's queue. The drop removes the entry.
pub(super) struct FairQueueEntry {
    engine: Arc<Engine>,
    entry: OwnerEntryRef,
    abandon: Option<Request>,
    /// A closing client waits until its waiters have left their queues.
    _closing: TaskTrackerToken,
}

impl FairQueueEntry {
    /// Called before the first attempt. Returns `None` for a kind without a queue.
    ///
    /// Boxed, because most kinds have none.
    pub(super) fn enter(engine: &Arc<Engine>, request: &AcquireRequest) -> Option<Box<Self>> {
        let abandon = request.spec.protocol.abandon()?;
        let entry = engine.owner_entry(&request.spec, request.owner);
        let abandon = abandon(&request.spec, &entry.field);
        entry.queued.fetch_add(1, Ordering::Relaxed);
        Some(Box::new(Self {
            engine: engine.clone(),
            entry,
            abandon: Some(abandon),
            _closing: engine.tasks.token(),
        }))
    }

    /// Disarms the drop: the grant has removed the entry.
    pub(super) fn disarm(mut self) {
        self.abandon = None;
    }
}

impl Drop for FairQueueEntry {
    fn drop(&mut self) {
        self.entry.queued.fetch_sub(1, Ordering::Relaxed);
        let Some(abandon) = self.abandon.take() else {
            return;
        };
        // An attempt that was never sent, for lack of a connection, has left no entry. A job for it
        // would take memory until there is a connection.
        if !self.entry.may_be_queued.load(Ordering::Relaxed) {
            return;
        }
        let (engine, entry) = (self.engine.clone(), self.entry.clone());
        self.engine.jobs.push(async move {
            let (name, _) = entry.key();
            let until = Instant::now() + engine.config.outage_wait;
            loop {
                // An attempt under way ends first: it could add the entry again.
                let _op_lock = entry.take_op_lock().await;
                // The owner may have begun another acquisition, which uses the same entry.
                if entry.queued.load(Ordering::Relaxed) != 0 {
                    return;
                }
                entry.may_be_queued.store(false, Ordering::Relaxed);
                let has_left = engine.leave_queue(name, &abandon).await;
                if has_left || engine.is_closed() || Instant::now() >= until {
                    return;
                }
            }
        });
    }
}

impl Engine {
    /// Removes an entry. Returns whether the server did so before the entry's timeout. After that,
    /// every client skips the entry, but its keys stay.
    async fn leave_queue(&self, name: &Arc<str>, abandon: &Request) -> bool {
        let over = Instant::now() + self.config.fair_entry_lasts();
        let mut refusal = None;
        let left = timeout_at(over, async {
            let mut retry = Retry::of_release();
            loop {
                let answered = self.batcher.run(abandon.clone(), Durability::Local).await;
                match answered
                    .and_then(|answered| presence(answered.reply).map_err(CallError::Refused))
                {
                    Ok(_) => return Ok::<_, Error>(()),
                    Err(error) => {
                        let again = retry.again(name, error)?;
                        refusal = again.refused_error(name);
                        again.pause().await;
                    }
                }
            }
        });
        let left = left.await;
        let failed = match &left {
            Ok(left) => left.as_ref().err(),
            Err(_) => refusal.as_ref(),
        };
        if let Some(error) = failed.filter(|error| !self.is_runtime_end(error)) {
            match self.log_limits.failed_releases.may_log_about(error) {
                Some(suppressed) => {
                    tracing::warn!(
                        ?error,
                        suppressed,
                        "a fair queue could not be left; the entry ends by itself"
                    );
                }
                None => tracing::debug!(
                    ?error,
                    "a fair queue could not be left; the entry ends by itself"
                ),
            }
        }
        left.is_ok()
    }
}
