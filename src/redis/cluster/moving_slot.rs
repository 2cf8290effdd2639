//! Calls of a slot that is moving, at the node that receives it.

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::Instant;

use super::{redirection::Redirection, topology::Topology};
use crate::{
    durability::Durability,
    redis::{
        Answered, CallError, HashSlot, endpoint::Address, frame, time_limits::CLUSTER_NODE_WAIT,
    },
    timers::timeout,
    transport::Frame,
    wire::{
        Refusal, decimal,
        script::{Operation, Script},
    },
};

impl Topology {
    /// Runs operations at a node that has received some keys of a slot, but not yet the slot.
    pub(super) async fn run_asking(
        &self,
        slot: HashSlot,
        address: Address,
        script: &'static Script,
        operations: &[Operation],
        durability: Durability,
    ) -> Result<(Address, Answered<Frame>), CallError> {
        let refused = |message: String| CallError::Refused(Refusal::Transient { message });
        let (host, port) = &address;
        let Some(asking) = self.asking_connection(&address) else {
            let message = "ASK: the redirections name more nodes than a cluster has";
            return Err(refused(message.into()));
        };
        let unconnected = || refused(format!("ASK: no connection to {host}:{port}"));
        asking.mark_used();
        // Outside the lock: calls to an unreachable node must not wait for it one after the other.
        match timeout(CLUSTER_NODE_WAIT, asking.connection.ready()).await {
            Ok(opened) => drop(opened?),
            Err(_) => return Err(unconnected()),
        }
        let op_lock = asking.op_lock.lock().await;
        let session = asking.connection.current().ok_or_else(unconnected)?;
        let redirects = self.owner_redirects(slot, &address, script.keys(operations));
        if timeout(CLUSTER_NODE_WAIT, redirects).await != Ok(true) {
            let message = "TRYAGAIN some keys may be at the node that the slot leaves";
            return Err(refused(message.into()));
        }
        if session.has_ended() {
            return Err(unconnected());
        }
        // Sends the text: after a NOSCRIPT, another ASKING would be needed.
        let text = script.text_arriving(self.publishing);
        let (key, rest) = script.arriving(operations);
        let parts = [text, decimal(1), key].into_iter().chain(rest);
        let sent = Instant::now();
        let (_asked, answer) = tokio::join!(
            biased;
            session.send("ASKING", Vec::new()),
            session.send("EVAL", parts.collect()),
        );
        let answered = async {
            let frame = answer?;
            let listed = self.replicas_at(&address);
            let acknowledged = self.wait.on(&session, durability, listed).await?;
            Ok(Answered {
                reply: frame,
                acknowledged,
            })
        };
        let answered = answered.await;
        drop(op_lock);
        match answered {
            Ok(answered) => Ok((address, answered)),
            Err(reason) => {
                let _ = timeout(CLUSTER_NODE_WAIT, asking.connection.replaced(&session)).await;
                Err(CallError::Unanswered { reason, sent })
            }
        }
    }

    /// Whether the owner of the slot has none of these keys, and redirects to this node for each.
    ///
    /// An `ASK` may be old: the slot may have arrived at the node, returned, and begun to leave again. The node would then grant
    /// a lock whose key the owner has. Servers before Redis 7 send an `ASK` although they have some of a script's keys.
    async fn owner_redirects(
        &self,
        slot: HashSlot,
        address: &Address,
        keys: impl Iterator<Item = &Bytes>,
    ) -> bool {
        // Does not wait for a connection: the caller has the operation lock of the connection to `address`.
        let owner = self.routes.borrow().node(slot).cloned();
        let Some((node, session)) =
            owner.and_then(|node| Some((node.clone(), node.scripts.current()?)))
        else {
            return false;
        };
        let asked = keys.map(|key| session.send("PTTL", vec![key.clone()]));
        let answers = join_all(asked).await;
        let redirects = |answer: &Frame| {
            frame::error(answer).is_some_and(|message| {
                let redirection = Redirection::read(&message, &node.announced);
                // A user without the right to PTTL cannot ask.
                redirection == Some(Redirection::Ask(address.clone()))
                    || message.starts_with("NOPERM")
            })
        };
        answers
            .iter()
            .all(|answer| answer.as_ref().is_ok_and(redirects))
    }
}
