//! The commands of a cluster's node.

use super::{
    super::{
        Outcome,
        cluster::{DISABLED, HashSlot, of_slot},
        command::{Command, LOADING, NO_SCRIPT, STALE},
        subscriptions::Kind,
    },
    Caller, Server,
    answers::{ok, text},
};

pub(super) const COMMANDS: &[Command] = &[Command::session(
    "cluster|nodes",
    2,
    NO_SCRIPT | LOADING | STALE,
    nodes,
)];

fn nodes(caller: &mut Caller<'_>, _args: &[&[u8]]) -> Outcome {
    let cluster = caller.server.data.cluster.as_ref();
    Ok(text(&cluster.ok_or(DISABLED)?.describe()))
}

/// Lets the next command use a slot that still migrates to this node.
pub(super) fn asking(caller: &mut Caller<'_>, _args: &[&[u8]]) -> Outcome {
    if caller.server.data.cluster.is_none() {
        return Err(DISABLED.into());
    }
    caller.session().asking = true;
    Ok(ok())
}

impl Server {
    /// Ends the subscriptions to the channels of a slot that has left. A real server notifies the subscribers, and fred drops the notice
    /// (P-W7): in-memory connections behave like fred's.
    pub(crate) fn end_subscriptions(&mut self, slot: HashSlot) {
        let channels = self.data.subscriptions.names(Kind::Shard, b"*");
        for channel in of_slot(channels, slot) {
            for connection in self.data.subscriptions.take(Kind::Shard, &channel) {
                if let Some(session) = self.connections.get_mut(&connection) {
                    session.subscribed[Kind::Shard.index()] -= 1;
                }
            }
        }
    }
}
