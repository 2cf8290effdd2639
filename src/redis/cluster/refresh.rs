//! Keeps the client's view of a cluster up to date.

use std::sync::Arc;

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::time::{Instant, timeout, timeout_at};

use super::{
    node_list::{Listed, have_slots},
    seeds::{first_answer, read},
    topology::Topology,
};
use crate::{
    hash::HashSet,
    redis::{
        endpoint::{Address, Endpoint},
        time_limits::{
            CLUSTER_NODE_WAIT, LATE_NODE_WAIT, REFRESH_EVERY, REFRESH_SOON, REFRESHES_APART,
        },
    },
};

/// The number of nodes that are asked at a time.
const ASKED: usize = 3;
/// The same for connections to nodes while none is reachable. A node may have listed thousands.
const MOST_CONNECTING: usize = 32;

impl Topology {
    /// Keeps the map up to date until the client is closed.
    pub(super) async fn watch(self: Arc<Self>) {
        let watching = async {
            loop {
                let whole = self.routes.borrow().is_whole();
                let pause = if whole { REFRESH_EVERY } else { REFRESH_SOON };
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = self.refresh_requests.notified() => {}
                }
                self.refresh().await;
                self.asking_connections.close_unused();
                tokio::time::sleep(REFRESHES_APART).await;
            }
        };
        let _: Option<()> = self.closed.run_until_cancelled(watching).await;
    }

    /// Asks some of the reachable nodes. If none is reachable, asks the nodes of the URL, whose names may have new addresses, and
    /// some of all known nodes.
    pub(super) async fn refresh(&self) {
        let routes = self.routes.borrow().clone();
        let mut up: Vec<_> = routes
            .nodes()
            .filter_map(|node| Some((node, node.scripts.current()?)))
            .collect();
        fastrand::shuffle(&mut up);
        let preferred = &self.preferred;
        let mut asked: FuturesUnordered<_> = up
            .into_iter()
            .take(ASKED)
            .map(|(node, session)| async move {
                let asking = session.send("CLUSTER", vec!["NODES".into()]);
                let answer = timeout(CLUSTER_NODE_WAIT, asking).await.ok()?.ok()?;
                read(&answer, &node.address, preferred)
            })
            .collect();
        let mut heard = false;
        let mut until = Instant::now() + CLUSTER_NODE_WAIT;
        while let Ok(Some(answer)) = timeout_at(until, asked.next()).await {
            if let Some(listed) = answer {
                heard |= have_slots(&listed);
                self.hear(&listed);
                // A silent node must not delay the next view.
                until = until.min(Instant::now() + LATE_NODE_WAIT);
            }
        }
        if heard {
            return;
        }
        let mut addresses: Vec<_> = routes
            .map
            .all()
            // Another server may answer at the hosts that the nodes do not prefer.
            .filter_map(|node| routes.map.addresses(node).first())
            .map(|announced| self.mapped(announced))
            .collect();
        fastrand::shuffle(&mut addresses);
        let mut addresses: Vec<_> = self.seeds.iter().cloned().chain(addresses).collect();
        let mut seen = HashSet::default();
        addresses.retain(|address| seen.insert(address.clone()));
        // Requests to them are no more frequent than attempts to connect may be.
        let servers = &self.server().servers;
        let has_turn = |address: &Address| {
            let server = servers.at(&Endpoint::Tcp(address.clone()));
            server.back_off.has_turn()
        };
        let addresses: Vec<_> = addresses
            .into_iter()
            .filter(has_turn)
            .take(MOST_CONNECTING)
            .collect();
        if let Ok(first) = first_answer(self.server(), &addresses).await {
            self.hear(&first.listed);
        }
    }

    pub(super) fn hear(&self, listed: &[Listed]) {
        let routes = self.routes.borrow().clone();
        if routes.map.has_heard(listed) {
            return;
        }
        let is_up = |node| {
            let node = routes.nodes.get(&node);
            node.is_some_and(|node| node.scripts.is_up())
        };
        self.change(|map| map.hear(listed, is_up));
    }
}
