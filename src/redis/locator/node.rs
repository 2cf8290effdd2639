//! A node that knows the master: a sentinel, or a server of a replicated set-up.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::{
    master_view::{Report, Role},
    sentinel::{self, PeerSentinel},
};
use crate::{
    error::Error,
    hash::HashMap,
    redis::{
        connect_advice::refusal,
        connector::Connector,
        endpoint::Address,
        frame,
        open_connection::{self, OpenConnection},
        opener::ServerConfig,
        time_limits::{
            MASTER_ANSWER_WAIT, NODE_CONNECTION_KEPT_FOR, NODE_SILENT_AFTER, SENTINEL_KEPT_FOR,
            SILENT_NODE_REST,
        },
    },
    transport::Connection,
};

/// The request to the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::redis) enum Question {
    /// To sentinels: where is the master of this service?
    MasterOf(String),
    /// To servers: are you the master?
    AreYou,
}

pub(super) enum Answer {
    Report(Report),
    Role(Role),
}

pub(super) struct LookupNode {
    pub(super) address: Address,
    /// Whether the configuration names it; else another node mentioned it.
    given: bool,
    record: Mutex<Record>,
    connection: tokio::sync::Mutex<Option<NodeConnection>>,
}

/// A connection that stays open between questions.
struct NodeConnection {
    open: OpenConnection,
    opened: Instant,
    /// The run id of its server: `None` before the first answer, empty if the server does not tell it.
    run_id: Option<String>,
}

struct Record {
    /// The sentinel's own id, once it is known.
    id: Option<String>,
    /// The time of its last answer or mention.
    seen: Instant,
    /// The time of its last answer, or of its first mention.
    answered: Instant,
    rests_until: Option<Instant>,
}

impl Record {
    fn is_silent(&self) -> bool {
        self.answered.elapsed() >= NODE_SILENT_AFTER
    }
}

impl LookupNode {
    pub(super) fn new(address: Address, given: bool, id: Option<String>) -> Self {
        let now = Instant::now();
        Self {
            address,
            given,
            record: Mutex::new(Record {
                id,
                seen: now,
                answered: now,
                rests_until: None,
            }),
            connection: tokio::sync::Mutex::default(),
        }
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this is the sentinel of the mention. A silent node with the sentinel's id is not: a sentinel that restarts at
    /// another address keeps its id.
    pub(super) fn is(&self, mention: &PeerSentinel) -> bool {
        let mut record = self.record();
        let has_id = record.id.as_ref() == Some(&mention.id);
        let is = self.address == mention.address || (has_id && !record.is_silent());
        if is {
            record.seen = Instant::now();
        }
        is
    }

    /// Whether the sentinel of the mention has left this address. The configuration's address is kept.
    pub(super) fn is_left_by(&self, mention: &PeerSentinel) -> bool {
        let record = self.record();
        let has_id = record.id.as_ref() == Some(&mention.id);
        !self.given && has_id && self.address != mention.address && record.is_silent()
    }

    /// The sentinel's id, or the address of a node without one; `None` if the node is silent.
    pub(super) fn answering_id(&self) -> Option<String> {
        let record = self.record();
        let id = || record.id.clone().unwrap_or_else(|| self.id_by_address());
        (!record.is_silent()).then(id)
    }

    fn id_by_address(&self) -> String {
        format!("{}:{}", self.address.0, self.address.1)
    }

    pub(super) fn is_kept(&self) -> bool {
        self.given || self.record().seen.elapsed() < SENTINEL_KEPT_FOR
    }

    /// Whether it left a recent request unanswered.
    pub(super) fn rests(&self) -> bool {
        let until = self.record().rests_until;
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Asks the node, and asks for further sentinels unless it counts as many as are `answering`. A drop of the future counts
    /// as a timeout.
    pub(super) async fn ask(
        &self,
        question: &Question,
        server: &ServerConfig,
        answering: usize,
    ) -> Result<(Answer, Vec<PeerSentinel>), Error> {
        let mut kept = self.connection.lock().await;
        // An earlier question, which had the connection, may have found the node silent.
        if self.rests() {
            return Err(Error::unavailable(
                "the node left an earlier question unanswered",
            ));
        }
        let mut silence = Silence {
            node: self,
            is: true,
        };
        let asked = self.ask_on(&mut kept, question, server, answering).await;
        silence.is = false;
        if asked.is_ok() {
            let (mut record, now) = (self.record(), Instant::now());
            (record.seen, record.answered) = (now, now);
        }
        asked
    }

    /// Resolves the node's name anew for the next question: the name may lead to another server by now. A younger connection
    /// stays.
    pub(super) fn look_up_again(&self) {
        // A question that is under way reports soon.
        if let Ok(mut kept) = self.connection.try_lock() {
            kept.take_if(|kept| kept.opened.elapsed() >= NODE_CONNECTION_KEPT_FOR);
        }
    }

    async fn ask_on(
        &self,
        kept: &mut Option<NodeConnection>,
        question: &Question,
        server: &ServerConfig,
        answering: usize,
    ) -> Result<(Answer, Vec<PeerSentinel>), Error> {
        // Keep the connection only if it works for the next request.
        let mut asked = match kept.take() {
            Some(kept) => kept,
            None => NodeConnection {
                open: self.connect(question, server).await?,
                opened: Instant::now(),
                run_id: None,
            },
        };
        let connection = asked.open.connection.clone();
        let run_id = &mut asked.run_id;
        let asking = async {
            Ok(match question {
                Question::MasterOf(service) => {
                    self.ask_sentinel(&*connection, service, answering).await?
                }
                Question::AreYou => match self.ask_server(&*connection, run_id).await? {
                    Ok(role) => Ok((Answer::Role(role), Vec::new())),
                    Err(error) => Err(error),
                },
            })
        };
        let answer = asked.open.lifetime.run(asking).await;
        let answer = answer.map_err(Error::unavailable)?;
        *kept = Some(asked);
        answer
    }

    async fn connect(
        &self,
        question: &Question,
        server: &ServerConfig,
    ) -> Result<OpenConnection, Error> {
        let (host, port) = &self.address;
        let server = server.at(self.address.clone());
        let connector = Connector::new(server, 1).within(MASTER_ANSWER_WAIT);
        let connector = match question {
            Question::MasterOf(_) => connector.of_sentinel(),
            Question::AreYou => connector,
        };
        let connected = connector.connect().await;
        connected.inspect_err(|error| tracing::debug!(host, port, %error, "a node does not answer"))
    }

    async fn ask_sentinel(
        &self,
        connection: &dyn Connection,
        service: &str,
        answering: usize,
    ) -> Result<Result<(Answer, Vec<PeerSentinel>), Error>, String> {
        // While replicas move to the new master, MASTER returns the new epoch with the old address. The epoch comes from
        // MASTER, the address from the other command. They are sent together in this order, so the address is at least as
        // new as its epoch.
        let (master, address) = tokio::join!(biased;
            sentinel::command(connection, "MASTER", Some(service)),
            sentinel::command(connection, "GET-MASTER-ADDR-BY-NAME", Some(service)),
        );
        let (master, address) = (master?, address?);
        if let Some(error) = refusal(&address).or_else(|| refusal(&master)) {
            return Ok(Err(error));
        }
        let report = sentinel::report(self.id(connection).await?, &master, &address);
        let mut peers = Vec::new();
        if report.sentinels != answering {
            let others = sentinel::command(connection, "SENTINELS", Some(service)).await?;
            peers.extend(frame::maps(&others).iter().filter_map(sentinel::peer));
        }
        Ok(Ok((Answer::Report(report), peers)))
    }

    async fn id(&self, connection: &dyn Connection) -> Result<String, String> {
        if let Some(id) = self.record().id.clone() {
            return Ok(id);
        }
        let id = frame::text(&sentinel::command(connection, "MYID", None).await?);
        // A sentinel that does not tell its id is identified by its address.
        let id = id.unwrap_or_else(|| self.id_by_address());
        self.record().id = Some(id.clone());
        Ok(id)
    }

    async fn ask_server(
        &self,
        connection: &dyn Connection,
        run_id: &mut Option<String>,
    ) -> Result<Result<Role, Error>, String> {
        // A process keeps its run id, so one question for each connection suffices.
        let identifying = async {
            if run_id.is_none() {
                let info = open_connection::command(connection, "INFO", &["server"]).await?;
                let text = frame::text(&info).unwrap_or_default();
                *run_id = Some(
                    fields(&text)
                        .get("run_id")
                        .copied()
                        .unwrap_or_default()
                        .to_owned(),
                );
            }
            Ok::<_, String>(())
        };
        let asking = open_connection::command(connection, "INFO", &["replication"]);
        let (info, ()) = tokio::try_join!(biased; asking, identifying)?;
        if let Some(error) = refusal(&info) {
            return Ok(Err(error));
        }
        let text = frame::text(&info).unwrap_or_default();
        let fields = fields(&text);
        if !fields.contains_key("role") {
            return Ok(Err(Error::config(
                "the server of the URL reports no role: use redis-sentinel://host:port/service for a sentinel",
            )));
        }
        let field = |name| fields.get(name).copied().unwrap_or_default().to_owned();
        let is_master = field("role") == "master";
        // A replica shows the ancestry of its last master until it has the data of the present one.
        let is_current = is_master || field("master_link_status") == "up";
        let before = Some(field("master_replid2")).filter(|id| id.contains(|digit| digit != '0'));
        Ok(Ok(Role {
            address: self.address.clone(),
            run_id: run_id.clone().filter(|id| !id.is_empty()),
            is_master,
            connected: field("connected_slaves").parse().unwrap_or(0),
            offset: field("master_repl_offset").parse().unwrap_or(0),
            history: field("master_replid"),
            before: before.filter(|_| is_current),
        }))
    }
}

/// The fields of an answer to `INFO`.
fn fields(text: &str) -> HashMap<&str, &str> {
    let lines = text.lines();
    lines.filter_map(|line| line.split_once(':')).collect()
}

/// Records a timeout when it is dropped, unless an answer came.
struct Silence<'a> {
    node: &'a LookupNode,
    is: bool,
}

impl Drop for Silence<'_> {
    fn drop(&mut self) {
        self.node.record().rests_until = self.is.then(|| Instant::now() + SILENT_NODE_REST);
    }
}
