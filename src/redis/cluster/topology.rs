//! The map of the slots, and a connection to each node that has slots.

use std::sync::{Arc, Mutex};

use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    asking_connection::{AskingConnection, AskingConnections},
    node_list::Preferred,
    redirection::Redirectors,
    seeds::{FirstAnswer, connector},
    slot_map::{NodeIndex, SLOTS, SlotMap},
};
use crate::{
    durability::Durability,
    hash::{HashMap, HashSet},
    redis::{
        Event, EventSender, HashSlot, Tasks,
        connector::Connector,
        durable::{Durable, Durables, Wait},
        endpoint::{Address, AddressMap, Endpoint},
        eviction::Evictions,
        opener::ServerConfig,
        reconnect::KnownServer,
        script_connection::ScriptConnection,
        subscriptions::ShardMap,
    },
    sync::lock,
    wire::script::Publishing,
};

/// The connection to the owner of each slot.
pub(super) struct Routes {
    pub(super) map: SlotMap,
    pub(super) nodes: HashMap<NodeIndex, Arc<Node>>,
}

/// A node that has slots.
pub(super) struct Node {
    /// The address by which the cluster names it.
    pub(super) announced: Address,
    /// The address at which this client reaches it.
    pub(super) address: Address,
    pub(super) scripts: ScriptConnection,
    durables: Durables,
    closed: CancellationToken,
    /// Kept while it is a node: it has the other hosts that lead to it.
    _known_server: Arc<KnownServer>,
}

/// The client's view of a cluster, which it keeps up to date.
pub(in crate::redis) struct Topology {
    server: ServerConfig,
    /// The nodes of the URL.
    pub(super) seeds: Vec<Address>,
    address_map: Option<AddressMap>,
    pub(super) preferred: Preferred,
    pub(super) publishing: Publishing,
    pub(super) routes: watch::Sender<Arc<Routes>>,
    /// Locked while new routes are made from the present ones.
    changing: Mutex<()>,
    pub(super) asking_connections: AskingConnections,
    /// The last node that was chosen for calls to any node.
    pub(super) any: Mutex<Option<Address>>,
    pub(super) refresh_requests: Notify,
    redirectors: Redirectors,
    evictions: Evictions,
    events: EventSender,
    pub(super) closed: CancellationToken,
    pub(super) wait: Wait,
    pub(super) tasks: Tasks,
}

impl Routes {
    pub(super) fn node(&self, slot: HashSlot) -> Option<&Arc<Node>> {
        self.nodes.get(&self.map.owner(slot)?)
    }

    /// Whether every slot has a connection.
    pub(super) fn is_whole(&self) -> bool {
        self.map.is_whole() && self.nodes.values().all(|node| node.scripts.is_up())
    }

    pub(super) fn nodes(&self) -> impl Iterator<Item = &Arc<Node>> {
        self.nodes.values()
    }
}

impl Node {
    /// Whether the node has no slots any more.
    pub(super) fn has_left(&self) -> bool {
        self.closed.is_cancelled()
    }
}

impl ShardMap for Topology {
    /// Requests a new view soon, after a contradiction.
    fn request_refresh(&self) {
        self.refresh_requests.notify_one();
    }
}

impl Topology {
    pub(super) fn new(
        server: ServerConfig,
        seeds: Vec<Address>,
        address_map: Option<AddressMap>,
        publishing: Publishing,
        wait: Wait,
        first: FirstAnswer,
        events: EventSender,
    ) -> Self {
        let none = Routes {
            map: SlotMap::new(),
            nodes: HashMap::default(),
        };
        let topology = Self {
            evictions: Evictions::of(&server),
            server,
            seeds,
            address_map,
            preferred: first.preferred,
            publishing,
            routes: watch::Sender::new(Arc::new(none)),
            changing: Mutex::default(),
            asking_connections: AskingConnections::default(),
            any: Mutex::default(),
            refresh_requests: Notify::new(),
            redirectors: Redirectors::default(),
            events,
            closed: CancellationToken::new(),
            wait,
            tasks: Tasks::here(),
        };
        topology.hear(&first.listed);
        topology
    }

    /// The settings of a connection to any node. Their address is not used.
    pub(super) fn server(&self) -> &ServerConfig {
        &self.server
    }

    /// Connects to the node at `address`.
    pub(super) fn connector(&self, address: &Address, messages: usize) -> Connector {
        connector(&self.server, address, messages)
    }

    /// Applies a redirection: the node at `asked` names the node that announces `address` as the owner of `slot`. Returns whether
    /// the caller may repeat the call now, at the owner of the slot.
    pub(super) fn moved(&self, slot: HashSlot, asked: &Address, address: &Address) -> bool {
        let (announced, new) = (self.announced_for(asked), self.announced_for(address));
        let follows = self.redirectors.admit(slot, announced, &new);
        if follows {
            self.change(|map| map.moved(slot, asked, address));
        }
        self.request_refresh();
        follows
    }

    /// Changes the map, and the connections by it. Has the holds of moved slots verified.
    pub(super) fn change(&self, change: impl FnOnce(&mut SlotMap)) {
        // Calls read the routes meanwhile: the lock of the channel would delay them.
        let changing = lock(&self.changing);
        let routes = self.routes.borrow().clone();
        let mut map = routes.map.clone();
        change(&mut map);
        let same = |slot| {
            let node = map.owner(slot);
            node == routes.map.owner(slot)
                && node.is_none_or(|node| {
                    let known = routes.nodes.get(&node).map(|known| &known.announced);
                    known == map.addresses(node).first()
                })
        };
        let slots = 0..SLOTS as HashSlot;
        let moved: HashSet<_> = slots.filter(|slot| !same(*slot)).collect();
        let has_hosts = |node: &NodeIndex| map.addresses(*node) == routes.map.addresses(*node);
        let nodes = if moved.is_empty() && routes.nodes.keys().all(has_hosts) {
            routes.nodes.clone()
        } else {
            self.nodes(&map, &routes.nodes)
        };
        let is_modified = !moved.is_empty() || map.is_whole() != routes.map.is_whole();
        let changed = Arc::new(Routes { map, nodes });
        self.routes.send_if_modified(|routes| {
            *routes = changed;
            is_modified
        });
        drop(changing);
        if !moved.is_empty() {
            let _ = self.events.send(Event::Moved(moved));
        }
    }

    /// Sets the nodes that own slots. A node without slots is dropped, and its connection with it.
    fn nodes(
        &self,
        map: &SlotMap,
        old: &HashMap<NodeIndex, Arc<Node>>,
    ) -> HashMap<NodeIndex, Arc<Node>> {
        let node = |index| {
            let announces = map.addresses(index);
            let is_there = |node: &&Arc<Node>| Some(&node.announced) == announces.first();
            let known = old.get(&index).filter(is_there).cloned();
            let address = match &known {
                Some(known) => known.address.clone(),
                None => self.mapped(&announces[0]),
            };
            let known_server = self.server.servers.at(&Endpoint::Tcp(address.clone()));
            let others = announces[1..].iter().map(|other| self.mapped(other));
            let id = map.id(index).to_owned();
            known_server.address_order.set_node(id, others.collect());
            let open = || Arc::new(self.open_node(&announces[0], address, known_server));
            (index, known.unwrap_or_else(open))
        };
        let nodes: HashMap<_, _> = map.owners().into_iter().map(node).collect();
        for old in old.values() {
            let stays = |node: &Arc<Node>| Arc::ptr_eq(node, old);
            if !nodes.values().any(stays) {
                // Pending calls to it must go to another node.
                old.closed.cancel();
            }
        }
        nodes
    }

    /// The address by which this client names the node with `address`; `address` itself for an unknown node.
    fn announced_for(&self, address: &Address) -> Address {
        let routes = self.routes.borrow();
        let node = routes.map.at(address);
        let announced = node.and_then(|node| routes.map.addresses(node).first());
        announced.unwrap_or(address).clone()
    }

    fn open_node(
        &self,
        announced: &Address,
        address: Address,
        known_server: Arc<KnownServer>,
    ) -> Node {
        let closed = self.closed.child_token();
        let scripts = self.script_connection(self.connector(&address, 1), &closed);
        self.report_opened(&scripts);
        self.tasks
            .spawn(self.evictions.clone().look(scripts.clone()));
        Node {
            _known_server: known_server,
            announced: announced.clone(),
            address,
            scripts,
            durables: Durables::default(),
            closed,
        }
    }

    /// Has the holds on a node's slots verified once there is a connection: without one, they are not.
    fn report_opened(&self, scripts: &ScriptConnection) {
        let (opening, events) = (scripts.clone(), self.events.clone());
        self.tasks.spawn(async move {
            if opening.ready().await.is_ok() {
                let _ = events.send(Event::Reconnected);
            }
        });
    }

    fn script_connection(
        &self,
        connector: Connector,
        closed: &CancellationToken,
    ) -> ScriptConnection {
        let (events, closed) = (self.events.clone(), closed.clone());
        ScriptConnection::keep(connector, None, events, closed, &self.tasks)
    }

    /// The connection to `node` for calls of this durability.
    pub(super) fn durable(self: &Arc<Self>, node: &Arc<Node>, durability: Durability) -> Durable {
        node.durables.get(durability, || {
            let connector = self.connector(&node.address, 1).blocking(self.wait.longest);
            let connection = self.script_connection(connector, &node.closed);
            self.report_opened(&connection);
            let (topology, announced) = (Arc::downgrade(self), node.announced.clone());
            let listed = Box::new(move || {
                let topology = topology.upgrade();
                topology.map_or(0, |topology| topology.replicas_at(&announced))
            });
            let (scripts, publishing) = (node.scripts.clone(), self.publishing);
            let (wait, tasks) = (self.wait, &self.tasks);
            Durable::start(
                connection, scripts, publishing, wait, durability, listed, tasks,
            )
        })
    }

    /// The number of replicas of the owner of `slot`, including replicas that are down.
    pub(super) fn replicas(&self, slot: HashSlot) -> usize {
        let routes = self.routes.borrow();
        let owner = routes.map.owner(slot);
        owner.map_or(0, |node| routes.map.replicas(node))
    }

    /// The same for the node that announces `address`.
    pub(super) fn replicas_at(&self, address: &Address) -> usize {
        let routes = self.routes.borrow();
        let node = routes.map.at(address);
        node.map_or(0, |node| routes.map.replicas(node))
    }

    pub(super) fn mapped(&self, announced: &Address) -> Address {
        match &self.address_map {
            Some(map) => map(&announced.0, announced.1),
            None => announced.clone(),
        }
    }

    /// The connection for `ASKING` to the node that announces `address`; `None` if there are too many.
    pub(super) fn asking_connection(&self, address: &Address) -> Option<Arc<AskingConnection>> {
        let announced = self.announced_for(address);
        self.asking_connections.get(&announced, || {
            let closed = self.closed.child_token();
            let connector = self.connector(&self.mapped(&announced), 1);
            let connection = self.script_connection(connector.blocking(self.wait.longest), &closed);
            AskingConnection::new(connection, closed)
        })
    }
}

#[cfg(all(test, feature = "rustls"))]
#[path = "topology_tests.rs"]
mod tests;
