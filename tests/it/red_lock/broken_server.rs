//! One of three servers breaks while a RedLock is held: the other two answer every operation.
//!
//! With `--nocapture`, the tests print the times that docs/groups.md has.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use redisson_lock::{Config, Error, LockClient, MultiGuard, RedLock, Released};
use testbed::{BlackHole, Proxy, Server, unique_name};
use tokio::time::timeout;

use crate::hazards::stage::{GENEROUS, connect};

/// The longest time of an operation, after which a majority has answered long ago.
const SOON: Duration = Duration::from_millis(700);
/// The server that breaks.
const BROKEN: usize = 1;

#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The process is killed.
    Killed,
    /// The process is stopped (SIGSTOP).
    Stopped,
    /// A firewall holds all bytes of open connections and of new ones.
    Silent,
    /// Connections end, and no SYN is answered.
    Swallowed,
}

/// Three servers, and a client of each. Two more ways lead to the server that breaks.
struct Trio {
    fault: Fault,
    servers: Vec<Server>,
    proxy: Proxy,
    hole: BlackHole,
    clients: Vec<LockClient>,
    rivals: Vec<LockClient>,
    name: String,
}

impl Trio {
    async fn new(fault: Fault) -> Self {
        let servers = join_all([(); 3].map(|()| Server::start())).await;
        let proxy = Proxy::start(servers[BROKEN].port()).await;
        let hole = BlackHole::before(servers[BROKEN].port());
        let mut urls: Vec<_> = servers.iter().map(Server::url).collect();
        match fault {
            Fault::Killed | Fault::Stopped => {}
            Fault::Silent => urls[BROKEN] = proxy.url(),
            Fault::Swallowed => urls[BROKEN] = format!("redis://{}", hole.address()),
        }
        let connected = || join_all(urls.iter().map(|url| connect(url, Config::default())));
        let (clients, rivals) = (connected().await, connected().await);
        Self {
            fault,
            servers,
            proxy,
            hole,
            clients,
            rivals,
            name: unique_name("red"),
        }
    }

    fn lock_of(&self, clients: &[LockClient]) -> RedLock {
        let locks = clients
            .iter()
            .map(|client| client.reentrant_lock(&self.name));
        RedLock::of(locks)
    }

    fn lock(&self) -> RedLock {
        self.lock_of(&self.clients)
    }

    /// A hold of all three members: a majority waits for a slow third for 10 ms.
    async fn held(&self, lock: &RedLock) -> MultiGuard {
        let of_all = async {
            loop {
                let guard = lock.lock().await.unwrap();
                if guard.names().count() == 3 {
                    return guard;
                }
                guard.unlock().await.unwrap();
            }
        };
        let guard = timeout(GENEROUS, of_all).await;
        guard.expect("three servers grant")
    }

    async fn break_one(&mut self) {
        match self.fault {
            Fault::Killed => self.servers[BROKEN].kill(),
            Fault::Stopped => self.servers[BROKEN].pause(),
            Fault::Silent => self.proxy.faults().stall(true),
            Fault::Swallowed => self.hole.swallow().await,
        }
    }

    /// Whether another owner is granted the lock.
    async fn is_free(&self) -> bool {
        let rival = self.lock_of(&self.rivals).try_lock().await;
        rival.unwrap().is_some()
    }
}

/// Runs an operation, and fails if it takes long.
async fn soon<T>(trio: &Trio, what: &str, operation: impl Future<Output = T>) -> T {
    let began = Instant::now();
    let done = operation.await;
    is_soon(trio, what, began.elapsed());
    done
}

fn is_soon(trio: &Trio, what: &str, took: Duration) {
    println!("{:?}: {what} took {took:?}", trio.fault);
    assert!(took <= SOON, "{:?}: {what} took {took:?}", trio.fault);
}

async fn extends(mut trio: Trio) {
    let lease = Duration::from_millis(2_500);
    let guard = trio.held(&trio.lock().with_lease(lease)).await;
    trio.break_one().await;
    let began = Instant::now();
    let extended = guard.extend(lease).await;
    let took = began.elapsed();
    assert_eq!(extended, Ok(()));
    assert!(
        !trio.is_free().await && !guard.is_lost(),
        "extend returned Ok for a hold that is over, after {took:?}"
    );
    is_soon(&trio, "extend", took);
}

async fn unlocks(mut trio: Trio) {
    let guard = trio.held(&trio.lock()).await;
    trio.break_one().await;
    let released = soon(&trio, "unlock", guard.unlock()).await;
    assert_eq!(released, Ok(Released::Fully));
    assert!(trio.is_free().await);
}

async fn unlocks_each(mut trio: Trio) {
    let guard = trio.held(&trio.lock()).await;
    trio.break_one().await;
    let each = soon(&trio, "unlock_each", guard.unlock_each()).await;
    let results: Vec<_> = each.into_iter().map(|(_, released)| released).collect();
    let broken = format!("{:?}", results[BROKEN]);
    assert!(
        matches!(&results[BROKEN], Err(Error::Unavailable { .. })),
        "{broken}"
    );
    assert!(broken.contains("127.0.0.1:"), "{broken}");
    for index in [0, 2] {
        assert_eq!(results[index], Ok(Released::Fully), "{index}");
    }
    assert!(trio.is_free().await);
}

async fn unlocks_leaked_holds(mut trio: Trio) {
    let lock = trio.lock();
    trio.held(&lock).await.leak();
    trio.break_one().await;
    let released = soon(&trio, "unlock of leaked holds", lock.unlock()).await;
    assert_eq!(released, Ok(Released::Fully));
    assert!(trio.is_free().await);
}

async fn runs(mut trio: Trio) {
    let lock = trio.lock();
    let began = lock.run(async |_guard| {
        trio.break_one().await;
        Instant::now()
    });
    let took = began.await.unwrap().elapsed();
    is_soon(&trio, "the release after run", took);
    assert!(trio.is_free().await);
}

async fn shuts_down(mut trio: Trio) {
    trio.held(&trio.lock()).await.leak();
    trio.break_one().await;
    let shutdowns = trio.clients.iter().map(LockClient::shutdown_and_release);
    let reports = soon(&trio, "shutdown_and_release", join_all(shutdowns)).await;
    let left = reports.iter().map(|report| report.unreleased.len());
    assert_eq!(left.collect::<Vec<_>>(), [0, 1, 0]);
    assert!(trio.is_free().await);
}

async fn all_operations(fault: Fault) {
    let trio = || Trio::new(fault);
    extends(trio().await).await;
    unlocks(trio().await).await;
    unlocks_each(trio().await).await;
    unlocks_leaked_holds(trio().await).await;
    runs(trio().await).await;
    shuts_down(trio().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_answers_beside_a_killed_server() {
    all_operations(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_answers_beside_a_stopped_server() {
    all_operations(Fault::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_answers_beside_a_silent_server() {
    all_operations(Fault::Silent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_majority_answers_beside_a_server_behind_a_black_hole() {
    all_operations(Fault::Swallowed).await;
}
