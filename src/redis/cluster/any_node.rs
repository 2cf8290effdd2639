//! Chooses a node for a connection that may lead to any node.

use std::sync::Arc;

use tokio::sync::watch;

use super::topology::{Routes, Topology};
use crate::{
    error::Error,
    redis::{BoxFuture, connector::Locate, endpoint::Address},
    sync::lock,
};

/// A locator for any node of the cluster.
impl Locate for Topology {
    fn locate(&self) -> BoxFuture<Result<Option<Address>, Error>> {
        let located = self.any_node().map(Some);
        Box::pin(std::future::ready(located.ok_or_else(|| {
            Error::unavailable("no node of the cluster can be reached")
        })))
    }

    fn moved(&self, address: Option<&Address>) -> BoxFuture<String> {
        match address {
            Some(address) => Box::pin(left(self.routes.subscribe(), address.clone())),
            None => Box::pin(std::future::pending()),
        }
    }

    fn is_asked(&self) -> bool {
        false
    }
}

/// Completes, with the reason, when the node at `address` has no slots any more.
async fn left(mut routes: watch::Receiver<Arc<Routes>>, address: Address) -> String {
    let has_left = |routes: &Arc<Routes>| routes.nodes().all(|node| node.address != address);
    let left = routes.wait_for(has_left).await.is_ok();
    match left {
        true => "the node has left the cluster or serves no slots any more".into(),
        false => std::future::pending().await,
    }
}

impl Topology {
    /// A node that seems reachable; another one than last time, if there is one.
    fn any_node(&self) -> Option<Address> {
        let routes = self.routes.borrow().clone();
        let mut last = lock(&self.any);
        let up = routes.nodes().filter(|node| node.scripts.is_up());
        let up: Vec<_> = up.map(|node| &node.address).collect();
        let others = up.iter().filter(|address| Some(**address) != last.as_ref());
        let others: Vec<_> = others.collect();
        let chosen = fastrand::choice(others).or_else(|| up.first());
        *last = chosen.map(|address| (*address).clone());
        last.clone()
    }
}
