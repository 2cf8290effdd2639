//! Asks nodes over temporary connections: the nodes of a URL, or all known nodes.

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::timeout;

use super::node_list::{self, Listed, Preferred};
use crate::{
    error::Error,
    redis::{
        connector::Connector, endpoint::Address, frame, open_connection, opener::ServerConfig,
        time_limits::CLUSTER_NODE_WAIT,
    },
    transport::Frame,
};

pub(super) fn connector(server: &ServerConfig, address: &Address, messages: usize) -> Connector {
    Connector::new(server.at(address.clone()), messages).within(CLUSTER_NODE_WAIT)
}

/// The answer of the first of several nodes.
pub(super) struct FirstAnswer {
    pub(super) listed: Vec<Listed>,
    pub(super) preferred: Preferred,
    /// Whether the node can publish to a shard.
    pub(super) has_shards: bool,
}

#[cfg(test)]
impl FirstAnswer {
    /// The answer `nodes` of a node at 127.0.0.1:1.
    pub(super) fn of(nodes: &str, preferred: Preferred) -> Self {
        let asked = ("127.0.0.1".into(), 1);
        let listed = node_list::read(nodes, &asked, &preferred).unwrap();
        Self {
            listed,
            preferred,
            has_shards: true,
        }
    }
}

/// Asks all of `addresses` at once. Prefers a node that knows the owners of slots.
pub(super) async fn first_answer(
    server: &ServerConfig,
    addresses: &[Address],
) -> Result<FirstAnswer, Error> {
    let mut answers: FuturesUnordered<_> = addresses
        .iter()
        .map(|address| ask(server, address))
        .collect();
    let mut error = Error::unavailable("the URL names no node");
    let mut without_slots = None;
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(answer) if node_list::have_slots(&answer.listed) => return Ok(answer),
            Ok(answer) => without_slots = Some(answer),
            // A configuration error tells the user more than a temporary one.
            Err(_) if matches!(error, Error::Config { .. }) => {}
            Err(new) => error = new,
        }
    }
    without_slots.ok_or(error)
}

async fn ask(server: &ServerConfig, address: &Address) -> Result<FirstAnswer, Error> {
    let mut link = connector(server, address, 1).connect().await?;
    let connection = link.connection.clone();
    let unanswered = |reason: String| {
        Error::unavailable(format!(
            "CLUSTER NODES failed at {}:{}: {reason}",
            address.0, address.1
        ))
    };
    let asking = async {
        tokio::try_join!(
            biased;
            open_connection::command(&*connection, "CLUSTER", &["NODES"]),
            open_connection::command(&*connection, "CLUSTER", &["SLOTS"]),
            open_connection::command(&*connection, "PUBSUB", &["SHARDNUMSUB"]),
        )
    };
    let answers = timeout(CLUSTER_NODE_WAIT, link.lifetime.run(asking)).await;
    open_connection::quit(&*connection).await;
    let (nodes, slots, shards) = answers
        .unwrap_or_else(|_| Err("the node did not answer".into()))
        .map_err(unanswered)?;
    if let Some(message) = frame::error(&shards).filter(|message| message.starts_with("NOPERM")) {
        tracing::warn!(
            message,
            "the user may not run PUBSUB SHARDNUMSUB: the client uses classic channels"
        );
    }
    let preferred = Preferred::of(&slots, &address.0, server.opener.is_encrypted());
    match read(&nodes, address, &preferred) {
        Some(listed) => Ok(FirstAnswer {
            listed,
            preferred,
            has_shards: frame::error(&shards).is_none(),
        }),
        None => Err(no_answer(address, frame::error(&nodes))),
    }
}

fn no_answer((host, port): &Address, message: Option<String>) -> Error {
    let message = message.unwrap_or_else(|| "the answer is not a list of nodes".into());
    if message.contains("cluster support disabled") {
        Error::config("the server of the URL is not a cluster node: use redis://")
    } else if message.contains("unknown command") {
        Error::config(
            "the server of the URL does not know CLUSTER: use redis-sentinel://host:port/service for a sentinel, or \
             redis://",
        )
    } else if message.starts_with("NOPERM") {
        Error::config(format!(
            "the user may not run CLUSTER NODES at {host}:{port}: check user, password and ACL rules ({message})"
        ))
    } else {
        Error::unavailable(format!("CLUSTER NODES failed at {host}:{port}: {message}"))
    }
}

/// A node's answer to `CLUSTER NODES`.
pub(super) fn read(answer: &Frame, asked: &Address, preferred: &Preferred) -> Option<Vec<Listed>> {
    match frame::error(answer) {
        Some(_) => None,
        None => node_list::read(&frame::text(answer)?, asked, preferred),
    }
}
