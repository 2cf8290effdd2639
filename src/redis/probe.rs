//! Requests of the command-line tool to the servers of a URL, beyond locks. This interface may change at any time.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::timeout;

use super::{
    batch_scope::{BatchScope, EndpointScope},
    connector::Connector,
    endpoint::{AddressMap, Endpoint},
    locator::{Locator, Question},
    open_connection::OpenConnection,
    opener::ServerConfig,
    target::{Target, Way},
    time_limits::{PROBE_ANSWER_WAIT, PROBE_CONNECTION_WAIT},
};
pub use super::{cluster::Preferred, publish_rights::QUESTION as MAY_PUBLISH};
pub use crate::transport::Frame;
use crate::{endpoint_kind::EndpointKind, error::Error, since::Since, wire::Refusal};

/// docs/operations.md, with the rights of each kind.
pub const OPERATIONS: &str = include_str!("../../docs/operations.md");

/// Returns what the text of an owner tells of the age of its holds.
pub fn since(owner: &str) -> Since {
    Since::of_owner(owner)
}

/// Host and port of a server.
pub type Address = (String, u16);

/// The kind of set-up that a URL names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SetUp {
    /// One server.
    Single,
    /// The master of this service, which sentinels name.
    Sentinel(String),
    /// The master among some servers.
    Replicated,
    /// A cluster.
    Cluster,
}

/// The servers that a URL names.
pub struct Probe {
    server: ServerConfig,
    sentinels: Option<ServerConfig>,
    locator: Locator,
    set_up: SetUp,
    given: Vec<Address>,
    map: Option<AddressMap>,
    endpoint_kind: EndpointKind,
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Probe")
            .field("set_up", &self.set_up)
            .field("given", &self.given)
            .finish_non_exhaustive()
    }
}

impl Probe {
    pub(crate) fn of(mut target: Target) -> Self {
        let server = target.server.clone();
        let (set_up, sentinels, given) = match &target.way {
            Way::Asked(asked) => match &asked.question {
                Question::MasterOf(service) => (
                    SetUp::Sentinel(service.clone()),
                    Some(asked.server.clone()),
                    asked.addresses.clone(),
                ),
                Question::AreYou => (SetUp::Replicated, None, asked.addresses.clone()),
            },
            Way::Cluster(seeds) => (SetUp::Cluster, None, seeds.clone()),
            _ => (SetUp::Single, None, Vec::new()),
        };
        let (endpoint_kind, map) = (target.endpoint_kind(), target.map.clone());
        Self {
            server,
            sentinels,
            locator: target.locator(),
            set_up,
            given,
            map,
            endpoint_kind,
        }
    }

    /// The address at which this client reaches the server that announces `address`.
    pub fn mapped(&self, address: &Address) -> Address {
        match &self.map {
            Some(map) => map(&address.0, address.1),
            None => address.clone(),
        }
    }

    /// The kind of set-up.
    pub fn set_up(&self) -> &SetUp {
        &self.set_up
    }

    /// What answers at the address of the URL, by its configuration.
    pub fn endpoint_kind(&self) -> EndpointKind {
        self.endpoint_kind
    }

    /// The sentinels, servers or nodes that the URL names; none for a single server.
    pub fn given(&self) -> &[Address] {
        &self.given
    }

    /// The user for the servers, if the URL names one.
    pub fn user(&self) -> Option<&str> {
        self.server.username.as_deref()
    }

    /// Connects to the master, or to the first node of a cluster that answers.
    ///
    /// # Errors
    ///
    /// Those of [`LockClient::connect`](crate::LockClient::connect).
    pub async fn master(&self) -> Result<ProbedNode, Error> {
        if self.set_up == SetUp::Cluster {
            let mut failed = Error::unavailable("the URL names no node");
            for address in &self.given {
                match self.reach(address).await {
                    Ok(asked) => return Ok(asked),
                    Err(error) => failed = error,
                }
            }
            return Err(failed);
        }
        let connector = Connector::new(self.server.clone(), 1)
            .to(Arc::new(self.locator.clone()))
            .within_scope(EndpointScope::new(self.endpoint_kind));
        open(connector).await
    }

    /// Connects to the server that announces `address`, in any role.
    ///
    /// # Errors
    ///
    /// Those of [`LockClient::connect`](crate::LockClient::connect).
    pub async fn at(&self, address: &Address) -> Result<ProbedNode, Error> {
        self.reach(&self.mapped(address)).await
    }

    /// Connects to the node `id` of a cluster, if it is the server that answers at `address`.
    ///
    /// # Errors
    ///
    /// Those of [`LockClient::connect`](crate::LockClient::connect), and [`Error::Unavailable`] for another server.
    pub async fn node_at(&self, id: &str, address: &Address) -> Result<ProbedNode, Error> {
        let mut reached = self.at(address).await?;
        reached.open.node_id = Some(id.to_owned());
        reached.open.check_node().await?;
        Ok(reached)
    }

    /// The host that the nodes of a cluster prefer, by the answer of the node at the host `asked` to `CLUSTER SLOTS`.
    pub fn preferred(&self, slots: &Frame, asked: &str) -> Preferred {
        Preferred::of(slots, asked, self.server.opener.is_encrypted())
    }

    async fn reach(&self, address: &Address) -> Result<ProbedNode, Error> {
        open(Connector::new(self.server.at(address.clone()), 1)).await
    }

    /// Connects to the sentinel at `address`, without translating it.
    ///
    /// # Errors
    ///
    /// Those of [`LockClient::connect`](crate::LockClient::connect).
    pub async fn sentinel_at(&self, address: &Address) -> Result<ProbedNode, Error> {
        let server = self.sentinels.as_ref().unwrap_or(&self.server);
        open(Connector::new(server.at(address.clone()), 1).of_sentinel()).await
    }
}

async fn open(connector: Connector) -> Result<ProbedNode, Error> {
    let open = connector
        .clone()
        .within(PROBE_CONNECTION_WAIT)
        .connect()
        .await?;
    Ok(ProbedNode {
        open,
        endpoint: connector.endpoint(),
    })
}

/// Whether a retry may change an answer that is this error, such as `LOADING` or `MOVED`.
pub fn is_transient(message: &str) -> bool {
    matches!(
        Refusal::from_message(message.to_owned()),
        Refusal::Transient { .. }
    )
}

/// A connection to one server.
pub struct ProbedNode {
    open: OpenConnection,
    endpoint: Endpoint,
}

impl std::fmt::Debug for ProbedNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ProbedNode({})", self.endpoint)
    }
}

impl ProbedNode {
    /// The server's address, for display.
    pub fn address(&self) -> String {
        self.endpoint.to_string()
    }

    /// The server's host; `None` for a unix socket.
    pub fn host(&self) -> Option<&str> {
        match &self.endpoint {
            Endpoint::Tcp((host, _)) => Some(host),
            Endpoint::Unix(_) => None,
        }
    }

    /// Whether names share calls on this connection. `false` only for the master or the server of the URL.
    pub fn shares_calls(&self) -> bool {
        let scope = self.open.scope.as_ref();
        scope.is_none_or(|scope| scope.now() == BatchScope::AllNames)
    }

    /// Sends a command and returns its answer, which may be an error frame.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`].
    pub async fn ask(
        &mut self,
        name: &'static str,
        words: &[impl AsRef<[u8]>],
    ) -> Result<Frame, Error> {
        let words = words.iter().map(|word| word.as_ref().to_vec()).collect();
        let mut answers = self.ask_all(vec![(name, words)]).await?;
        answers
            .pop()
            .ok_or_else(|| Error::unavailable("the server did not answer"))
    }

    /// Sends commands together and returns their answers.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`].
    pub async fn ask_all(
        &mut self,
        commands: Vec<(&'static str, Vec<Vec<u8>>)>,
    ) -> Result<Vec<Frame>, Error> {
        let connection = self.open.connection.clone();
        let asking = async {
            let answers = commands.into_iter().map(|(name, words)| {
                connection.send(name, words.into_iter().map(Bytes::from).collect())
            });
            let answers = join_all(answers).await;
            let answers: Result<Vec<_>, _> = answers.into_iter().collect();
            answers.map_err(|error| error.to_string())
        };
        match timeout(PROBE_ANSWER_WAIT, self.open.lifetime.run(asking)).await {
            Err(_) => Err(Error::unavailable(format!(
                "{} did not answer within {PROBE_ANSWER_WAIT:?}",
                self.endpoint
            ))),
            Ok(answers) => {
                answers.map_err(|reason| Error::unavailable(format!("{}: {reason}", self.endpoint)))
            }
        }
    }
}
