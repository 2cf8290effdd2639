//! Connections to Redis. The rest of the crate reaches servers through [`Redis`] and the [`Batcher`] alone.
//!
//! # The way of one call
//!
//! 1. [`batcher`] lets the call go alone, or [`dispatch`] with other operations of its lane; [`load`] counts them.
//! 2. [`single_server`] or [`cluster`] picks the connection: the one for scripts ([`script_connection`]), or the one for calls that
//!    wait for replicas ([`durable`]). A cluster follows redirections (`cluster/calls.rs`).
//! 3. `script_connection/session.rs` sends `EVALSHA`, and `EVAL` after a `NOSCRIPT`.
//! 4. `socket/driver.rs` writes the command, reads the answers, and gives each command its answer in order. A
//!    [`Connection`](crate::transport::Connection) of the program may stand in its place.
//! 5. [`answered`] splits the answer into those of the operations, which [`frame`] reads.
//!
//! # The way of one message
//!
//! 1. [`Redis::subscribe`] adds the channel to the wanted ones (`subscriptions/wanted.rs`), at the node of its slot where messages
//!    stay within a shard (`cluster/shard_subscriptions.rs`).
//! 2. `subscriptions/session.rs` subscribes on the present connection, and completes the call once the server has confirmed it.
//! 3. `socket/driver.rs` puts a message that arrives into the bounded queue of its connection.
//! 4. [`subscriptions`] passes it on to [`events`], from which the engine takes it.
//!
//! # The way to a connection
//!
//! 1. `script_connection/reconnector.rs` and [`subscriptions`] each keep one connection open. [`connector`] makes it.
//! 2. [`locator`] names the server, and [`reconnect`] says when an attempt may begin.
//! 3. [`opener`] is the trait that opens it: [`socket`] dials and encrypts, [`program_transport`] asks the program's transport.
//! 4. [`log_in`] sends the first commands of one [`handshake`] after the other.
//! 5. [`open_connection`] is the result, whose role and node are checked. [`one_server`] judges whether it leads straight to one
//!    server, which decides what may share a call ([`batch_scope`]).
//! 6. A `PING` that is due (`script_connection/keepalive.rs`) and a second connection ([`liveness`]) show when it is dead.
//!
//! # Files, in reading order
//!
//! | file | what it is |
//! | --- | --- |
//! | [`target`], [`url`], [`fred`] | where to connect, as the settings, a URL or a fred client say |
//! | [`endpoint`], [`resolver`], [`credentials_provider`] | the address of a server; the program's own sources of addresses and credentials |
//! | [`single_server`], [`cluster`] | the two implementations of [`Redis`] |
//! | [`script_connection`], [`durable`], [`subscriptions`] | a connection for each purpose: scripts, calls that wait for replicas, channels |
//! | [`hash_slot`], [`batch_scope`] | the slot of a key; which operations may share a call |
//! | [`answered`], [`frame`] | the answer to a call; values of RESP as replies |
//! | [`events`] | the queue of messages and reconnections to the engine |
//! | [`connector`], [`locator`], [`reconnect`] | how a connection comes about: to which server, and when |
//! | [`opener`], [`socket`], [`tls`], [`program_transport`] | what opens it |
//! | [`address_order`] | which address of a server is tried first |
//! | [`handshake`], [`log_in`], [`reauthentication`] | its first commands, and a new login before its credentials end |
//! | [`open_connection`], [`client_info`], [`one_server`], [`liveness`] | the open connection: checks, its description by the server, its death |
//! | [`connect_error`], [`connect_advice`] | why there is no connection, and what the user can do |
//! | [`publish_rights`], [`eviction`], [`client_names`] | further questions to a server |
//! | [`dispatch`] | several operations in one call |
//! | [`batcher`], [`load`] | the engine at the dispatch |
//! | [`probe`] | requests of the command-line tool |
//! | [`direct`] | servers that answer calls themselves: the models of the simulator |
//! | [`time_limits`] | every time limit of this layer |
//!
//! # No connection of fred's
//!
//! The crate does not use fred's connections, because of the defects of fred 10.1 in docs/pitfalls.md and in docs/design.md
//! under Reasons. This is how it avoids those of docs/pitfalls.md:
//!
//! - P-FR1, P-FR3, P-FR4, P-FR5: a connection never reconnects and never repeats a command. It ends with all its unanswered
//!   calls. A new connection replaces it, and the engine decides what to repeat.
//! - P-FR14, P-FR16: each script call carries many operations ([`Batcher`]); a `NOSCRIPT` leads to one `EVAL`.
//! - P-FR6, P-FR7, P-FR8, P-FR9: subscriptions have a connection of their own, on which one task subscribes. The answer is
//!   the server's confirmation or its error ([`subscriptions`]). A lag wakes all waiters.
//! - P-FR11, P-FR12: a cluster has a connection per node, by the crate's own map of slots ([`cluster`]).
//! - P-FR13: `WAIT` has a connection of its own ([`durable`]).
//! - P-FR15: the crate refuses TLS that is not compiled in. It sets `TCP_NODELAY` and requests RESP3 ([`socket`],
//!   [`fred`]).

mod address_order;
mod answered;
mod batch_scope;
mod batcher;
mod client_info;
mod client_names;
mod cluster;
mod connect_advice;
mod connect_error;
mod connector;
mod credentials_provider;
#[cfg(feature = "__simulation")]
pub mod direct;
mod dispatch;
mod durable;
mod endpoint;
mod events;
mod eviction;
mod frame;
#[cfg(feature = "fred")]
mod fred;
#[cfg(test)]
mod fuzz_tests;
mod handshake;
mod hash_slot;
mod liveness;
mod load;
mod locator;
mod log_in;
mod one_server;
mod open_connection;
mod opener;
pub mod probe;
#[cfg(feature = "transport")]
mod program_transport;
mod publish_rights;
mod reauthentication;
mod reconnect;
mod resolver;
mod script_connection;
mod single_server;
mod socket;
mod subscriptions;
mod target;
mod time_limits;
mod tls;
mod url;

use std::sync::Arc;

use bytes::Bytes;
use tokio::{runtime::Handle, time::Instant};
use tokio_util::task::TaskTracker;

#[cfg(feature = "fred")]
pub(crate) use self::fred::FredClient;
pub use answered::Answered;
pub(crate) use batcher::Batcher;
pub use client_names::ClientNames;
use cluster::Cluster;
pub(crate) use credentials_provider::CredentialsProvider;
#[cfg(feature = "blocking")]
pub(crate) use dispatch::together::Apart;
pub(crate) use dispatch::together::{Clients, address, send_together};
use durable::Wait;
pub(crate) use endpoint::AddressMap;
pub use events::EventSender;
pub(crate) use events::Events;
pub use hash_slot::HashSlot;
use hash_slot::SLOTS;
pub(crate) use resolver::Resolver;
use single_server::SingleServer;
pub(crate) use target::Target;
use target::Way;
pub(crate) use tls::{SecretFile, TlsSettings};

use crate::{
    config::Config,
    durability::Durability,
    error::{Cause, Error},
    hash::HashSet,
    wire::{
        Refusal,
        script::{Operation, Script},
    },
};

/// A boxed future.
pub type BoxFuture<T> = crate::transport::BoxFuture<'static, T>;

/// One logical Redis server, limited to the features that locks need.
pub trait Redis: Send + Sync {
    /// The slot of a key.
    fn slot(&self, key: &[u8]) -> HashSlot;

    /// Whether all keys and channels of a name must be in one slot.
    fn is_cluster(&self) -> bool {
        false
    }

    /// Whether a script that publishes receives the number of all listeners. On a cluster, nodes forward messages, but
    /// count only their own listeners.
    fn counts_listeners(&self) -> bool {
        true
    }

    /// Whether operations of different slots queue apart.
    fn queues_by_slot(&self) -> bool {
        self.is_cluster()
    }

    /// Records that the server has refused `operations` together, and has run each of them alone.
    fn refused_together(&self, _operations: &[Operation]) {}

    /// Runs `operations` of one script and one slot in one call, and waits for replicas by `durability`. Returns one reply
    /// per operation.
    ///
    /// A drop of the future may leave the call under way.
    fn call(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
        durability: Durability,
    ) -> BoxFuture<Result<Vec<Answered>, CallError>>;

    /// The number of replicas that are listed for `slot`, if there is a list. A call that waits for replicas uses another
    /// connection.
    fn replicas(&self, slot: HashSlot) -> usize;

    /// Completes once calls of `slot` and `durability` have their connections. A call that waits for replicas needs two.
    fn ready(&self, slot: HashSlot, durability: Durability) -> BoxFuture<()>;

    /// Whether [`ready`](Self::ready) would complete at once. Begins to open a connection that no call has used yet.
    fn is_ready(&self, slot: HashSlot, durability: Durability) -> bool;

    /// Whether every slot is served, as far as the client knows, by a server to which there is a connection.
    fn is_connected(&self) -> bool;

    /// Why the server of `slot` does not answer calls of `durability`; `None` if it does.
    fn trouble(&self, slot: HashSlot, durability: Durability) -> Option<Arc<Cause>>;

    /// The refusal that has kept the first connection from opening, if no other server could be meant.
    fn refused_start(&self) -> Option<Error> {
        None
    }

    /// The address of the server of `slot`, if it is known.
    fn server_of(&self, slot: HashSlot) -> Option<String>;

    /// Pings all servers that receive scripts. Completes when each has answered.
    fn ping(&self) -> BoxFuture<Result<(), CallError>>;

    /// Asks the server of `key` whether scripts may publish to `channel`: its words if they may not. `None` if the client knows that
    /// they may, or has no connection to ask by.
    fn refused_message(&self, key: &Bytes, channel: &Bytes) -> Option<BoxFuture<Option<String>>>;

    /// Asks the server of `key` for the names of the clients of this crate that are connected to it; the answer is `None` if the server
    /// does not tell. `None` without a connection to ask by, and where a peer may end it on the question.
    fn client_names(&self, key: &Bytes) -> Option<BoxFuture<Option<ClientNames>>>;

    /// Whether clients listen to `channel` by the other way of publishing (`PUBLISH` or `SPUBLISH`). `None` if there is
    /// only one way.
    fn heard_elsewhere(&self, _channel: &Bytes) -> Option<BoxFuture<bool>> {
        None
    }

    /// Subscribes to `channel`, on new connections if need be. Completes when the server has confirmed it.
    fn subscribe(&self, channel: Bytes) -> BoxFuture<Result<(), CallError>>;

    /// Ends the subscription to `channel`, in the background.
    fn unsubscribe(&self, channel: Bytes);

    /// Closes the connections. Pending calls return [`CallError::Closed`].
    fn close(&self) -> BoxFuture<()>;
}

/// An event of the connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// A message on a channel.
    Message { channel: Bytes, payload: Bytes },
    /// Messages may have been lost. All subscriptions are in place again.
    MessagesMissed,
    /// Scripts have a new connection: the server may have lost holds.
    Reconnected,
    /// The same for some slots of a cluster, which have a new owner.
    Moved(HashSet<HashSlot>),
    /// Messages to these channels may have been lost.
    MissedIn(HashSet<HashSlot>),
}

/// Why a call has no replies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallError {
    /// The connection broke. The server may have run the call, but will not run it later.
    Unanswered {
        /// Why there is no answer.
        reason: Arc<str>,
        /// The time before the call was handed to its connection.
        sent: Instant,
    },
    /// The server refused the whole call.
    Refused(Refusal),
    /// The client was closed.
    Closed,
}

/// The tasks of the connections, on the runtime that started them. Calls may come from other runtimes.
#[derive(Clone)]
struct Tasks {
    tracker: TaskTracker,
    runtime: Handle,
}

impl Tasks {
    fn here() -> Self {
        Self {
            tracker: TaskTracker::new(),
            runtime: Handle::current(),
        }
    }

    /// Boxes the task, so that one type of task is compiled instead of one for each caller.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let task: BoxFuture<()> = Box::pin(task);
        self.tracker.spawn_on(task, &self.runtime);
    }

    /// Completes when all tasks have ended.
    fn ended(&self) -> BoxFuture<()> {
        self.tracker.close();
        let tracker = self.tracker.clone();
        Box::pin(async move { tracker.wait().await })
    }
}

pub(crate) type Connected = (Arc<dyn Redis>, Events);

/// Connects to the servers of `target`.
///
/// Boxed: the nested futures of a connect exceed the compiler's limits in its callers.
pub(crate) fn connect(mut target: Target, config: &Config) -> BoxFuture<Result<Connected, Error>> {
    let wait = Wait {
        longest: config.replica_wait,
        for_disk: config.wait_for_disk,
    };
    let sharded = config.sharded_pubsub;
    Box::pin(async move {
        let connected: Connected = match &mut target.way {
            Way::Cluster(seeds) => {
                let seeds = std::mem::take(seeds);
                let (cluster, events) = Cluster::connect(target, seeds, sharded, wait).await?;
                (Arc::new(cluster), events)
            }
            Way::Named | Way::Asked(_) => {
                let (server, events) = SingleServer::connect(target, wait).await?;
                (Arc::new(server), events)
            }
            #[cfg(feature = "__simulation")]
            Way::Direct(server) => {
                let (sender, events) = events::channel();
                (server.connect(sender).await?, events)
            }
        };
        Ok(connected)
    })
}
