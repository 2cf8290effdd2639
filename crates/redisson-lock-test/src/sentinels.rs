//! Sentinels: they detect a silent master, and promote a replica.
//!
//! They are one state machine, in which each sentinel learns of a failover at its own time. Their clock is tokio's, and a seed
//! determines all randomness.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::Duration,
};

use fastrand::Rng;
use tokio::time::Instant;

use super::{
    Server, Settings,
    faults::MasterChange,
    network::{Network, State},
    replication::Replication,
    server::{OtherSentinel, SentinelView},
};
use crate::Address;

/// The name of the monitored service.
pub(super) const SERVICE: &str = "in-memory";
const NODES: u16 = 3;
const SENTINELS: u16 = 3;

/// The silence after which a master counts as down, in milliseconds.
const DOWN_AFTER: Range<u64> = 100..600;
/// The time until the sentinels agree on a leader.
const ELECTION: Range<u64> = 20..300;
/// The delay until the other sentinels learn of a failover.
const NEWS: Range<u64> = 1..400;
/// The delay until a replica is reconfigured for its new master.
const RECONFIGURATION: Range<u64> = 10..400;
/// The delay until an old master that is back is reconfigured.
const CONVERSION: Range<u64> = 50..3_000;

pub(super) struct Sentinels {
    pub(super) network: Network,
    random: Rng,
    pub(super) nodes: Vec<Address>,
    pub(super) sentinels: Vec<Sentinel>,
    /// The latest master.
    pub(super) master: Address,
    epoch: u64,
    /// The time of the failover of a silent master.
    replacing: Option<Replacing>,
    /// The time at which a server is reconfigured to follow the master.
    orders: BTreeMap<Address, Instant>,
    /// Servers that only clients can reach.
    isolated: BTreeSet<Address>,
    /// The replaced masters that serve clients.
    serving: Vec<Address>,
    /// Until this time, the leader of the last failover reconfigures the replicas.
    moving_until: Instant,
    leader: usize,
}

pub(super) struct Sentinel {
    pub(super) address: Address,
    master: Address,
    epoch: u64,
    /// The time at which it learns of the latest failover.
    hears: Option<Instant>,
}

/// A silent master.
#[derive(Clone, Copy)]
struct Replacing {
    is_down_at: Instant,
    at: Instant,
}

impl Sentinels {
    /// Adds a master, its replicas and their sentinels to a network.
    pub(super) fn new(network: Network, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let at = |name: &str, number: u16, port: u16| (format!("{name}-{number}"), port);
        let nodes: Vec<Address> = (1..=NODES).map(|number| at("node", number, 6379)).collect();
        let master = nodes[0].clone();
        let sentinels = (1..=SENTINELS).map(|number| Sentinel {
            address: at("sentinel", number, 26379),
            master: master.clone(),
            epoch: 0,
            hears: None,
        });
        let now = Instant::now();
        let mut state = network.state();
        state.replication = Some(Replication::new(random.fork()));
        for node in &nodes {
            let settings = Settings {
                address: format!("{}:{}", node.0, node.1),
                ..Settings::default()
            };
            state.add(node.clone(), Server::new(settings));
        }
        for replica in &nodes[1..] {
            state.follow(replica, &master, now);
        }
        let sentinels: Vec<Sentinel> = sentinels.collect();
        for sentinel in &sentinels {
            state.add(sentinel.address.clone(), Server::new(Settings::default()));
        }
        drop(state);
        let made = Self {
            network,
            random,
            nodes,
            sentinels,
            master,
            epoch: 0,
            replacing: None,
            orders: BTreeMap::new(),
            isolated: BTreeSet::new(),
            serving: Vec::new(),
            moving_until: now,
            leader: 0,
        };
        made.tell(&mut made.network.state(), now);
        made
    }

    fn after(&mut self, millis: Range<u64>) -> Duration {
        Duration::from_millis(self.random.u64(millis))
    }

    /// Runs the due steps.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        let network = self.network.clone();
        let mut state = network.state();
        self.replace_if_silent(&mut state, now);
        self.give_orders(&mut state, now);
        for sentinel in &mut self.sentinels {
            let is_up = is_up(&state, &sentinel.address);
            if is_up && sentinel.hears.take_if(|hears| *hears <= now).is_some() {
                (sentinel.master, sentinel.epoch) = (self.master.clone(), self.epoch);
            }
        }
        self.tell(&mut state, now);
        self.note_split(&mut state);
    }

    fn replace_if_silent(&mut self, state: &mut State, now: Instant) {
        if self.is_reachable(state, &self.master) {
            self.replacing = None;
            return;
        }
        let Some(replacing) = self.replacing else {
            let is_down_at = now + self.after(DOWN_AFTER);
            let at = is_down_at + self.after(ELECTION);
            self.replacing = Some(Replacing { is_down_at, at });
            return;
        };
        let awake = self
            .sentinels
            .iter()
            .filter(|sentinel| is_up(state, &sentinel.address));
        if replacing.at <= now && awake.count() > self.sentinels.len() / 2 {
            self.fail_over(state, now);
        }
    }

    /// Promotes the replica with the largest offset. Returns whether there was one.
    pub(super) fn fail_over(&mut self, state: &mut State, now: Instant) -> bool {
        state.catch_up(now);
        let received = |node: &Address| state.replication.as_ref()?.received(node);
        let candidates = self
            .nodes
            .iter()
            .filter(|node| **node != self.master && self.is_reachable(state, node));
        let candidates: Vec<_> = candidates
            .filter_map(|node| Some((received(node)?, node.clone())))
            .collect();
        let most = candidates.iter().map(|(received, _)| *received).max();
        let best: Vec<_> = candidates
            .into_iter()
            .filter(|(received, _)| Some(*received) == most)
            .collect();
        let Some((_, promoted)) = self.random.choice(best) else {
            return false;
        };
        state.promote(&promoted, &self.master, now);
        self.master = promoted;
        self.epoch += 1;
        (self.replacing, self.leader) = (None, self.random.usize(..self.sentinels.len()));
        self.moving_until = now + self.after(RECONFIGURATION);
        self.orders.clear();
        for index in 0..self.sentinels.len() {
            let later = match index == self.leader {
                true => Duration::ZERO,
                false => self.after(NEWS),
            };
            self.sentinels[index].hears = Some(now + later);
        }
        self.note_split(state);
        true
    }

    /// Reconfigures all reachable servers to follow the master, each after a delay.
    fn give_orders(&mut self, state: &mut State, now: Instant) {
        for node in self.nodes.clone() {
            let follows = state
                .replication
                .as_ref()
                .is_some_and(|replication| replication.follows(&self.master, &node));
            if node == self.master || follows || !self.is_reachable(state, &node) {
                self.orders.remove(&node);
                continue;
            }
            if !self.is_reachable(state, &self.master) {
                continue;
            }
            let within = if state.is_master(&node) {
                CONVERSION
            } else {
                RECONFIGURATION
            };
            let due = match self.orders.get(&node) {
                Some(due) => *due,
                None => now + self.after(within),
            };
            self.orders.insert(node.clone(), due);
            if due <= now {
                self.orders.remove(&node);
                state.follow(&node, &self.master, now);
            }
        }
    }

    /// Updates the replies of each sentinel.
    fn tell(&self, state: &mut State, now: Instant) {
        let id = |index: usize| format!("{:040x}", index + 1);
        for (index, sentinel) in self.sentinels.iter().enumerate() {
            let others = self.sentinels.iter().enumerate();
            let others = others.filter(|(other, _)| *other != index);
            let is_latest = sentinel.epoch == self.epoch;
            let view = SentinelView {
                id: id(index),
                service: SERVICE.into(),
                master: sentinel.master.clone(),
                epoch: sentinel.epoch,
                replicas: self.nodes.len() - 1,
                others: others
                    .map(|(other, sentinel)| OtherSentinel {
                        id: id(other),
                        address: sentinel.address.clone(),
                    })
                    .collect(),
                is_down: is_latest && self.replacing.is_some_and(|down| down.is_down_at <= now),
                is_failing_over: is_latest && index == self.leader && now < self.moving_until,
            };
            if let Some(host) = state.servers.get_mut(&sentinel.address) {
                host.server.settings.sentinel = Some(view);
            }
        }
    }

    /// Reports a change of the replaced masters that serve clients. Each of them makes grants that the master lacks.
    pub(super) fn note_split(&mut self, state: &mut State) {
        let serves = |node: &&Address| {
            **node != self.master && state.is_master(node) && is_awake(state, node)
        };
        let serving: Vec<Address> = self.nodes.iter().filter(serves).cloned().collect();
        if serving != self.serving {
            state.faults.master_changed(&match serving.is_empty() {
                false => MasterChange::OldMasterServes,
                true => MasterChange::OldMasterGone,
            });
            self.serving = serving;
        }
    }

    /// Separates a server from everything but clients.
    pub(super) fn isolate(&mut self, node: &Address) {
        self.isolated.insert(node.clone());
    }

    pub(super) fn end_isolations(&mut self) {
        self.isolated.clear();
    }

    fn is_reachable(&self, state: &State, node: &Address) -> bool {
        is_awake(state, node) && !self.isolated.contains(node)
    }

    /// Whether all failovers and outages are over.
    pub(super) fn is_settled(&self, state: &State) -> bool {
        let is_in_place = |node: &Address| {
            let replication = state.replication.as_ref();
            let has_all = replication.is_some_and(|replication| {
                replication.follows(&self.master, node) && replication.received(node).is_some()
            });
            self.is_reachable(state, node) && (*node == self.master || has_all)
        };
        self.nodes.iter().all(is_in_place)
            && self
                .sentinels
                .iter()
                .all(|sentinel| sentinel.epoch == self.epoch)
    }
}

fn is_up(state: &State, server: &Address) -> bool {
    state.servers.get(server).is_some_and(|host| host.is_up)
}

/// Whether a server runs commands.
fn is_awake(state: &State, server: &Address) -> bool {
    let host = state.servers.get(server);
    let is_paused = host.is_none_or(|host| host.paused_until.is_some());
    is_up(state, server) && !is_paused
}
