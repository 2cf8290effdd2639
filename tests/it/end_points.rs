//! Single addresses behind which there may be several servers: proxies that distribute names, one end point of a cluster. Names share
//! calls only where one server is known to have all names.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures_util::future::join_all;
use redisson_lock::{Config, EndpointKind, Error, Guard, LockClient, Reentrant};
use testbed::{Clustered, Fate, Impostor, Part, Proxy, Server, eventually};

const SOON: Duration = Duration::from_secs(20);
/// A busy machine renews in time.
const LEASE: Duration = Duration::from_secs(5);
const NAMES: usize = 64;
const SHARDS: usize = 3;

/// How a proxy answers to `HELLO` and `CLIENT`.
#[derive(Debug, Clone, Copy)]
enum Manners {
    /// As a command that it does not know.
    Refuses,
    /// As the first shard does: as a server of its own.
    Forwards,
    /// As a server of its own, with an address that it makes up.
    Invents,
}

/// How a proxy distributes names.
#[derive(Debug, Clone, Copy)]
enum Spread {
    Modulo,
    /// By the next point of a ring on which every shard has points.
    Ring,
    /// By the slots of a cluster.
    Slots,
}

impl Spread {
    fn shard(self, key: &[u8]) -> usize {
        match self {
            Self::Modulo => hash(key) as usize % SHARDS,
            Self::Ring => {
                let point = |number: usize| hash(format!("point {number}").as_bytes());
                let points = 0..SHARDS * 40;
                let next = points.min_by_key(|number| point(*number).wrapping_sub(hash(key)));
                next.unwrap() % SHARDS
            }
            Self::Slots => usize::from(slot(key)) * SHARDS / 16_384,
        }
    }
}

/// FNV-1a, and a step that spreads names which differ at the end alone.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    let hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The slot of a key without braces, or with a hash tag.
fn slot(key: &[u8]) -> u16 {
    let text = String::from_utf8_lossy(key);
    let tag = text
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map_or(key, |(tag, _)| tag.as_bytes());
    let crc = hashed.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    });
    crc % 16_384
}

/// The keys of a call of a script.
fn keys<'a>(words: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    let (b"EVAL" | b"EVALSHA", [_, count, keys @ ..]) = (*words.first()?, words.get(1..)?) else {
        return None;
    };
    let count: usize = std::str::from_utf8(count).ok()?.parse().ok()?;
    Some(keys.get(..count)?.to_vec())
}

/// A proxy that sends each script to the shard of its first key.
struct Sharding {
    ports: Vec<u16>,
    spread: Spread,
    manners: Manners,
    /// The calls with keys of more than one name.
    joint: Arc<AtomicUsize>,
}

impl Part for Sharding {
    fn command(&self, _connection: usize, words: &[&[u8]]) -> Fate {
        if let Some(keys) = keys(words) {
            // No name of a test is a part of another.
            let is_of_first = |key: &&[u8]| key.windows(keys[0].len()).any(|part| part == keys[0]);
            if !keys.iter().all(is_of_first) {
                self.joint.fetch_add(1, SeqCst);
            }
            return Fate::PassTo(self.ports[self.spread.shard(keys[0])]);
        }
        match (self.manners, words) {
            (Manners::Refuses, [b"HELLO" | b"CLIENT", ..]) => {
                Fate::text("-ERR unknown command, with args beginning with: \r\n")
            }
            (Manners::Invents, [b"HELLO", ..]) => Fate::text(
                "%3\r\n$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n",
            ),
            (Manners::Invents, [b"CLIENT", b"INFO"]) => {
                Fate::text("+id=7 addr=127.0.0.1:1 laddr=127.0.0.1:2 sub=0 psub=0 ssub=0\r\n")
            }
            _ => Fate::PassTo(self.ports[0]),
        }
    }
}

struct Bed {
    proxy: Impostor,
    joint: Arc<AtomicUsize>,
    _servers: Vec<Server>,
}

impl Bed {
    async fn start(manners: Manners, spread: Spread) -> Self {
        let servers = join_all((0..SHARDS).map(|_| Server::start())).await;
        let joint = Arc::default();
        let ports = servers.iter().map(Server::port).collect();
        let part = Sharding {
            ports,
            spread,
            manners,
            joint: Arc::clone(&joint),
        };
        let proxy = Impostor::play(None, part).await;
        Self {
            proxy,
            joint,
            _servers: servers,
        }
    }

    async fn connect(&self) -> LockClient {
        connect(&self.proxy.url()).await
    }
}

async fn connect(url: &str) -> LockClient {
    let mut config = Config::default();
    config.watchdog_lease = LEASE;
    config.max_poll_interval = Duration::from_millis(200);
    config.command_wait = SOON;
    let builder = LockClient::builder().url(url).config(config);
    builder.build().await.expect("the client connects")
}

fn names(of: &str) -> Vec<String> {
    (0..NAMES)
        .map(|number| format!("{of}-{number:02}"))
        .collect()
}

/// One guard for each name, all requested at once.
async fn lock_all(client: &LockClient, names: &[String]) -> Vec<Guard<Reentrant>> {
    let locking = names.iter().map(|name| {
        let lock = client.reentrant_lock(name);
        tokio::spawn(async move { lock.lock().await })
    });
    let locked = join_all(locking).await.into_iter();
    locked
        .map(|guard| guard.unwrap().expect("the lock is free"))
        .collect()
}

/// The names that `client` gets, one after the other. It releases them again.
async fn free(client: &LockClient, names: &[String]) -> BTreeSet<String> {
    let mut free = BTreeSet::new();
    for name in names {
        if let Some(guard) = client.reentrant_lock(name).try_lock().await.unwrap() {
            guard.unlock().await.unwrap();
            free.insert(name.clone());
        }
    }
    free
}

const PROXIES: [(Manners, Spread); 4] = [
    (Manners::Refuses, Spread::Ring),
    (Manners::Refuses, Spread::Modulo),
    (Manners::Forwards, Spread::Modulo),
    (Manners::Invents, Spread::Ring),
];

/// 26 to 34 of the 64 names were granted twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_behind_a_proxy_are_locked_and_renewed_and_released_where_other_clients_look() {
    for (manners, spread) in PROXIES {
        let bed = Bed::start(manners, spread).await;
        let (first, second) = (bed.connect().await, bed.connect().await);
        let names = names("lock");
        let used: BTreeSet<_> = names
            .iter()
            .map(|name| spread.shard(name.as_bytes()))
            .collect();
        assert_eq!(used.len(), SHARDS, "every shard has names");
        let guards = lock_all(&first, &names).await;
        assert_eq!(
            free(&second, &names).await,
            BTreeSet::new(),
            "{manners:?} {spread:?}"
        );
        tokio::time::sleep(LEASE * 2).await;
        let lost = guards.iter().filter(|guard| guard.is_lost()).count();
        assert_eq!(lost, 0, "{manners:?} {spread:?}");
        assert_eq!(
            free(&second, &names).await,
            BTreeSet::new(),
            "{manners:?} {spread:?}"
        );
        let (unlocked, dropped): (Vec<_>, Vec<_>) = guards
            .into_iter()
            .enumerate()
            .partition(|(index, _)| index % 2 == 0);
        join_all(unlocked.into_iter().map(|(_, guard)| guard.unlock())).await;
        drop(dropped);
        eventually("all are released", SOON, async || {
            free(&second, &names).await.len() == NAMES
        })
        .await;
        assert_eq!(bed.joint.load(SeqCst), 0, "{manners:?} {spread:?}");
    }
}

/// Each kind travels alone: by an owner that waits for nothing, in groups and in bursts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kind_names_two_locks_in_one_call_behind_a_proxy() {
    let bed = Bed::start(Manners::Forwards, Spread::Modulo).await;
    let (first, second) = (bed.connect().await, bed.connect().await);
    let members = names("member");
    let group = first.multi_lock(&members).lock().await.unwrap();
    assert_eq!(free(&second, &members).await, BTreeSet::new());
    group.unlock().await.unwrap();
    assert_eq!(free(&second, &members).await.len(), NAMES);

    let names = names("other");
    let working = names.iter().map(|name| {
        let (client, name) = (first.clone(), name.clone());
        tokio::spawn(async move {
            let semaphore = client.semaphore(format!("s-{name}"));
            assert!(semaphore.try_set_permits(1).await?);
            let permit = semaphore.acquire().await?;
            let fair = client.fair_lock(format!("f-{name}")).lock().await?;
            let token = client.fenced_lock(format!("t-{name}")).lock().await?;
            let writes = client
                .read_write_lock(format!("w-{name}"))
                .write()
                .lock()
                .await?;
            let latch = client.count_down_latch(format!("l-{name}"));
            latch.try_set_count(1).await?;
            latch.count_down().await?;
            Ok::<_, Error>((permit, fair, token, writes))
        })
    });
    let held: Vec<_> = join_all(working)
        .await
        .into_iter()
        .map(|held| held.unwrap().unwrap())
        .collect();
    for name in &names {
        let permit = second
            .semaphore(format!("s-{name}"))
            .try_acquire()
            .await
            .unwrap();
        assert!(permit.is_none(), "{name}");
        assert!(
            second
                .fair_lock(format!("f-{name}"))
                .is_locked()
                .await
                .unwrap(),
            "{name}"
        );
        assert!(
            second
                .fenced_lock(format!("t-{name}"))
                .is_locked()
                .await
                .unwrap(),
            "{name}"
        );
        let read = second
            .read_write_lock(format!("w-{name}"))
            .read()
            .try_lock()
            .await
            .unwrap();
        assert!(read.is_none(), "{name}");
    }
    drop(held);
    assert_eq!(bed.joint.load(SeqCst), 0);
}

/// One end point in front of the nodes of a real cluster.
async fn hidden(cluster: &Clustered) -> (Impostor, Arc<AtomicUsize>) {
    let joint = Arc::default();
    let part = Sharding {
        ports: cluster.servers.iter().map(Server::port).collect(),
        spread: Spread::Slots,
        manners: Manners::Forwards,
        joint: Arc::clone(&joint),
    };
    (Impostor::play(None, part).await, joint)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_end_point_of_a_cluster_serves_a_client_that_is_told_so() {
    let cluster = Clustered::masters(SHARDS).await;
    let (end_point, joint) = hidden(&cluster).await;
    match LockClient::connect(end_point.url()).await {
        Err(Error::Config { reason, .. }) => {
            assert!(reason.contains("?endpoint=proxy"), "{reason}")
        }
        other => panic!("{other:?}"),
    }
    let mut config = Config::default();
    config.max_poll_interval = 10 * SOON;
    let builder = || LockClient::builder().config(config.clone());
    let url = format!("{}?endpoint=proxy", end_point.url());
    let first = builder().url(url).build().await.unwrap();
    let told = builder()
        .url(end_point.url())
        .endpoint_kind(EndpointKind::Proxy);
    let second = told.build().await.unwrap();
    let names = names("lock");
    let guards = lock_all(&first, &names).await;
    assert_eq!(free(&second, &names).await, BTreeSet::new());
    // Messages wake the waiters, whichever node has the name.
    let waiting = names.iter().map(|name| {
        let lock = second.reentrant_lock(name);
        tokio::spawn(async move { lock.try_lock_for(SOON).await })
    });
    let waiting: Vec<_> = waiting.collect();
    let channels = async || {
        let channels: Vec<String> = cluster.servers[0].command(&["PUBSUB", "CHANNELS"]).await;
        channels.len() == NAMES
    };
    eventually("all wait", SOON, channels).await;
    drop(guards);
    for entered in join_all(waiting).await {
        assert!(
            entered.unwrap().unwrap().is_some(),
            "a message wakes the waiter"
        );
    }
    assert_eq!(joint.load(SeqCst), 0);
}

/// Answers each call of several slots, or of several names, by an error.
struct Strict {
    by_slot: bool,
    refusal: &'static str,
    refused: Arc<AtomicUsize>,
    together: Arc<Mutex<usize>>,
}

impl Part for Strict {
    fn command(&self, _connection: usize, words: &[&[u8]]) -> Fate {
        let Some(keys) = keys(words) else {
            return Fate::Pass;
        };
        let is_one = keys.iter().all(|key| match self.by_slot {
            true => slot(key) == slot(keys[0]),
            false => *key == keys[0],
        });
        if !is_one {
            self.refused.fetch_add(1, SeqCst);
            return Fate::text(&format!("-{}\r\n", self.refusal));
        }
        let mut together = self.together.lock().unwrap();
        *together = keys.len().max(*together);
        Fate::Pass
    }
}

/// A tenth of all calls were refused, for the life of the client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_batch_is_remembered_for_good() {
    for (by_slot, refusal) in [
        (
            true,
            "CROSSSLOT Keys in request don't hash to the same slot",
        ),
        (true, "ERR eval/evalsha command keys must be in same slot"),
        (false, "ERR a script has one key here"),
    ] {
        let server = Server::start().await;
        let (refused, together) = (Arc::default(), Arc::default());
        let part = Strict {
            by_slot,
            refusal,
            refused: Arc::clone(&refused),
            together: Arc::clone(&together),
        };
        let end_point = Impostor::play(Some(server.port()), part).await;
        let client = connect(&format!("{}?endpoint=server", end_point.url())).await;
        let (spread, in_one_slot) = (names("lock"), names("{tag}"));
        let round = async || {
            for names in [&spread, &in_one_slot] {
                let guards = lock_all(&client, names).await;
                join_all(guards.into_iter().map(Guard::unlock)).await;
            }
        };
        for _ in 0..3 {
            round().await;
        }
        let before = refused.load(SeqCst);
        assert!(before > 0, "{refusal}");
        *together.lock().unwrap() = 0;
        for _ in 0..3 {
            round().await;
        }
        assert_eq!(refused.load(SeqCst), before, "{refusal}");
        assert_eq!(*together.lock().unwrap() > 1, by_slot, "{refusal}");
    }
}

/// The number of calls of scripts for some hundred operations on different names.
async fn calls(server: &Server, url: &str) -> (u64, u64) {
    let client = connect(url).await;
    let names = names("lock");
    server.reset_calls().await;
    const ROUNDS: u64 = 5;
    for _ in 0..ROUNDS {
        let guards = lock_all(&client, &names).await;
        let unlocking = guards.into_iter().map(|guard| tokio::spawn(guard.unlock()));
        join_all(unlocking).await;
    }
    let calls = server.calls().await;
    let of = |name: &str| calls.get(name).copied().unwrap_or_default();
    (of("eval") + of("evalsha"), ROUNDS * 2 * NAMES as u64)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_share_calls_at_a_plain_server() {
    for options in [&[][..], &["--rename-command", "HELLO", ""]] {
        let server = Server::start_with(options).await;
        let (calls, operations) = calls(&server, &server.url()).await;
        assert!(
            calls < operations / 3,
            "{calls} calls for {operations} operations, {options:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_vouches_for_one_server_behind_a_tunnel() {
    let server = Server::start().await;
    let tunnel = Proxy::start(server.port()).await;
    let url = format!("redis://127.0.0.1:{}", tunnel.port());
    let (apart, operations) = calls(&server, &url).await;
    assert!(
        apart >= operations,
        "a tunnel proves nothing: {apart} calls"
    );
    let (together, _) = calls(&server, &format!("{url}?endpoint=server")).await;
    assert!(
        together < operations / 3,
        "{together} calls for {operations} operations"
    );
    let (apart, _) = calls(&server, &format!("{}?endpoint=proxy", server.url())).await;
    assert!(
        apart >= operations,
        "each name travels alone: {apart} calls"
    );
}
