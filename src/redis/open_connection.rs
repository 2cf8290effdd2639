//! One open connection: its checks and its end.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::timeout;

use super::{
    BoxFuture,
    batch_scope::ConnectionScope,
    client_info::{ConnectionIdentity, Identity, Subscriptions},
    connect_advice::refusal,
    frame,
    time_limits::{PING_WAIT, QUIT_WAIT},
};
use crate::{
    endpoint_kind::EndpointKind,
    error::Error,
    server_text,
    transport::{self, Connection, Frame},
};

/// Whether `ROLE` answered that the server is a master.
fn is_master(role: &Frame) -> bool {
    frame::text_at(role, 0).as_deref() == Some("master")
}

/// What the server is, by its answer to `ROLE`, if it refuses writes: a replica or a sentinel. A refusal to answer tells nothing.
pub(super) fn refuses_writes(role: &Frame) -> Option<String> {
    let refuses = |role: &String| matches!(&**role, "slave" | "replica" | "sentinel");
    frame::text_at(role, 0).filter(refuses)
}

/// Sends one command of plain words. The answer may be an error frame.
pub(super) async fn command(
    connection: &dyn Connection,
    name: &'static str,
    words: &[&str],
) -> Result<Frame, String> {
    let args = words
        .iter()
        .map(|word| Bytes::copy_from_slice(word.as_bytes()));
    let answer = connection.send(name, args.collect()).await;
    answer.map_err(|error| error.to_string())
}

/// Sends `QUIT`, and waits until the server has answered all earlier commands.
pub(super) async fn quit(connection: &dyn Connection) {
    let quitting = connection.send("QUIT", Vec::new());
    if timeout(QUIT_WAIT, quitting).await.is_err() {
        tracing::debug!("closed a connection with unanswered calls");
    }
}

/// The id of the node that made this list of nodes.
fn own_id(nodes: &str) -> Option<&str> {
    nodes.lines().find_map(|line| {
        let mut words = line.split(' ');
        let (id, flags) = (words.next()?, words.nth(1)?);
        flags.split(',').any(|flag| flag == "myself").then_some(id)
    })
}

/// The mode and role in an answer to `INFO`; empty if it has none. The mode is `redis_mode`, `server_mode` or `redict_mode`.
fn mode_and_role(info: &str) -> (String, String) {
    let said = |is: &dyn Fn(&str, &str) -> bool| {
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        let mut fields = fields.map(|(name, value)| (name, value.trim()));
        let field = fields.find(|(name, value)| is(name, value));
        field.map_or_else(String::new, |(_, value)| value.to_owned())
    };
    let is_mode = |name: &str, value: &str| {
        name.ends_with("_mode") && ["standalone", "sentinel", "cluster"].contains(&value)
    };
    (said(&is_mode), said(&|name, _| name == "role"))
}

/// How a peer answers the `PING`s of one connection. Envoy echoes nothing, and twemproxy closes on a number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Pong {
    #[default]
    Unknown,
    Echo,
    Plain,
}

/// An open connection. Dropping it ends it.
pub(super) struct OpenConnection {
    pub(super) connection: Arc<dyn Connection>,
    pub(super) identity: ConnectionIdentity,
    /// The id of the node of a cluster that must answer, if it was reached by a host that it does not prefer.
    pub(super) node_id: Option<String>,
    /// Whether the server can report the number of subscriptions.
    pub(super) counts_subscriptions: bool,
    /// How long a `PING` may stay unanswered.
    pub(super) ping_wait: Duration,
    pub(super) pong: Pong,
    /// The server's answer to `HELLO`; empty if it was not asked.
    pub(super) mode: String,
    pub(super) role: String,
    pub(super) lifetime: Lifetime,
    /// The scope of calls with scripts; `None` at a node of a cluster, whose calls have one slot each.
    pub(super) scope: Option<ConnectionScope>,
}

impl OpenConnection {
    /// Refuses a server that is not a master, or no longer one.
    pub(super) async fn check_master(&mut self) -> Result<(), Error> {
        let asking = command(&*self.connection, "ROLE", &[]);
        match timeout(PING_WAIT, self.lifetime.run(asking)).await {
            Ok(Ok(role)) if is_master(&role) => Ok(()),
            Ok(Ok(role)) => Err(refusal(&role).unwrap_or_else(|| {
                Error::unavailable(match frame::error(&role) {
                    Some(message) => format!("the server refuses ROLE: {message}"),
                    None => "the server is not a master yet".into(),
                })
            })),
            Ok(Err(reason)) => Err(Error::unavailable(reason)),
            Err(_) => Err(Error::unavailable("the server did not answer ROLE")),
        }
    }

    /// Refuses another server than the wanted node of a cluster: a host that the nodes do not prefer may lead anywhere from here.
    pub(super) async fn check_node(&mut self) -> Result<(), Error> {
        let Some(id) = &self.node_id else {
            return Ok(());
        };
        let asking = command(&*self.connection, "CLUSTER", &["NODES"]);
        let answer = match timeout(PING_WAIT, self.lifetime.run(asking)).await {
            Ok(answer) => answer.map_err(Error::unavailable)?,
            Err(_) => return Err(Error::unavailable("the node did not answer CLUSTER NODES")),
        };
        let nodes = frame::text(&answer).unwrap_or_default();
        match own_id(&nodes) {
            Some(own) if own == id => Ok(()),
            _ => Err(Error::unavailable(format!(
                "the node {} announces a host at which another server answers",
                server_text::shown(id)
            ))),
        }
    }

    /// Asks for the mode and role, which the answer to `HELLO` has unasked. Without an answer, they stay unknown. A peer without
    /// `CLIENT INFO` is not asked: it may close the connection on `INFO` too.
    pub(super) async fn learn_role(&mut self) {
        if !self.mode.is_empty() || matches!(self.identity, ConnectionIdentity::Never) {
            return;
        }
        let asking = command(&*self.connection, "INFO", &[]);
        let Ok(Ok(info)) = timeout(PING_WAIT, self.lifetime.run(asking)).await else {
            return;
        };
        (self.mode, self.role) = mode_and_role(&frame::text(&info).unwrap_or_default());
    }

    /// Refuses a server of another kind than the URL names: a sentinel, a node of a cluster or a replica. An answer through a proxy
    /// says nothing about the rest of its servers.
    pub(super) fn check_role(&self, kind: EndpointKind) -> Result<(), Error> {
        match (&*self.mode, &*self.role) {
            ("sentinel", _) => Err(Error::config(
                "the URL names a sentinel, which stores no locks: use redis-sentinel://host:port/service",
            )),
            _ if kind == EndpointKind::Proxy => Ok(()),
            ("cluster", _) => Err(Error::config(
                "the URL names a single node of a cluster, which stores only a part of the locks: use \
                 redis-cluster://host:port, or ?endpoint=proxy (`endpoint_kind`) if this end point leads to all nodes",
            )),
            // The replica may be promoted soon.
            (_, "replica" | "slave") => Err(Error::unavailable(
                "the URL names a replica, which refuses writes: name its master, or all servers by \
                 redis-sentinel:// or redis-replicated://",
            )),
            _ => Ok(()),
        }
    }

    /// Has the server echo `number`. Another answer shows that replies have shifted (P-FR7), except for that of a peer which has
    /// echoed none on this connection.
    pub(super) async fn ping(
        connection: &dyn Connection,
        number: u64,
        wait: Duration,
        pong: &mut Pong,
    ) -> Result<(), String> {
        let number = number.to_string();
        let words = [&*number];
        let words = &words[..usize::from(*pong != Pong::Plain)];
        let answer = match timeout(wait, command(connection, "PING", words)).await {
            Err(_) => return Err("the server did not answer PING".into()),
            Ok(answer) => answer?,
        };
        match frame::error(&answer) {
            // The server has forgotten the login.
            Some(message) if message.starts_with("NOAUTH") => Err(message),
            // A refusal in any other words is a sign of life: `MISCONF`, a quota, a missing right.
            Some(_) => Ok(()),
            None => {
                *pong = match frame::text(&answer).as_deref() {
                    Some(echo) if echo == number => Pong::Echo,
                    Some("PONG") if *pong != Pong::Echo => Pong::Plain,
                    _ => return Err("the answer to PING belongs to another command".into()),
                };
                Ok(())
            }
        }
    }

    /// Requests the server's description of the connection. `None` if the server is busy.
    pub(super) async fn describe(connection: &dyn Connection) -> Result<Option<Frame>, String> {
        let asking = command(connection, "CLIENT", &["INFO"]);
        timeout(PING_WAIT, asking).await.ok().transpose()
    }

    /// The number of channels to which the server has subscribed the connection.
    pub(super) async fn subscriptions(
        connection: &dyn Connection,
    ) -> Result<Subscriptions, String> {
        let answer = match timeout(PING_WAIT, command(connection, "CLIENT", &["INFO"])).await {
            Err(_) => return Err("the server did not answer CLIENT INFO".into()),
            Ok(answer) => answer?,
        };
        match frame::error(&answer) {
            Some(message) => Err(message),
            None => frame::text(&answer)
                .as_deref()
                .and_then(Subscriptions::read)
                .ok_or_else(|| "the answer to CLIENT INFO belongs to another command".into()),
        }
    }

    /// Has the server kill a broken connection of this client. Otherwise the server could run unread commands of it after
    /// their repetitions. Both number and address must match: after a restart, another client may have the number. Returns whether
    /// the server has done so, or has refused; an error means that the old connection may be alive.
    pub(super) async fn kill(&mut self, old: &Identity) -> Result<bool, String> {
        let words = ["KILL", "ID", &old.id, "ADDR", &old.address];
        let killing = self
            .lifetime
            .run(command(&*self.connection, "CLIENT", &words));
        match timeout(PING_WAIT, killing).await {
            Ok(Ok(answer)) => {
                let refusal = frame::error(&answer);
                if let Some(message) = &refusal {
                    tracing::debug!(
                        message,
                        "the server refuses to kill the previous connection"
                    );
                }
                Ok(refusal.is_none())
            }
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err("the server did not answer CLIENT KILL".into()),
        }
    }
}

/// Keeps a [`OpenConnection`]'s connection open. Its drop closes the socket, and the calls fail.
pub(super) struct Lifetime {
    /// `None` once the connection has ended.
    ended: Option<BoxFuture<String>>,
    /// Completes when the connection is to the wrong server.
    pub(super) moved: Option<BoxFuture<String>>,
}

impl Lifetime {
    pub(super) fn new(ended: BoxFuture<String>) -> Self {
        Self {
            ended: Some(ended),
            moved: None,
        }
    }

    /// Completes, with the reason, when the connection ends.
    pub(super) async fn ended(&mut self) -> String {
        let Some(ended) = &mut self.ended else {
            return "the connection ended".into();
        };
        let moved = async {
            match &mut self.moved {
                Some(moved) => moved.await,
                None => std::future::pending().await,
            }
        };
        let reason = tokio::select! {
            biased;
            reason = ended => reason,
            reason = moved => reason,
        };
        (self.ended, self.moved) = (None, None);
        reason
    }

    /// Runs `future` until the connection ends: later commands may stay unanswered.
    pub(super) fn run<'a, T: 'a>(
        &'a mut self,
        future: impl Future<Output = Result<T, String>> + Send + 'a,
    ) -> impl Future<Output = Result<T, String>> + Send {
        self.run_boxed(Box::pin(future))
    }

    /// Compiled once for each result instead of once for each future.
    async fn run_boxed<T>(
        &mut self,
        future: transport::BoxFuture<'_, Result<T, String>>,
    ) -> Result<T, String> {
        tokio::select! {
            biased;
            reason = self.ended() => Err(reason),
            done = future => done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reporter_of_a_list_of_nodes_is_known() {
        let nodes =
            "aaa :1@2 master - 0 0 1 connected\nbbb :3@4 myself,slave aaa 0 0 1 connected\n";
        assert_eq!(own_id(nodes), Some("bbb"));
        for odd in ["", "aaa", "aaa :1@2 master - 0", "ERR refused"] {
            assert_eq!(own_id(odd), None, "{odd}");
        }
    }

    #[test]
    fn mode_has_a_name_of_redis_of_valkey_and_of_redict() {
        let read = |info| {
            let (mode, role) = mode_and_role(info);
            format!("{mode} {role}")
        };
        let redis = "# Server\r\nredis_version:7.2.4\r\nredis_mode:sentinel\r\nrole:master\r\n";
        assert_eq!(read(redis), "sentinel master");
        let valkey = "redis_version:7.2.4\r\nserver_mode:cluster\r\nrole:slave\r\n";
        assert_eq!(read(valkey), "cluster slave");
        let redict =
            "redict_version:7.3.0\r\nother_mode:x\r\nredict_mode:standalone\r\nrole:master\r\n";
        assert_eq!(read(redict), "standalone master");
        assert_eq!(read("other_mode:x\r\nno field"), " ");
    }
}
