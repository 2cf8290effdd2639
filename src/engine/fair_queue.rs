//! An entry in a fair queue on the server, which is given up when its waiter is dropped or gives up.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::{Instant, timeout_at};
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::{CallError, Engine, owners::OwnerEntryRef, request::AcquireRequest, retry::Retry};
use crate::{
    durability::Durability,
    error::Error,
    wire::{Request, presence},
};

/// An acquisition that may have a place in its lock's queue.
pub(super) struct FairQueueEntry {
    engine: Arc<Engine>,
    entry: OwnerEntryRef,
    abandon: Option<Request>,
    /// A closing client waits until its waiters have left their queues.
    _closing: TaskTrackerToken,
}

impl FairQueueEntry {
    /// Before the first try, for a kind of lock that has a queue.
    ///
    /// Boxed, as most kinds have none.
    pub(super) fn enter(engine: &Arc<Engine>, request: &AcquireRequest) -> Option<Box<Self>> {
        let abandon = request.spec.protocol.abandon()?;
        let entry = engine.owner_entry(&request.spec, request.owner);
        let abandon = abandon(&request.spec, &entry.owner);
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
        // What was never asked for, as there was no connection, need not be left, and takes no memory until there is one.
        if !self.entry.may_be_queued.load(Ordering::Relaxed) {
            return;
        }
        let (engine, entry) = (self.engine.clone(), self.entry.clone());
        self.engine.jobs.push(async move {
            let (name, _) = entry.key();
            let until = Instant::now() + engine.config.outage_wait;
            loop {
                // An attempt that is on its way is seen to its end before.
                let _op_lock = entry.take_op_lock().await;
                // The same owner may have come again, to the same place.
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
    /// Gives up an entry. Returns whether there was an answer within its timeout: after that every client skips it, but its keys stay.
    async fn leave_queue(&self, name: &Arc<str>, abandon: &Request) -> bool {
        let over = Instant::now() + self.config.fair_entry_lasts();
        let left = timeout_at(over, async {
            let mut retry = Retry::default();
            loop {
                let answered = self.batcher.run(abandon.clone(), Durability::Local).await;
                match answered
                    .and_then(|answered| presence(answered.reply).map_err(CallError::Refused))
                {
                    Ok(_) => return Ok::<_, Error>(()),
                    Err(error) => retry.again(name, error)?.pause().await,
                }
            }
        });
        let left = left.await;
        if let Ok(Err(error)) = &left {
            match self.lines.left.may_log() {
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
