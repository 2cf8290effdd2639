//! Asking nodes on connections that are made for it: those of a URL, or all that were ever heard of.

use fred::types::{
    Resp3Frame as Frame,
    config::{Config, ServerConfig},
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::timeout;

use super::{
    slot_map::{self, Listed},
    topology::ANSWER_WAIT,
};
use crate::{
    error::Error,
    redis::{
        frame,
        link::{self, Connector},
        locator::Address,
    },
};

pub(super) fn connector(config: &Config, address: &Address, messages: usize) -> Connector {
    let mut config = config.clone();
    config.server = ServerConfig::new_centralized(address.0.clone(), address.1);
    Connector::new(config, messages).within(ANSWER_WAIT)
}

/// What the first of several nodes that answers says.
pub(super) struct FirstAnswer {
    pub(super) listed: Vec<Listed>,
    /// Whether it can publish to a shard.
    pub(super) has_shards: bool,
}

/// Asks all of `addresses` at a time.
pub(super) async fn first_answer(
    config: &Config,
    addresses: &[Address],
) -> Result<FirstAnswer, Error> {
    let mut answers: FuturesUnordered<_> = addresses
        .iter()
        .map(|address| ask(config, address))
        .collect();
    let mut error = Error::unavailable("the URL names no node");
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(answer) => return Ok(answer),
            // What has to be corrected says more than what may pass.
            Err(_) if matches!(error, Error::Config { .. }) => {}
            Err(new) => error = new,
        }
    }
    Err(error)
}

async fn ask(config: &Config, address: &Address) -> Result<FirstAnswer, Error> {
    let mut connection = connector(config, address, 1).connect().await?;
    let client = connection.client.clone();
    let unanswered =
        |reason: String| Error::unavailable(format!("a node of the cluster: {reason}"));
    let asking = async {
        let nodes = link::command(&client, "CLUSTER", vec!["NODES".into()]).await;
        let shards = link::command(&client, "PUBSUB", vec!["SHARDNUMSUB".into()]).await;
        let answers = nodes.and_then(|nodes| Ok((nodes, shards?)));
        answers.map_err(|error| error.details().to_owned())
    };
    let answers = timeout(ANSWER_WAIT, connection.router.run(asking)).await;
    link::quit(&client).await;
    let (nodes, shards) = answers
        .unwrap_or_else(|_| Err("no answer".into()))
        .map_err(unanswered)?;
    if let Some(message) = frame::error(&shards).filter(|message| message.starts_with("NOPERM")) {
        tracing::warn!(
            message,
            "the user may not ask whether the cluster has messages within shards: taken to have none"
        );
    }
    match read(&nodes, address) {
        Some(listed) => Ok(FirstAnswer {
            listed,
            has_shards: frame::error(&shards).is_none(),
        }),
        None => Err(no_answer(frame::error(&nodes))),
    }
}

fn no_answer(message: Option<String>) -> Error {
    let message = message.unwrap_or_else(|| "an odd answer to CLUSTER NODES".into());
    if message.contains("cluster support disabled") {
        Error::config("the URL names a server that is no node of a cluster: use redis://")
    } else if message.starts_with("NOPERM") {
        Error::config(format!(
            "the user may not ask for the nodes of the cluster: {message}"
        ))
    } else {
        Error::unavailable(format!("a node of the cluster: {message}"))
    }
}

/// What a node answered to `CLUSTER NODES`.
pub(super) fn read(answer: &Frame, asked: &Address) -> Option<Vec<Listed>> {
    match frame::error(answer) {
        Some(_) => None,
        None => Some(slot_map::read(&frame::text(answer)?, asked)),
    }
}
