//! Each connection, of whatever purpose, logs in by credentials of its own.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use redisson_lock::{
    Config, Credentials, CredentialsRequest, Durability, LockClient, LockClientBuilder, Released,
};
use testbed::{Clustered, Fate, Impostor, Part, Replicated, Server, Watched, eventually};

use super::{SOON, behind, within};

/// What one connection has sent.
#[derive(Debug, Default, Clone)]
struct Sent {
    logins: Vec<String>,
    commands: BTreeSet<String>,
    before_login: usize,
}

/// The connections to all servers, by the server's port and their number.
type Connections = Arc<Mutex<BTreeMap<(u16, usize), Sent>>>;

/// Accepts every login, in place of the server on `port`.
struct AcceptAll {
    port: u16,
    connections: Connections,
}

impl Part for AcceptAll {
    fn command(&self, connection: usize, words: &[&[u8]]) -> Fate {
        let mut connections = self.connections.lock().unwrap();
        let sent = connections.entry((self.port, connection)).or_default();
        let text = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
        match words {
            [b"HELLO", version, b"AUTH", _, token] => {
                sent.logins.push(text(token));
                Fate::PassInstead(vec![b"HELLO".to_vec(), version.to_vec()])
            }
            [b"AUTH", .., token] => {
                sent.logins.push(text(token));
                Fate::text("+OK\r\n")
            }
            [name, ..] => {
                sent.before_login += usize::from(sent.logins.is_empty());
                sent.commands.insert(text(name));
                Fate::Pass
            }
            [] => Fate::HangUp,
        }
    }
}

impl Sent {
    fn purpose(&self) -> &'static str {
        let commands = [
            ("WAIT", "replicas"),
            ("EVALSHA", "scripts"),
            ("SUBSCRIBE", "messages"),
            ("SSUBSCRIBE", "messages of a shard"),
            ("SENTINEL", "sentinel"),
            ("CLUSTER", "slot map"),
            ("INFO", "role"),
        ];
        let purpose = commands
            .iter()
            .find(|(command, _)| self.commands.contains(*command));
        purpose.map_or("", |(_, purpose)| purpose)
    }
}

/// A client whose provider gives a new token each time, at impostors of `servers`.
struct Counted {
    connections: Connections,
    requests: Arc<Mutex<Vec<(CredentialsRequest, String)>>>,
    _impostors: Vec<Impostor>,
    /// From ports of servers to ports of impostors.
    ports: HashMap<u16, u16>,
}

impl Counted {
    async fn before(servers: impl IntoIterator<Item = &Server>) -> Self {
        let connections = Connections::default();
        let part = |port| AcceptAll {
            port,
            connections: connections.clone(),
        };
        let (_impostors, ports) = behind(servers, part).await;
        Self {
            connections,
            requests: Arc::default(),
            _impostors,
            ports,
        }
    }

    fn node(&self, server: &Server) -> String {
        format!("127.0.0.1:{}", self.ports[&server.port()])
    }

    async fn build(&self, builder: LockClientBuilder) -> LockClient {
        let (ports, requests) = (self.ports.clone(), self.requests.clone());
        let config = Config::default().with_durability(Durability::Auto);
        builder
            .address_map(move |host, port| (host.into(), *ports.get(&port).unwrap_or(&port)))
            .config(config)
            .credentials_provider(move |request| {
                let mut requests = requests.lock().unwrap();
                let token = format!("token-{}", requests.len());
                requests.push((request, token.clone()));
                async move { Ok::<_, String>(Credentials::new("app", token)) }
            })
            .build()
            .await
            .unwrap()
    }

    /// Has one client wait for the lock `name` of another one, and checks that each connection has logged in by a token that
    /// the provider gave for its server, once. There are connections of all `purposes`.
    async fn check(
        &self,
        name: &str,
        purposes: &[&'static str],
        sentinels: &[Server],
        builder: impl Fn() -> LockClientBuilder,
    ) {
        let (holder, waiter) = (self.build(builder()).await, self.build(builder()).await);
        let guard = within(holder.reentrant_lock(name).lock()).await.unwrap();
        let waiting = waiter.reentrant_lock(name);
        let waiting = tokio::spawn(async move { waiting.lock().await?.unlock().await });
        eventually("there are connections of all purposes", SOON, async || {
            let connections = self.connections.lock().unwrap();
            let present: BTreeSet<_> = connections.values().map(Sent::purpose).collect();
            purposes.iter().all(|purpose| present.contains(purpose))
        })
        .await;
        self.logins_are_those_given(sentinels).await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        assert_eq!(within(waiting).await.unwrap(), Ok(Released::Fully));
    }

    async fn logins_are_those_given(&self, sentinels: &[Server]) {
        let of_sentinels: Vec<u16> = sentinels.iter().map(Server::port).collect();
        let logins = || {
            let connections = self.connections.lock().unwrap().clone();
            let mut logins = Vec::new();
            for ((port, _), sent) in connections {
                assert_eq!((sent.logins.len(), sent.before_login), (1, 0), "{sent:?}");
                logins.push((self.ports[&port], of_sentinels.contains(&port), sent.logins));
            }
            logins.sort();
            logins
        };
        let given = || {
            let requests = self.requests.lock().unwrap();
            let given = requests.iter().map(|(request, token)| {
                assert_eq!(request.host, "127.0.0.1");
                (request.port, request.is_sentinel, vec![token.clone()])
            });
            let mut given: Vec<_> = given.collect();
            given.sort();
            given
        };
        eventually("each connection has its login", SOON, async || {
            logins() == given()
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_messages_roles_and_replicas() {
    let set_up = Replicated::start(1).await;
    let counted = Counted::before(&set_up.servers).await;
    let purposes = ["messages", "replicas", "role", "scripts"];
    let builder = || {
        let nodes = set_up.servers.iter().map(|server| counted.node(server));
        LockClient::builder().replicated(nodes)
    };
    counted.check("a", &purposes, &[], builder).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_know_that_they_are_meant() {
    let watched = Watched::start_some(1, 1).await;
    let all = watched.replicated.servers.iter().chain(&watched.sentinels);
    let counted = Counted::before(all).await;
    let builder = || {
        let nodes = watched.sentinels.iter().map(|server| counted.node(server));
        LockClient::builder().sentinel(Watched::SERVICE, nodes)
    };
    let purposes = ["messages", "scripts", "sentinel"];
    counted
        .check("a", &purposes, &watched.sentinels, builder)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_a_cluster_and_its_map() {
    let cluster = Clustered::masters(3).await;
    let counted = Counted::before(&cluster.servers).await;
    let builder = || LockClient::builder().cluster([counted.node(&cluster.servers[0])]);
    let purposes = ["messages of a shard", "scripts", "slot map"];
    for node in 0..3 {
        let name = cluster.name_on(node, "order").await;
        counted.check(&name, &purposes, &[], builder).await;
    }
    let connections = counted.connections.lock().unwrap();
    let of_scripts = connections
        .iter()
        .filter(|(_, sent)| sent.purpose() == "scripts");
    let ports: BTreeSet<u16> = of_scripts.map(|((port, _), _)| *port).collect();
    assert_eq!(ports.len(), 3, "each node has a connection for scripts");
}
