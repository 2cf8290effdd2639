//! Random changes of the slots and nodes of a cluster during a history.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use histories::{
    actor::Scene,
    profiles::{CALM, CUTS, OUTAGES, Profile},
};
use redisson_lock_test::simulation::{Cluster, Move};
use tokio::time::sleep;

use crate::world::client_shutdowns::{self, CLOSINGS};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClusterFault {
    None,
    /// Slots move, key by key.
    Moves,
    /// Nodes are unreachable for a while.
    Stops,
    /// Nodes keep their connections, and answer nothing for a while.
    Hangs,
    /// All nodes are unreachable for a while, and have other addresses afterwards.
    Relocates,
    /// A slot has no owner for a while, so the cluster serves no slot.
    Disowns,
    /// Nodes die, and replicas take over their slots with all keys.
    TakesOver,
    /// Nodes die, and other nodes take over their slots without the keys, after the last validity has ended.
    TakesOverEmpty,
}

/// Slots move and nothing is lost: a client notices a message that went to another node.
const MOVES: Profile = Profile {
    watchdog_lease: Duration::from_secs(2),
    disturbed: Some(Duration::from_millis(300)),
    ..CALM
};

/// Nodes are unreachable for less than a lease.
const STOPS: Profile = Profile {
    disturbed: Some(Duration::from_millis(700)),
    command_wait: Duration::from_secs(1),
    ..MOVES
};

/// All nodes are unreachable for less than a lease. A client then needs the names of the nodes.
const RELOCATIONS: Profile = Profile {
    watchdog_lease: Duration::from_secs(6),
    ..STOPS
};

/// Nodes hang for longer than a call waits for an answer, and than a lease lasts.
const HANGS: Profile = Profile {
    watchdog_lease: Duration::from_secs(3),
    disturbed: Some(Duration::from_secs(5)),
    ..STOPS
};

/// Leases are short, so that a history can outwait them. A new node may die with the queue before a client learns that the slot moved.
/// No connection shows the client's waiters that loss, so they need polls.
const DEATHS: Profile = Profile {
    watchdog_lease: Duration::from_millis(600),
    max_poll_interval: Duration::from_secs(5),
    ..STOPS
};

/// The conditions of histories on a cluster. The last two also disturb connections.
pub const PROFILES: [(&str, Profile, ClusterFault); 11] = [
    ("calm", CALM, ClusterFault::None),
    (client_shutdowns::NAME, CLOSINGS, ClusterFault::None),
    ("moves", MOVES, ClusterFault::Moves),
    ("stops", STOPS, ClusterFault::Stops),
    ("hangs", HANGS, ClusterFault::Hangs),
    ("relocated", RELOCATIONS, ClusterFault::Relocates),
    ("disowned", STOPS, ClusterFault::Disowns),
    ("deaths", STOPS, ClusterFault::TakesOver),
    ("losses", DEATHS, ClusterFault::TakesOverEmpty),
    ("cuts", CUTS, ClusterFault::None),
    ("outages", OUTAGES, ClusterFault::Moves),
];

/// Whether the connections of a profile are disturbed.
pub fn has_connection_faults(profile: &str) -> bool {
    ["cuts", "outages"].contains(&profile)
}

/// Injects one fault after the other.
pub struct ClusterFaults {
    pub fault: ClusterFault,
    pub cluster: Cluster,
    pub scene: Arc<Scene>,
    pub random: Rng,
}

impl ClusterFaults {
    /// Injects faults until the history is over.
    pub async fn inject(mut self, longest: Duration) {
        while !self.scene.is_over() {
            self.pause(longest).await;
            match self.fault {
                ClusterFault::None => return,
                ClusterFault::Moves => self.moves_a_slot(longest).await,
                ClusterFault::Stops => self.stops_a_node(longest).await,
                ClusterFault::Hangs => self.hangs_a_node(longest).await,
                ClusterFault::Relocates => self.relocates_all_nodes(longest).await,
                ClusterFault::Disowns => self.disowns_a_slot(longest).await,
                ClusterFault::TakesOver => self.kills_a_node(longest, true).await,
                ClusterFault::TakesOverEmpty => self.kills_a_node(longest, false).await,
            }
        }
    }

    async fn pause(&mut self, longest: Duration) {
        sleep(longest.mul_f64(self.random.f64())).await;
    }

    fn log(&self, what: String) {
        self.scene.log.fault(what);
    }

    /// The slot of a lock of the history.
    fn slot(&mut self) -> u16 {
        let name = self.random.choice(&self.scene.names);
        Cluster::slot_of(name.expect("a history has names"))
    }

    fn another_than(&mut self, node: usize) -> usize {
        let nodes = self.cluster.nodes();
        (node + self.random.usize(1..nodes)) % nodes
    }

    async fn moves_a_slot(&mut self, longest: Duration) {
        let slot = self.slot();
        let from = self.cluster.owner(slot).expect("each slot has an owner");
        let to = self.another_than(from);
        let Some(moving) = self.cluster.begin_move(slot, to) else {
            return;
        };
        self.log(format!("slot {slot} leaves node {from} for node {to}"));
        self.pause(longest / 4).await;
        while self.cluster.move_key(moving) {
            self.log(format!("slot {slot}: a key has moved"));
            self.pause(longest / 4).await;
        }
        self.pause(longest).await;
        self.ends_a_move(moving, longest).await;
    }

    /// Tells the new owner, the old owner and the remaining nodes one after the other.
    async fn ends_a_move(&mut self, moving: Move, longest: Duration) {
        let Move { slot, from, to } = moving;
        self.cluster.end_move(moving);
        self.log(format!("slot {slot} is of node {to}"));
        let mut others: Vec<usize> = (0..self.cluster.nodes()).collect();
        others.retain(|node| ![from, to].contains(node));
        for node in [from].into_iter().chain(others) {
            if self.random.bool() {
                self.pause(longest / 4).await;
            }
            self.cluster.hear_all(node);
        }
    }

    async fn stops_a_node(&mut self, longest: Duration) {
        let node = self.random.usize(..self.cluster.nodes());
        self.cluster.stop(node);
        self.log(format!("node {node} is stopped"));
        self.pause(longest).await;
        self.cluster.start(node);
        self.log(format!("node {node} is started"));
    }

    async fn relocates_all_nodes(&mut self, longest: Duration) {
        let nodes = 0..self.cluster.nodes();
        nodes.clone().for_each(|node| self.cluster.stop(node));
        self.log("all nodes are stopped".into());
        self.pause(longest).await;
        self.cluster.move_elsewhere();
        nodes.for_each(|node| self.cluster.start(node));
        self.log("all nodes are started at other addresses".into());
    }

    async fn hangs_a_node(&mut self, longest: Duration) {
        let node = self.random.usize(..self.cluster.nodes());
        let time = longest.mul_f64(self.random.f64());
        self.cluster.hang(node, time);
        self.log(format!("node {node} hangs for {time:?}"));
        sleep(time).await;
    }

    async fn disowns_a_slot(&mut self, longest: Duration) {
        let slot = self.slot();
        let owner = self.cluster.owner(slot).expect("each slot has an owner");
        self.cluster.disown(slot);
        self.log(format!("slot {slot} has no owner"));
        self.pause(longest).await;
        self.cluster.give(slot, owner);
        self.log(format!("slot {slot} is of node {owner} again"));
    }

    async fn kills_a_node(&mut self, longest: Duration, with_keys: bool) {
        let node = self.random.usize(..self.cluster.nodes());
        let successor = self.another_than(node);
        self.cluster.stop(node);
        self.log(format!("node {node} has died"));
        if !with_keys {
            sleep(self.scene.profile.watchdog_lease).await;
        }
        self.pause(longest).await;
        // A fenced lock whose counter is lost starts again at one, as its documentation says, so the counter stays.
        let has = |key: &[u8]| with_keys || key.starts_with(b"redisson_lock_token");
        self.cluster.take_over(node, successor, has);
        self.log(format!("node {successor} has the slots of node {node}"));
        self.pause(longest / 4).await;
        for other in 0..self.cluster.nodes() {
            self.cluster.hear_all(other);
        }
        match self.random.bool() {
            true => self.pause(longest).await,
            false => self.all_is_over(longest).await,
        }
        self.cluster.start(node);
        self.log(format!("node {node} is back"));
        self.returns_slots(node, successor);
    }

    /// Waits for the end of the history: without the dead node, every call must still end.
    async fn all_is_over(&self, longest: Duration) {
        while !self.scene.is_over() {
            sleep(longest).await;
        }
    }

    /// Gives some slots back to the node, so that each node has locks of the history.
    fn returns_slots(&mut self, node: usize, successor: usize) {
        let slots: Vec<u16> = self
            .scene
            .names
            .iter()
            .map(|name| Cluster::slot_of(name))
            .collect();
        for slot in slots {
            let owner = self.cluster.owner(slot);
            if owner == Some(successor) && self.random.bool() {
                let moving = self.cluster.begin_move(slot, node);
                moving
                    .into_iter()
                    .for_each(|moving| self.cluster.end_move(moving));
            }
        }
        (0..self.cluster.nodes()).for_each(|other| self.cluster.hear_all(other));
    }
}
