//! Tokens that end, on real servers whose connections are cut: no hold is lost.
//!
//! `TOKEN_SECONDS` makes the runs long: tokens of 10 s, and cuts every 25 s.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redisson_lock::{Config, Credentials, LockClient, LockClientBuilder, Owner};
use testbed::{Clustered, Fate, Impostor, Part, Server, Watched, eventually};
use tokio::{task::JoinSet, time::Instant};

use super::{behind, within};

/// How long the tokens of a run are valid, how often connections are cut, and for how long.
#[derive(Clone, Copy)]
struct Run {
    valid: Duration,
    cut_every: Duration,
    lasts: Duration,
}

impl Run {
    fn chosen() -> Self {
        let seconds = std::env::var("TOKEN_SECONDS").ok();
        let seconds = seconds.map(|text| text.parse().expect("TOKEN_SECONDS is a number"));
        match seconds.map(Duration::from_secs) {
            None => Self {
                valid: Duration::from_secs(2),
                cut_every: Duration::from_secs(4),
                lasts: Duration::from_secs(10),
            },
            Some(lasts) => Self {
                valid: Duration::from_secs(10),
                cut_every: Duration::from_secs(25),
                lasts,
            },
        }
    }
}

/// Issues tokens, which each of its servers accepts until their end.
struct Authority {
    servers: Vec<redis::aio::MultiplexedConnection>,
    tokens: Arc<Mutex<HashMap<String, Instant>>>,
    valid: Duration,
    issued: AtomicUsize,
}

impl Authority {
    async fn over(servers: &[&Server], valid: Duration) -> Arc<Self> {
        let mut connections = Vec::new();
        for server in servers {
            // The test bed's connections keep the user `default`.
            server
                .command::<()>(&["ACL", "SETUSER", "app", "on", "~*", "&*", "+@all"])
                .await;
            connections.push(server.admin().await);
        }
        Arc::new(Self {
            servers: connections,
            tokens: Arc::default(),
            valid,
            issued: AtomicUsize::new(0),
        })
    }

    async fn set(&self, rule: &str) -> Result<(), redis::RedisError> {
        for server in &self.servers {
            let mut command = redis::cmd("ACL");
            command.arg("SETUSER").arg("app").arg(rule);
            let () = command.query_async(&mut server.clone()).await?;
        }
        Ok(())
    }

    async fn issue(self: Arc<Self>) -> Result<Credentials, redis::RedisError> {
        let number = self.issued.fetch_add(1, Ordering::SeqCst);
        let token = format!("token-{number}-{:016x}", fastrand::u64(..));
        self.set(&format!(">{token}")).await?;
        let credentials = Credentials::new("app", &token).valid_for(self.valid);
        let end = Instant::now() + self.valid;
        self.tokens.lock().unwrap().insert(token.clone(), end);
        tokio::spawn(async move {
            tokio::time::sleep_until(end).await;
            let _ = self.set(&format!("<{token}")).await;
        });
        Ok(credentials)
    }
}

/// What the impostors have seen.
#[derive(Default)]
struct Counts {
    first_logins: AtomicUsize,
    later_logins: AtomicUsize,
    refused: AtomicUsize,
    /// Commands on connections whose token has ended, which no server need accept.
    late: AtomicUsize,
}

/// Ends each connection whose token has ended, as Azure does.
struct Border {
    tokens: Arc<Mutex<HashMap<String, Instant>>>,
    counts: Arc<Counts>,
    ends: Mutex<HashMap<usize, Instant>>,
}

impl Part for Border {
    fn command(&self, connection: usize, words: &[&[u8]]) -> Fate {
        let token = match words {
            [b"HELLO", _, b"AUTH", _, token] => {
                self.counts.first_logins.fetch_add(1, Ordering::SeqCst);
                Some(token)
            }
            [b"AUTH", _, token] => {
                self.counts.later_logins.fetch_add(1, Ordering::SeqCst);
                Some(token)
            }
            _ => None,
        };
        let mut ends = self.ends.lock().unwrap();
        if let Some(token) = token {
            let token = String::from_utf8_lossy(token);
            let end = self.tokens.lock().unwrap().get(&*token).copied();
            ends.insert(connection, end.expect("the authority issued it"));
        }
        match ends.get(&connection) {
            Some(end) if Instant::now() > *end => {
                self.counts.late.fetch_add(1, Ordering::SeqCst);
                Fate::HangUp
            }
            _ => Fate::Pass,
        }
    }

    fn reply(&self, _connection: usize, words: &[&[u8]], reply: Vec<u8>) -> Vec<u8> {
        let is_login = matches!(words, [b"HELLO" | b"AUTH", ..]);
        if is_login && reply.starts_with(b"-") {
            self.counts.refused.fetch_add(1, Ordering::SeqCst);
        }
        reply
    }
}

/// Servers behind borders, and the authority of their tokens.
struct Country {
    authority: Arc<Authority>,
    counts: Arc<Counts>,
    /// From ports of servers to ports of impostors.
    ports: HashMap<u16, u16>,
    _impostors: Vec<Impostor>,
    run: Run,
}

impl Country {
    async fn of(servers: &[&Server]) -> Self {
        let run = Run::chosen();
        let authority = Authority::over(servers, run.valid).await;
        let counts = Arc::<Counts>::default();
        let (_impostors, ports) = behind(servers.iter().copied(), |_| Border {
            tokens: authority.tokens.clone(),
            counts: counts.clone(),
            ends: Mutex::default(),
        })
        .await;
        Self {
            authority,
            counts,
            ports,
            _impostors,
            run,
        }
    }

    fn node(&self, server: &Server) -> String {
        format!("127.0.0.1:{}", self.ports[&server.port()])
    }

    async fn client(&self, builder: LockClientBuilder) -> LockClient {
        let (ports, authority) = (self.ports.clone(), self.authority.clone());
        let mut config = Config::default();
        config.watchdog_lease = Duration::from_secs(5);
        config.command_wait = Duration::from_secs(20);
        let builder = builder
            .address_map(move |host, port| (host.into(), *ports.get(&port).unwrap_or(&port)))
            .config(config)
            .credentials_provider(move |_| authority.clone().issue());
        within(builder.build()).await.unwrap()
    }

    /// Holds a lock of each name, passes another one of each name between two clients, and cuts all connections now and then.
    async fn keeps_holds(
        &self,
        names: &[String],
        servers: &[&Server],
        builder: impl Fn() -> LockClientBuilder,
    ) {
        let clients = [self.client(builder()).await, self.client(builder()).await];
        let mut guards = Vec::new();
        let mut visits = JoinSet::new();
        let visited = Arc::new(AtomicUsize::new(0));
        for name in names {
            guards.push(
                within(clients[0].reentrant_lock(name).lock())
                    .await
                    .unwrap(),
            );
            for client in &clients {
                let name = format!("{{{name}}}:contended");
                let lock = client.reentrant_lock(name).owned_by(&Owner::new());
                let visited = visited.clone();
                visits.spawn(async move {
                    loop {
                        let guard = lock.lock().await.expect("the lock is granted");
                        tokio::time::sleep(Duration::from_millis(20)).await;
                        assert!(!guard.is_lost(), "a contended hold was lost");
                        // An answer that a cut has swallowed is no loss: the release is repeated.
                        let _ = guard.unlock().await;
                        visited.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        }
        let began = Instant::now();
        let mut cuts = 0;
        while began.elapsed() < self.run.lasts {
            // The time between cuts is the point of this loop: tokens end meanwhile.
            tokio::time::sleep(self.run.cut_every).await;
            let before = visited.load(Ordering::SeqCst);
            for server in servers {
                server
                    .command::<()>(&["CLIENT", "KILL", "USER", "app"])
                    .await;
            }
            cuts += 1;
            eventually(
                "locks are passed on after the cut",
                super::SOON,
                async || {
                    assert!(visits.try_join_next().is_none(), "a visitor ended");
                    visited.load(Ordering::SeqCst) > before + 10
                },
            )
            .await;
            for guard in &guards {
                assert!(
                    !guard.is_lost(),
                    "{} is lost after {cuts} cuts",
                    guard.name()
                );
            }
        }
        visits.abort_all();
        for guard in guards {
            within(guard.unlock())
                .await
                .expect("it was held all the time");
        }
        self.report(cuts, visited.load(Ordering::SeqCst));
    }

    fn report(&self, cuts: usize, visits: usize) {
        let of = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let Counts {
            first_logins,
            later_logins,
            refused,
            late,
        } = &*self.counts;
        println!(
            "{cuts} cuts, {} tokens, {} first logins, {} later ones, {visits} visits",
            of(&self.authority.issued),
            of(first_logins),
            of(later_logins)
        );
        // A machine that stands still for a moment outlasts short tokens. Without renewals, as many are late as are issued.
        let most = match self.run.valid < Duration::from_secs(10) {
            true => of(later_logins) / 4,
            false => 0,
        };
        assert!(of(refused) <= most, "{refused:?} tokens were refused");
        assert!(
            of(late) <= most,
            "{late:?} connections outlived their tokens"
        );
        assert!(of(later_logins) > 5, "open connections log in anew");
        assert!(of(first_logins) > 2 * cuts, "cut connections are replaced");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server() {
    let server = Server::start().await;
    let country = Country::of(&[&server]).await;
    let builder = || LockClient::builder().url(format!("redis://{}", country.node(&server)));
    country
        .keeps_holds(&["order".to_owned()], &[&server], builder)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_sentinels() {
    let watched = Watched::start_some(1, 2).await;
    let servers = watched.replicated.servers.iter();
    let servers: Vec<_> = servers.chain(&watched.sentinels).collect();
    let country = Country::of(&servers).await;
    let builder = || {
        let nodes = watched.sentinels.iter().map(|server| country.node(server));
        LockClient::builder().sentinel(Watched::SERVICE, nodes)
    };
    country
        .keeps_holds(&["order".to_owned()], &servers, builder)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_cluster() {
    let cluster = Clustered::masters(3).await;
    let servers: Vec<_> = cluster.servers.iter().collect();
    let country = Country::of(&servers).await;
    let builder = || LockClient::builder().cluster([country.node(servers[0])]);
    let mut names = Vec::new();
    for node in 0..3 {
        names.push(cluster.name_on(node, "order").await);
    }
    country.keeps_holds(&names, &servers, builder).await;
}
