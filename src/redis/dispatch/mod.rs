//! The dispatch of operations: those of one lane travel together.
//!
//! A call costs a system call at both ends, more than the server needs to run a script. Operations queue in the lane of their script,
//! slot and durability ([`queue`]), and travel in batches ([`call`]). Tasks of the lane, its carriers, send the batches and pass the
//! answers to the completions of the operations ([`complete`]). A caller that is not polled therefore delays no other. The operations
//! of a group leave together ([`together`]).
//!
//! At a low load an operation may travel alone, without a carrier ([`Lane::begin_lone`]).

pub(super) mod call;
mod complete;
mod queue;
pub(super) mod together;

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use tokio::runtime::Handle;

pub(crate) use self::complete::Complete;
use self::{
    call::call_all,
    queue::{Pushed, Queue},
};
use super::{HashSlot, Redis};
use crate::{durability::Durability, hash::HashMap, sync::lock, wire::script::Script};

/// Operations with one batch key may travel together: the address of the script, the slot, the durability.
pub(crate) type BatchKey = (usize, HashSlot, Durability);

pub(crate) fn batch_key(
    script: &'static Script,
    slot: HashSlot,
    durability: Durability,
) -> BatchKey {
    (std::ptr::from_ref(script).addr(), slot, durability)
}

/// The lanes of a client.
pub(crate) struct Dispatch<C> {
    redis: Arc<dyn Redis>,
    /// The runtime of the carriers.
    runtime: Handle,
    lanes: RwLock<HashMap<BatchKey, Arc<Lane<C>>>>,
}

/// The operations of one script, slot and durability.
pub(crate) struct Lane<C> {
    redis: Arc<dyn Redis>,
    runtime: Handle,
    pub(super) script: &'static Script,
    slot: HashSlot,
    durability: Durability,
    queue: Mutex<Queue<C>>,
}

impl<C: Complete> Dispatch<C> {
    pub(crate) fn new(redis: Arc<dyn Redis>, runtime: Handle) -> Self {
        Self {
            redis,
            runtime,
            lanes: RwLock::default(),
        }
    }

    pub(crate) fn redis(&self) -> &Arc<dyn Redis> {
        &self.redis
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn lane(
        &self,
        script: &'static Script,
        slot: HashSlot,
        durability: Durability,
    ) -> Arc<Lane<C>> {
        let key = batch_key(script, slot, durability);
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(&key) {
            return lane.clone();
        }
        drop(lanes);
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        let lane = lanes.entry(key).or_insert_with(|| {
            Arc::new(Lane {
                redis: self.redis.clone(),
                runtime: self.runtime.clone(),
                script,
                slot,
                durability,
                queue: Mutex::default(),
            })
        });
        lane.clone()
    }
}

impl<C: Complete> Lane<C> {
    fn locked(&self) -> MutexGuard<'_, Queue<C>> {
        lock(&self.queue)
    }

    /// Queues an operation, which leaves in one of the next batches, or with the rest of its group.
    pub(crate) fn submit(self: Arc<Self>, operation: C) -> Submitted<C> {
        if together::holds_back(&self.redis) {
            together::hold_back(self.clone(), operation);
            return Submitted::new(self, Pushed::default(), true);
        }
        let pushed = self.locked().push(operation);
        Submitted::new(self, pushed, true)
    }

    fn submit_group(self: Arc<Self>, operations: Vec<C>) -> Submitted<C> {
        let pushed = self.locked().push_group(operations);
        Submitted::new(self, pushed, false)
    }

    /// Begins an operation that travels alone, sent by its caller, if fewer than `most` do.
    pub(super) fn begin_lone(&self, most: usize) -> Option<Lone<'_, C>> {
        let begins = most > 0 && self.locked().begin_lone(most);
        begins.then(|| Lone(self))
    }

    /// Starts carriers. `gathers`: further operations may come at once, and join the first batch.
    fn start_carriers(self: &Arc<Self>, count: usize, gathers: bool) {
        for _ in 0..count {
            let carrier = Carrier {
                lane: self.clone(),
                is_done: false,
            };
            self.runtime.spawn(carrier.run(gathers));
        }
    }

    /// Sends one batch, and completes its operations.
    async fn send(&self, batch: Vec<C>) {
        let mut operations = Vec::with_capacity(batch.len());
        let mut wanted = Vec::with_capacity(batch.len());
        for_each_caught(batch, |mut completion| {
            if let Some(operation) = completion.build() {
                operations.push(operation);
                wanted.push(completion);
            }
        });
        if operations.is_empty() {
            return;
        }
        let answers = call_all(&*self.redis, self.script, operations, self.durability).await;
        let mut answers = answers.into_iter();
        for_each_caught(wanted, |completion| match answers.next() {
            Some(answer) => completion.complete(answer),
            None => drop(completion),
        });
    }
}

/// What follows from a submission, at its drop: carriers start, and completions that are not wanted any more are dropped. A caller that
/// has locked what completions lock keeps it until then.
#[must_use]
pub(crate) struct Submitted<C: Complete> {
    lane: Arc<Lane<C>>,
    carriers: usize,
    gathers: bool,
    _unwanted: Vec<C>,
}

impl<C: Complete> Submitted<C> {
    fn new(lane: Arc<Lane<C>>, pushed: Pushed<C>, gathers: bool) -> Self {
        Self {
            lane,
            carriers: pushed.carriers,
            gathers,
            _unwanted: pushed.unwanted,
        }
    }
}

impl<C: Complete> Drop for Submitted<C> {
    fn drop(&mut self) {
        self.lane.start_carriers(self.carriers, self.gathers);
    }
}

/// Calls `run` with each. A panic, such as that of a caller's waker, concerns no other: the process's panic hook has reported it.
fn for_each_caught<T>(each: impl IntoIterator<Item = T>, mut run: impl FnMut(T)) {
    let mut rest = each.into_iter();
    let mut run_rest = || rest.by_ref().for_each(&mut run);
    while catch_unwind(AssertUnwindSafe(&mut run_rest)).is_err() {}
}

/// A lone operation under way.
pub(super) struct Lone<'a, C: Complete>(&'a Lane<C>);

impl<C: Complete> Drop for Lone<'_, C> {
    fn drop(&mut self) {
        self.0.locked().end_lone();
    }
}

/// A task that sends the batches of a lane. A drop before `is_done` means that the runtime has ended, so the lane closes.
struct Carrier<C: Complete> {
    lane: Arc<Lane<C>>,
    is_done: bool,
}

impl<C: Complete> Carrier<C> {
    /// Sends batches until the lane is empty or has enough other carriers.
    async fn run(mut self, mut gathers: bool) {
        let lane = self.lane.clone();
        loop {
            // An answered caller may send its next request. `yield_now` lets such requests join the batch.
            if std::mem::replace(&mut gathers, true) {
                tokio::task::yield_now().await;
            }
            if !lane.redis.is_ready(lane.slot, lane.durability) {
                lane.redis.ready(lane.slot, lane.durability).await;
            }
            let Some((batch, carriers)) = lane.locked().take() else {
                break;
            };
            lane.start_carriers(carriers, false);
            lane.send(batch).await;
            if !lane.locked().come_back() {
                break;
            }
        }
        self.is_done = true;
    }
}

impl<C: Complete> Drop for Carrier<C> {
    fn drop(&mut self) {
        if !self.is_done {
            let unsent = self.lane.locked().close();
            for_each_caught(unsent, drop);
        }
    }
}

#[cfg(test)]
mod tests;
