//! Calls of one slot, at the node that owns it.

use std::{pin::pin, sync::Arc};

use tokio::time::Instant;

use super::{
    redirection::{MOST_HOPS, Redirection},
    topology::{Node, Topology},
};
use crate::{
    durability::Durability,
    redis::{
        Answered, CallError, HashSlot,
        durable::Durable,
        endpoint::Address,
        frame,
        hash_slot::hash_slot,
        script_connection::{ClosedForGood, ScriptSession},
        subscriptions::ShardMap,
    },
    transport::Frame,
    wire::script::{Operation, Script},
};

impl Topology {
    /// Runs operations of one slot, and follows redirections.
    pub(super) async fn call(
        self: &Arc<Self>,
        script: &'static Script,
        operations: Arc<[Operation]>,
        durability: Durability,
    ) -> Result<Vec<Answered>, CallError> {
        let slot = operations.first().and_then(|parts| parts.first());
        let slot = slot.map_or(0, |key| hash_slot(key));
        let mut target = None;
        let mut hops = 0;
        loop {
            let (asked, answered) = match target.take() {
                None => self.run(slot, script, &operations, durability).await?,
                Some(address) => {
                    self.run_asking(slot, address, script, &operations, durability)
                        .await?
                }
            };
            let message = frame::error(&answered.reply);
            let redirection = message
                .as_deref()
                .and_then(|message| Redirection::read(message, &asked));
            match redirection {
                Some(Redirection::Moved(address))
                    if hops < MOST_HOPS && self.moved(slot, &asked, &address) => {}
                Some(Redirection::Ask(address)) if hops < MOST_HOPS => target = Some(address),
                _ => {
                    if message.is_some() {
                        self.request_refresh();
                    }
                    return answered.read_replies(operations.len());
                }
            }
            hops += 1;
        }
    }

    /// The connection to `node` for calls of `slot` and `durability`, if they wait for replicas.
    pub(super) fn waiting(
        self: &Arc<Self>,
        slot: HashSlot,
        node: &Arc<Node>,
        durability: Durability,
    ) -> Option<Durable> {
        let waits = durability.waits(self.replicas(slot));
        waits.then(|| self.durable(node, durability))
    }

    /// Runs operations at the owner of the slot. Returns the node and its answer.
    async fn run(
        self: &Arc<Self>,
        slot: HashSlot,
        script: &'static Script,
        operations: &Arc<[Operation]>,
        durability: Durability,
    ) -> Result<(Address, Answered<Frame>), CallError> {
        let (node, session) = self.ready(slot).await?;
        let sent = Instant::now();
        let running = async {
            if let Some(durable) = self.waiting(slot, &node, durability) {
                let mut answered = pin!(durable.run(script, operations.clone()));
                // A connection with a pending `WAIT` is silent for longer even if it works.
                let in_flight = session.count_call_elsewhere();
                tokio::select! {
                    biased;
                    answer = &mut answered => {
                        if answer.is_ok() {
                            in_flight.answered();
                        }
                        return answer.inspect_err(|_| self.request_refresh());
                    }
                    () = session.ended() => self.request_refresh(),
                }
                return answered.await.inspect_err(|_| self.request_refresh());
            }
            let answer = session.run(script, self.publishing, operations).await;
            if answer.is_err() {
                self.request_refresh();
                let _ = node.scripts.replaced(&session).await;
            }
            answer.map(Answered::from)
        };
        // A node that has lost the slot refuses the call, or its writes are lost.
        let answer = self.while_owner(slot, &node, running).await;
        let answer = answer.unwrap_or_else(|| Err("the slot has moved to another node".into()));
        match answer {
            Ok(answered) => Ok((node.announced.clone(), answered)),
            Err(_) if self.closed.is_cancelled() => Err(CallError::Closed),
            Err(reason) => Err(CallError::Unanswered { reason, sent }),
        }
    }

    /// The connection to the owner of `slot`, once there is one.
    pub(super) async fn ready(
        &self,
        slot: HashSlot,
    ) -> Result<(Arc<Node>, Arc<ScriptSession>), CallError> {
        loop {
            let node = self.owner(slot).await?;
            match self.while_owner(slot, &node, node.scripts.ready()).await {
                Some(Ok(session)) => return Ok((node, session)),
                // The client or its runtime has ended; the node has not left.
                Some(Err(ClosedForGood)) if !node.has_left() || self.closed.is_cancelled() => {
                    return Err(CallError::Closed);
                }
                _ => {}
            }
        }
    }

    async fn owner(&self, slot: HashSlot) -> Result<Arc<Node>, CallError> {
        if let Some(node) = self.routes.borrow().node(slot) {
            return Ok(node.clone());
        }
        let mut routes = self.routes.subscribe();
        let known = routes.wait_for(|routes| routes.node(slot).is_some());
        let known = self.closed.run_until_cancelled(known).await;
        let node = known.and_then(|routes| routes.ok()?.node(slot).cloned());
        node.ok_or(CallError::Closed)
    }

    /// `future`, unless `slot` gets another owner than `node`.
    pub(super) async fn while_owner<T>(
        &self,
        slot: HashSlot,
        node: &Arc<Node>,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut routes = self.routes.subscribe();
        let is_another = |now: &Arc<Node>| !Arc::ptr_eq(now, node);
        tokio::select! {
            biased;
            done = future => Some(done),
            _ = routes.wait_for(|routes| routes.node(slot).is_none_or(is_another)) => None,
        }
    }
}
