//! Whether the nodes can serve all slots.

use futures_util::future::try_join_all;

use super::topology::{Node, Topology};
use crate::{
    redis::{CallError, SLOTS, frame},
    wire::Refusal,
};

impl Topology {
    /// Asks each node that has slots. An error unless each slot has a node, and each node answers and serves all slots.
    pub(super) async fn ping(&self) -> Result<(), CallError> {
        let routes = self.routes.borrow().clone();
        if !routes.map.is_whole() {
            return Err(down("no known node of the cluster serves some slots"));
        }
        let pings = routes.nodes().map(|node| serves(node));
        try_join_all(pings).await.map(drop)
    }
}

/// A node that refuses all scripts, or has no slots any more, answers `PING` all the same.
async fn serves(node: &Node) -> Result<(), CallError> {
    let question = ("CLUSTER", &["INFO"] as &[_]);
    let (_, answer) = node.scripts.ping(Some(question)).await?;
    // A user without the right gets an error, which tells nothing.
    let text = frame::text(&answer).filter(|_| frame::error(&answer).is_none());
    refuses(&text.unwrap_or_default()).map_or(Ok(()), |reason| Err(down(reason)))
}

/// Why the node with this answer to `CLUSTER INFO` refuses some scripts, if it does.
fn refuses(info: &str) -> Option<&'static str> {
    let mut fields = info.lines().filter_map(|line| line.split_once(':'));
    fields.find_map(|(name, value)| match (name, value) {
        ("cluster_state", "fail") => Some("a node of the cluster reports `cluster_state:fail`"),
        ("cluster_slots_assigned", number)
            if number.parse().is_ok_and(|slots: u16| slots < SLOTS) =>
        {
            Some("a node of the cluster knows no owner of some slots")
        }
        _ => None,
    })
}

fn down(reason: &str) -> CallError {
    CallError::Refused(Refusal::from_message(format!("CLUSTERDOWN {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_that_knows_no_owner_of_a_slot_or_is_down_refuses_scripts() {
        let info = |state: &str, slots: &str| {
            format!("cluster_state:{state}\r\ncluster_slots_assigned:{slots}\r\n")
        };
        assert_eq!(refuses(&info("ok", "16384")), None);
        assert!(refuses(&info("fail", "16384")).is_some());
        assert!(refuses(&info("ok", "16383")).is_some());
        assert!(refuses(&info("ok", "0")).is_some());
        for odd in ["", "cluster_slots_assigned:x", "no field"] {
            assert_eq!(refuses(odd), None, "{odd}");
        }
    }
}
