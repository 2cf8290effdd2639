//! A server: data, scripts, users and connections.

mod answers;
mod authentication;
mod clients;
mod cluster;
mod reports;
mod scripts;
mod sentinel;
mod session;
pub(crate) mod sessions;
mod subscribing;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use bytes::Bytes;
use foldhash::fast::FixedState;
use smallvec::SmallVec;

use super::{
    ConnectionId, Data, Delivery, Failure, Frame, Outcome, Refusal,
    cluster::{Membership, route},
    command::{self, Action, Choice, Command},
    interpreter::Sha,
    replication::KnownReplica,
    without_maps,
};
pub(crate) use sentinel::{OtherSentinel, SentinelView};
use session::Session;

/// The version of Redis that the server reports.
pub(crate) const VERSION: &str = "7.0.15";

/// An in-memory server. It has no clock: each call passes the time, in milliseconds since 1970.
#[derive(Debug, Clone)]
pub(crate) struct Server {
    pub(crate) data: Data,
    pub(crate) settings: Settings,
    /// The sources of the scripts that `EVALSHA` finds.
    scripts: HashMap<Sha, Bytes, FixedState>,
    connections: BTreeMap<ConnectionId, Session>,
    last_id: u64,
    /// Connections that a command has ended.
    ended: Vec<ConnectionId>,
}

/// The settings of a test.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// The host and port in `CLIENT INFO`.
    pub(crate) address: String,
    /// The password of the user `default`.
    pub(crate) password: Option<String>,
    /// The passwords of other users.
    pub(crate) users: BTreeMap<String, String>,
    pub(crate) role: Role,
    /// The reply to `WAIT`.
    pub(crate) acknowledging_replicas: u32,
    /// How many scripts will fail.
    pub(crate) failing_scripts: usize,
    /// The errors that replace the execution of commands.
    pub(crate) refusal: Option<Refusal>,
    /// The state of a sentinel, if the server is one.
    pub(crate) sentinel: Option<SentinelView>,
}

/// The role in `ROLE` and `INFO`. A replica refuses writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    Master {
        offset: u64,
        replicas: Vec<KnownReplica>,
    },
    Replica {
        host: String,
        port: u16,
        /// `connected`, `connect`, `connecting`, `handshake` or `sync`.
        link: &'static str,
        offset: u64,
    },
}

impl Default for Role {
    fn default() -> Self {
        Self::Master {
            offset: 0,
            replicas: Vec::new(),
        }
    }
}

impl Settings {
    fn refusal(&self) -> Option<Refusal> {
        let of_role = matches!(self.role, Role::Replica { .. }).then_some(Refusal::ReadOnly);
        self.refusal.or(of_role)
    }
}

/// A running command of a connection.
pub(crate) struct Caller<'a> {
    pub(crate) server: &'a mut Server,
    pub(crate) connection: ConnectionId,
    pub(crate) now: u64,
}

impl Server {
    /// Creates an empty master.
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            data: Data::new(),
            settings,
            scripts: HashMap::default(),
            connections: BTreeMap::new(),
            last_id: 0,
            ended: Vec::new(),
        }
    }

    /// Creates an empty node of a cluster.
    pub(crate) fn member(settings: Settings, cluster: Membership) -> Self {
        let mut server = Self::new(settings);
        server.data.cluster = Some(Box::new(cluster));
        server
    }

    /// Opens a connection from an address, such as `127.0.0.1:50000`.
    pub(crate) fn open(&mut self, address: &str, now: u64) -> ConnectionId {
        self.last_id += 1;
        let id = ConnectionId(self.last_id);
        let is_open = self.settings.password.is_none();
        self.connections
            .insert(id, Session::new(address, is_open, now));
        id
    }

    /// Closes a connection with its subscriptions.
    pub(crate) fn close(&mut self, connection: ConnectionId) {
        self.data.subscriptions.remove_all(connection);
        self.connections.remove(&connection);
    }

    pub(crate) fn is_connected(&self, connection: ConnectionId) -> bool {
        self.connections.contains_key(&connection)
    }

    /// The connections that commands such as `CLIENT KILL` and `QUIT` have closed since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<ConnectionId> {
        std::mem::take(&mut self.ended)
    }

    /// Deletes the data, the scripts and the connections, like a restart without persistence.
    pub(crate) fn restart_empty(&mut self) {
        let cluster = self.data.cluster.take();
        self.data = Data::new();
        self.data.cluster = cluster;
        self.scripts.clear();
        self.connections.clear();
    }

    /// The fields of a lock's hash and their counts, in the first database. The owner of a simple lock is its value.
    pub(crate) fn holders(&self, name: &str, now: u64) -> Vec<(String, u64)> {
        let keys = self.data.database(0);
        let entry = keys.and_then(|keys| keys.peek(name.as_bytes(), now));
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let flat = match entry.map(|entry| &entry.value) {
            Some(hash @ super::Value::Hash(_)) => hash.flat(),
            Some(super::Value::Text(value)) => return vec![(text(value), 1)],
            _ => Vec::new(),
        };
        let pairs = flat.chunks_exact(2).filter(|pair| pair[0] != "mode");
        pairs
            .map(|pair| (text(&pair[0]), text(&pair[1]).parse().unwrap_or(0)))
            .collect()
    }

    /// The remaining lease of a lock: `None` if it is free, [`Duration::MAX`] without an expiry.
    pub(crate) fn lease(&self, name: &str, now: u64) -> Option<Duration> {
        let entry = self.data.database(0)?.peek(name.as_bytes(), now)?;
        let left = |end: u64| Duration::from_millis(end.saturating_sub(now));
        Some(entry.expires_at.map_or(Duration::MAX, left))
    }

    /// Runs a command of a connection, and adds the messages that it publishes to `deliveries`.
    ///
    /// The reply to a `SUBSCRIBE` with several channels is the list of its replies.
    pub(crate) fn execute(
        &mut self,
        connection: ConnectionId,
        name: &str,
        args: &[Bytes],
        now: u64,
        deliveries: &mut Vec<Delivery>,
    ) -> Frame {
        let args: SmallVec<[&[u8]; 16]> = args.iter().map(|arg| &arg[..]).collect();
        let outcome = self.answer(connection, name.as_bytes(), &args, now);
        deliveries.append(&mut self.data.deliveries);
        let frame = outcome.unwrap_or_else(|message| Frame::Error(one_line(&message)));
        let session = self.connections.get(&connection);
        match frame {
            Frame::Map(_) if session.is_none_or(|session| session.resp < 3) => without_maps(frame),
            frame => frame,
        }
    }

    fn answer(
        &mut self,
        connection: ConnectionId,
        name: &[u8],
        args: &[&[u8]],
        now: u64,
    ) -> Outcome {
        let (command, args) = find(name, args)?;
        self.check(command, connection, now)?;
        self.redirect(command, args, now)?;
        match command.action {
            Action::Data(run) => {
                if command.name == "ping" && self.is_limited(connection) {
                    return Ok(sessions::pong_to_subscriber(args));
                }
                self.data.writes += u64::from(command.has(command::WRITE));
                run(&mut self.data, args, now)
            }
            Action::Session(run) => {
                let mut caller = Caller {
                    server: self,
                    connection,
                    now,
                };
                run(&mut caller, args)
            }
            Action::Container(_) => Err(command.wrong_number()),
        }
    }

    /// Whether the connection may use this command now.
    fn check(
        &mut self,
        command: &Command,
        connection: ConnectionId,
        now: u64,
    ) -> Result<(), Failure> {
        let Some(session) = self.connections.get_mut(&connection) else {
            return Err("ERR the connection is closed".into());
        };
        session.last_used_at = now;
        session.last_command = command.name;
        if session.user.is_none() && !command.has(command::NO_AUTH) {
            return Err("NOAUTH Authentication required.".into());
        }
        self.data.selected = session.database;
        let asking = std::mem::take(&mut session.asking);
        if let Some(cluster) = &mut self.data.cluster {
            cluster.asking = asking;
        }
        self.data.refusal = self.settings.refusal();
        let limited = session.is_limited() && !sessions::serves_subscribers(command.name);
        let refusal = self.data.refusal;
        match refusal.filter(|refusal| refusal.refuses(command)) {
            Some(refusal) => Err(refusal.message().into()),
            None if limited => Err(sessions::refuse_to_subscriber(command.name)),
            None => Ok(()),
        }
    }

    /// Refuses a command with keys of another node.
    fn redirect(&self, command: &Command, args: &[&[u8]], now: u64) -> Result<(), Failure> {
        match (&self.data.cluster, route(&self.data, command, args, now)) {
            (Some(cluster), Err(redirect)) => Err(redirect.message(cluster)),
            _ => Ok(()),
        }
    }

    /// Whether the connection may only subscribe and unsubscribe.
    fn is_limited(&self, connection: ConnectionId) -> bool {
        let session = self.connections.get(&connection);
        session.is_some_and(Session::is_limited)
    }
}

impl Caller<'_> {
    fn session(&mut self) -> &mut Session {
        self.server.connections.entry(self.connection).or_default()
    }
}

fn find<'a, 'b>(
    name: &[u8],
    args: &'a [&'b [u8]],
) -> Result<(&'static Command, &'a [&'b [u8]]), Failure> {
    let container = command::find(name).ok_or_else(|| unknown(name, args))?;
    let (command, args) = container.choose(args).map_err(|choice| match choice {
        Choice::Missing => container.wrong_number(),
        Choice::Unknown => unknown_second(container, args),
    })?;
    if !command.takes(args.len()) {
        return Err(command.wrong_number());
    }
    Ok((command, args))
}

/// The beginning of a text from the user.
fn shortened(text: &[u8], most: usize) -> String {
    String::from_utf8_lossy(&text[..text.len().min(most)]).into_owned()
}

fn unknown(name: &[u8], args: &[&[u8]]) -> Failure {
    let mut shown = String::new();
    for arg in args {
        if shown.len() >= 128 {
            break;
        }
        shown += &format!("'{}' ", shortened(arg, 128 - shown.len()));
    }
    let name = shortened(name, 128);
    format!("ERR unknown command '{name}', with args beginning with: {shown}").into()
}

fn unknown_second(container: &Command, args: &[&[u8]]) -> Failure {
    let second = shortened(args[0], 128);
    let container = container.name.to_ascii_uppercase();
    format!("ERR unknown subcommand '{second}'. Try {container} HELP.").into()
}

/// The text of an error reply: line breaks become spaces.
fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
