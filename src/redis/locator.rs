//! Where the server is: at one address, or wherever the sentinels, or its own replicas, say that the master is.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use fred::types::config::{Config, ServerConfig};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{sync::watch, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    BoxFuture,
    cluster::Topology,
    frame,
    link::{self, Connection, Connector},
};
use crate::error::Error;

/// How long a node may take to say what it knows.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// How often the nodes are asked whether the master is still where it was.
const LOOK_EVERY: Duration = Duration::from_millis(500);

pub(crate) type Address = (String, u16);

/// From the address that a node announces to the one that it is reached at from here.
pub(crate) type AddressMap = Arc<dyn Fn(&str, u16) -> Address + Send + Sync>;

/// How the master is found.
#[derive(Clone)]
pub(super) enum Locator {
    /// It is where the configuration says.
    Fixed,
    /// By asking others.
    Asked(Arc<Nodes>),
    /// Any node of a cluster will do.
    Member(Arc<Topology>),
}

/// What is asked of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Question {
    /// Of sentinels: who is the master of this service?
    MasterOf(String),
    /// Of servers: are you the master?
    AreYou,
}

/// Those who know where the master is.
pub(super) struct Nodes {
    question: Question,
    /// As whom to ask; the server in it is not used.
    config: Config,
    known: Mutex<Vec<Arc<Node>>>,
    map: Option<AddressMap>,
    /// How many replicas there are, by the last answer.
    replicas: AtomicUsize,
    /// The last answer.
    master: watch::Sender<Option<Address>>,
}

struct Node {
    address: Address,
    connection: tokio::sync::Mutex<Option<Connection>>,
}

/// What one node said.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    master: Option<Address>,
    /// Of two answers, the one of the later failover is right.
    epoch: u64,
    replicas: usize,
}

impl Nodes {
    pub(super) fn new(
        question: Question,
        config: Config,
        addresses: Vec<Address>,
        map: Option<AddressMap>,
    ) -> Self {
        let nodes = Self {
            question,
            config,
            known: Mutex::default(),
            map,
            replicas: AtomicUsize::new(0),
            master: watch::Sender::new(None),
        };
        for address in addresses {
            nodes.learn(address);
        }
        nodes
    }

    fn known(&self) -> MutexGuard<'_, Vec<Arc<Node>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn learn(&self, address: Address) {
        let mut known = self.known();
        if known.iter().all(|node| node.address != address) {
            known.push(Arc::new(Node {
                address,
                connection: tokio::sync::Mutex::default(),
            }));
        }
    }

    fn mapped(&self, address: Address) -> Address {
        match &self.map {
            Some(map) => map(&address.0, address.1),
            None => address,
        }
    }

    /// Asks all at a time, and goes by the majority of them, or by those who answered in time.
    async fn locate(&self) -> Result<Address, Error> {
        let nodes = self.known().clone();
        let mut answers: FuturesUnordered<_> = nodes
            .iter()
            .map(|node| async { timeout(ANSWER_WAIT, self.ask(node)).await.ok().flatten() })
            .collect();
        let mut best: Option<Answer> = None;
        let mut heard = 0;
        while let Some(answer) = answers.next().await {
            let Some(answer) = answer else { continue };
            heard += 1;
            if answer.master.is_some()
                && best.as_ref().is_none_or(|best| (best.epoch) < answer.epoch)
            {
                best = Some(answer);
            }
            // A server speaks for itself; of sentinels, a minority may not have heard of the latest failover.
            let enough = match self.question {
                Question::MasterOf(_) => heard > nodes.len() / 2,
                Question::AreYou => false,
            };
            if enough && best.is_some() {
                break;
            }
        }
        if let Some(best) = &best {
            self.replicas.store(best.replicas, Ordering::Relaxed);
        }
        match best.and_then(|best| best.master) {
            Some(master) => Ok(self.mapped(master)),
            None if heard == 0 => Err(Error::unavailable(self.nobody())),
            None => Err(Error::unavailable(self.no_master())),
        }
    }

    fn nobody(&self) -> String {
        match &self.question {
            Question::MasterOf(_) => {
                "none of the sentinels answers: check their addresses, user and password"
            }
            Question::AreYou => {
                "none of the servers answers: check their addresses, user and password"
            }
        }
        .into()
    }

    fn no_master(&self) -> String {
        match &self.question {
            Question::MasterOf(service) => {
                format!("the sentinels know no master of the service {service:?}: check its name")
            }
            Question::AreYou => "none of the servers is a master".into(),
        }
    }

    /// `None` when there is no answer.
    async fn ask(&self, node: &Node) -> Option<Answer> {
        let mut connection = node.connection.lock().await;
        // Kept only if it is good for the next question.
        let mut asked = match connection.take() {
            Some(connection) => connection,
            None => self.connect(&node.address).await?,
        };
        let client = asked.client.clone();
        let asking = async {
            match &self.question {
                Question::MasterOf(service) => {
                    let master = sentinel(&client, "MASTER", service).await?;
                    let others = sentinel(&client, "SENTINELS", service).await?;
                    for address in frame::maps(&others).iter().filter_map(address_of) {
                        self.learn(self.mapped(address));
                    }
                    Ok(read_master(&master))
                }
                Question::AreYou => {
                    let role = link::command(&client, "ROLE", Vec::new()).await;
                    let role = role.map_err(|error| error.details().to_owned())?;
                    Ok(Answer {
                        master: is_master(&role).then(|| node.address.clone()),
                        epoch: frame::number_at(&role, 1).unwrap_or(0),
                        replicas: self.known().len() - 1,
                    })
                }
            }
        };
        let answer = asked.router.run(asking).await.ok()?;
        *connection = Some(asked);
        Some(answer)
    }

    async fn connect(&self, (host, port): &Address) -> Option<Connection> {
        let mut config = self.config.clone();
        config.server = ServerConfig::new_centralized(host.clone(), *port);
        let connector = Connector::new(config, 1).within(ANSWER_WAIT);
        match connector.connect().await {
            Ok(connection) => Some(connection),
            Err(error) => {
                tracing::debug!(host, port, %error, "a node does not answer");
                None
            }
        }
    }
}

impl Locator {
    /// The server to connect to now; `None` is the one of the configuration.
    pub(super) fn locate(&self) -> BoxFuture<Result<Option<Address>, Error>> {
        // Boxed, as those who are asked are connected to by the same means.
        match self.clone() {
            Locator::Fixed => Box::pin(std::future::ready(Ok(None))),
            Locator::Asked(nodes) => Box::pin(async move {
                let master = nodes.locate().await?;
                nodes.note(&master);
                Ok(Some(master))
            }),
            Locator::Member(topology) => Box::pin(std::future::ready(
                topology
                    .any_node()
                    .map(Some)
                    .ok_or_else(|| Error::unavailable("no node of the cluster can be reached")),
            )),
        }
    }

    /// Completes when the master is no longer at `address`.
    pub(super) fn moved(&self, address: Option<&Address>) -> BoxFuture<String> {
        let Some(address) = address.cloned() else {
            return Box::pin(std::future::pending());
        };
        let nodes = match self.clone() {
            Locator::Fixed => return Box::pin(std::future::pending()),
            Locator::Member(topology) => return Box::pin(topology.left(address)),
            Locator::Asked(nodes) => nodes,
        };
        let mut master = nodes.master.subscribe();
        Box::pin(async move {
            let elsewhere = |master: &Option<Address>| master.as_ref() != Some(&address);
            let told = master.wait_for(elsewhere).await.ok().map(|now| now.clone());
            match told {
                Some(Some((host, port))) => format!("the master is now {host}:{port}"),
                Some(None) => "the master is not known".into(),
                None => std::future::pending().await,
            }
        })
    }

    /// Keeps asking until `closed` is cancelled.
    pub(super) async fn watch(self, closed: CancellationToken) {
        let Locator::Asked(nodes) = self else { return };
        let watching = async {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                if let Ok(master) = nodes.locate().await {
                    nodes.note(&master);
                }
            }
        };
        let _: Option<()> = closed.run_until_cancelled(watching).await;
    }

    /// How many replicas the master has, those that are down included, as far as others know.
    pub(super) fn replicas(&self) -> usize {
        match self {
            Locator::Asked(nodes) => nodes.replicas.load(Ordering::Relaxed),
            Locator::Fixed | Locator::Member(_) => 0,
        }
    }

    /// Whether the server has to be asked if it is a master.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self, Locator::Asked(_))
    }
}

impl Nodes {
    fn note(&self, master: &Address) {
        self.master.send_if_modified(|known| {
            let is_new = known.as_ref() != Some(master);
            if is_new {
                *known = Some(master.clone());
            }
            is_new
        });
    }
}

impl fmt::Debug for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Locator::Fixed => f.write_str("Fixed"),
            Locator::Member(_) => f.write_str("Member"),
            Locator::Asked(nodes) => {
                let known: Vec<_> = nodes
                    .known()
                    .iter()
                    .map(|node| node.address.clone())
                    .collect();
                f.debug_tuple("Asked")
                    .field(&nodes.question)
                    .field(&known)
                    .finish()
            }
        }
    }
}

async fn sentinel(
    client: &fred::clients::Client,
    word: &'static str,
    service: &str,
) -> Result<fred::types::Resp3Frame, String> {
    link::command(client, "SENTINEL", vec![word.into(), service.into()])
        .await
        .map_err(|error| error.details().to_owned())
}

/// Whether `ROLE` answered that the server is a master.
pub(super) fn is_master(role: &fred::types::Resp3Frame) -> bool {
    frame::text_at(role, 0).as_deref() == Some("master")
}

/// Reads `SENTINEL MASTER`; an error means that it knows no such service.
fn read_master(answer: &fred::types::Resp3Frame) -> Answer {
    let fields = frame::map(answer);
    let epoch = fields
        .get("config-epoch")
        .and_then(|epoch| epoch.parse().ok())
        .unwrap_or(0);
    Answer {
        replicas: fields
            .get("num-slaves")
            .and_then(|count| count.parse().ok())
            .unwrap_or(0),
        master: address_of(&fields),
        epoch,
    }
}

fn address_of(fields: &HashMap<String, String>) -> Option<Address> {
    let port = fields.get("port")?.parse().ok()?;
    Some((fields.get("ip")?.clone(), port))
}
