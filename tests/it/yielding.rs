//! Clients that acquire a lock over and over leave it to each other, so no client starves.
//!
//! Shares are counted in turns. The limits are far from the shares on a quiet machine, so they hold
//! at any speed.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use redisson_lock::{Config, Kind, Lock, LockClient, MultiLock, ShardedPubSub};
use testbed::{Clustered, Proxy, Server, Watched, eventually, unique_name};
use tokio::{task::JoinSet, time::sleep};

use crate::hazards::stage::{
    GENEROUS, PROMPT, TEST_LIMIT, connect, exists, nothing_left, scripts, subscriptions,
};
use crate::witness::busy_at_worst;

const WORK: Duration = Duration::from_millis(5);
/// The turns of all contenders together.
const TURNS: u64 = 120;

/// Tasks that acquire a lock, work and release it until the contest is over.
#[derive(Default)]
struct Contest {
    tasks: JoinSet<()>,
    turns: Vec<Arc<AtomicU64>>,
    /// The contender of each turn.
    order: Arc<Mutex<Vec<usize>>>,
    over: Arc<AtomicBool>,
}

/// A lock of any type that can be held for one turn.
trait Turn: Clone + Send + Sync + 'static {
    fn take(&self, work: Duration) -> impl Future<Output = ()> + Send;
}

impl<K: Kind> Turn for Lock<K> {
    async fn take(&self, work: Duration) {
        let guard = self.lock().await.expect("the waiter acquires the lock");
        sleep(work).await;
        let _ = guard.unlock().await.expect("the lock is held");
    }
}

impl Turn for MultiLock {
    async fn take(&self, work: Duration) {
        let guard = self.lock().await.expect("the waiter acquires the lock");
        sleep(work).await;
        let _ = guard.unlock().await.expect("the lock is held");
    }
}

impl Contest {
    /// Adds `tasks` that share a count.
    fn enter(&mut self, lock: impl Turn, tasks: usize, work: Duration) -> Arc<AtomicU64> {
        let turns = Arc::<AtomicU64>::default();
        for _ in 0..tasks {
            let (lock, turns, over) = (lock.clone(), turns.clone(), self.over.clone());
            let (order, number) = (self.order.clone(), self.turns.len());
            self.tasks.spawn(async move {
                while !over.load(SeqCst) {
                    lock.take(work).await;
                    turns.fetch_add(1, SeqCst);
                    order.lock().expect("no panic").push(number);
                }
            });
        }
        self.turns.push(turns.clone());
        turns
    }

    /// Returns the turns of each contender, once they have had `all` together.
    async fn after(mut self, all: u64) -> Vec<u64> {
        let turns = || self.turns.iter().map(|turns| turns.load(SeqCst));
        eventually("the contenders have their turns", TEST_LIMIT, async || {
            turns().sum::<u64>() >= all
        })
        .await;
        let counted = turns().collect();
        self.over.store(true, SeqCst);
        while let Some(done) = self.tasks.join_next().await {
            done.expect("no panic");
        }
        counted
    }
}

/// The smallest share, relative to an equal one.
fn least(turns: &[u64]) -> f64 {
    let all: u64 = turns.iter().sum();
    let equal = all as f64 / turns.len() as f64;
    let least = turns.iter().min().copied().unwrap_or(0) as f64 / equal;
    println!("{turns:?}: {least:.2}");
    least
}

async fn client_of(server: &Server) -> LockClient {
    connect(&server.url(), Config::default()).await
}

/// Returns the smallest share of clients with a task each.
async fn contest_of<L: Turn>(clients: &[LockClient], lock: impl Fn(&LockClient) -> L) -> f64 {
    let mut contest = Contest::default();
    for client in clients {
        contest.enter(lock(client), 1, WORK);
    }
    least(&contest.after(TURNS).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_two_clients_has_its_share_of_every_kind() {
    let server = Server::start().await;
    let clients = [client_of(&server).await, client_of(&server).await];
    let name = unique_name("share");
    assert!(contest_of(&clients, |client| client.reentrant_lock(&name)).await >= 0.5);
    assert!(contest_of(&clients, |client| client.fenced_lock(&name)).await >= 0.5);
    let write = |client: &LockClient| client.read_write_lock(format!("{name}:rw")).write().clone();
    assert!(contest_of(&clients, write).await >= 0.5);
    let read = |client: &LockClient| client.read_write_lock(format!("{name}:rw")).read().clone();
    let mut beside = Contest::default();
    beside.enter(read(&clients[0]), 1, WORK);
    beside.enter(write(&clients[1]), 1, WORK);
    assert!(least(&beside.after(TURNS).await) >= 0.5);
    let group = |client: &LockClient| client.multi_lock([&name, &format!("{name}:2")]);
    assert!(contest_of(&clients, group).await >= 0.4);
    // A group and a lock that is one of its members.
    let mut beside = Contest::default();
    beside.enter(group(&clients[0]), 1, WORK);
    beside.enter(clients[1].reentrant_lock(&name), 1, WORK);
    assert!(least(&beside.after(TURNS).await) >= 0.4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_three_clients_has_its_share() {
    let server = Server::start().await;
    let clients = [
        client_of(&server).await,
        client_of(&server).await,
        client_of(&server).await,
    ];
    let name = unique_name("three");
    assert!(contest_of(&clients, |client| client.reentrant_lock(&name)).await >= 0.5);
}

/// Waiters poll, so they meet the time that a client leaves to them only by chance.
async fn pollers_are_let_in<K: Kind>(lock: impl Fn(&LockClient) -> Lock<K>) {
    let server = Server::start().await;
    let mut contest = Contest::default();
    for client in [client_of(&server).await, client_of(&server).await] {
        contest.enter(lock(&client), 1, WORK);
    }
    eventually("each client acquires the lock", TEST_LIMIT, async || {
        contest.turns.iter().all(|turns| turns.load(SeqCst) >= 20)
    })
    .await;
    contest.after(1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_spin_lock_all_acquire_it() {
    let name = unique_name("spin");
    pollers_are_let_in(|client| client.spin_lock(&name)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_a_simple_lock_all_acquire_it() {
    let name = unique_name("simple");
    pollers_are_let_in(|client| client.simple_lock(&name)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_task_has_its_share_beside_a_client_with_many() {
    let server = Server::start().await;
    let (crowded, lonely) = (client_of(&server).await, client_of(&server).await);
    let name = unique_name("crowded");
    let mut contest = Contest::default();
    contest.enter(crowded.reentrant_lock(&name), 32, Duration::from_millis(1));
    contest.enter(lonely.reentrant_lock(&name), 1, Duration::from_millis(1));
    let order = contest.order.clone();
    let share = least(&contest.after(4 * TURNS).await);
    // Equal shares of 33 tasks would give it one of 33, and equal shares of clients a half.
    assert!(share >= 0.12, "{share}");
    // Without yields each client keeps the lock for dozens of turns: 6 to 15 runs were seen, with
    // yields 387 to 475.
    let order = order.lock().expect("no panic");
    let runs = order.chunk_by(|one, next| one == next).count();
    assert!(runs as u64 >= TURNS, "{runs} runs of {} turns", order.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_far_from_the_server_acquires_the_lock() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let far = connect(&proxy.url(), Config::default()).await;
    proxy.faults().delay(Duration::from_millis(5));
    proxy.faults().delay_replies(Duration::from_millis(5));
    for near_tasks in [1, 16] {
        let (near, name) = (client_of(&server).await, unique_name("far"));
        let mut contest = Contest::default();
        contest.enter(
            near.reentrant_lock(&name),
            near_tasks,
            Duration::from_millis(1),
        );
        contest.enter(far.reentrant_lock(&name), 1, Duration::from_millis(1));
        let turns = contest.after(3 * TURNS).await;
        // Without yields the far client gets one turn in several seconds.
        assert!(turns[1] >= 5, "{turns:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_listener_costs_a_part_of_the_time_only() {
    let server = Server::start().await;
    let client = client_of(&server).await;
    let lock = client.reentrant_lock(unique_name("dead"));
    let _listener = listener(&server, lock.name()).await;
    // Compared within one run: the time that pairs waited, and all time.
    let mut waited = Duration::ZERO;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        let asked = Instant::now();
        let guard = lock.lock().await.unwrap();
        waited += asked.elapsed();
        sleep(Duration::from_millis(1)).await;
        let _ = guard.unlock().await.unwrap();
    }
    let share = waited.as_secs_f64() / begun.elapsed().as_secs_f64();
    println!("{share:.2} of the time was spent waiting");
    assert!(share < 0.6, "{share}");
}

/// A subscriber of the lock's channel that never tries to acquire the lock.
async fn listener(server: &Server, name: &str) -> redis::aio::PubSub {
    let client = redis::Client::open(server.url()).expect("the URL is valid");
    let mut listener = client.get_async_pubsub().await.expect("the server is up");
    let channel = format!("redisson_lock__channel:{{{name}}}");
    listener
        .subscribe(channel)
        .await
        .expect("the server allows it");
    listener
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_without_neighbours_sends_no_more_than_its_scripts() {
    let server = Server::start().await;
    let client = client_of(&server).await;
    let lock = client.reentrant_lock(unique_name("alone"));
    lock.take(Duration::ZERO).await;
    let before = scripts(&server).await;
    for _ in 0..100 {
        lock.take(Duration::ZERO).await;
    }
    assert_eq!(scripts(&server).await - before, 200);
    assert_eq!(server.calls().await.get("subscribe"), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wait_that_is_dropped_during_a_yield_leaves_nothing() {
    let server = Server::start().await;
    let client = client_of(&server).await;
    let lock = client.reentrant_lock(unique_name("dropped"));
    let heard = listener(&server, lock.name()).await;
    for _ in 0..200 {
        lock.take(Duration::ZERO).await;
        // During a yield the future sends nothing. Otherwise it sends a request.
        drop(Box::pin(lock.lock()).now_or_never());
    }
    drop(heard);
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn try_lock_does_not_yield() {
    let server = Server::start().await;
    let client = client_of(&server).await;
    let lock = client.reentrant_lock(unique_name("tried"));
    let _listener = listener(&server, lock.name()).await;
    for _ in 0..100 {
        lock.take(Duration::from_millis(1)).await;
        let before = scripts(&server).await;
        let guard = lock.try_lock().await.unwrap().expect("the lock is free");
        assert_eq!(scripts(&server).await - before, 1);
        let _ = guard.unlock().await.unwrap();
        // The owner of a hold does not yield either.
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().now_or_never();
        drop((outer, inner));
    }
}

/// Readers of six clients overlap, so one of them always reads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_acquires_the_lock_among_overlapping_readers() {
    let server = Server::start().await;
    let name = unique_name("readers");
    let mut readers = Contest::default();
    for i in 0..6 {
        let client = client_of(&server).await;
        let read = client.read_write_lock(&name).read().clone();
        readers.enter(read, 1, Duration::from_millis(10 + 2 * i));
    }
    eventually("all clients read", GENEROUS, async || {
        readers.turns.iter().all(|turns| turns.load(SeqCst) > 1)
    })
    .await;
    let client = client_of(&server).await;
    let write = client.read_write_lock(&name).write().clone();
    for _ in 0..5 {
        let turn = tokio::time::timeout(GENEROUS, write.take(Duration::from_millis(1)));
        turn.await.expect("the writer acquires the lock");
    }
    let reads = readers.after(1).await;
    assert!(reads.iter().all(|turns| *turns > 5), "{reads:?}");
    nothing_left(&server, PROMPT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn intent_of_a_writer_concerns_new_readers_only() {
    let server = Server::start().await;
    // Readers that share a hold would send nothing.
    let config = Config::default().with_local_hand_off(Duration::ZERO);
    let client = connect(&server.url(), config).await;
    let name = unique_name("intent");
    let lock = client.read_write_lock(&name);
    let (reader, newcomer) = (redisson_lock::Owner::new(), redisson_lock::Owner::new());
    let outer = lock.read().owned_by(&reader).lock().await.unwrap();
    let intent = format!("{{{name}}}:write_intent");
    let set = ["SET", &intent, "1", "PX", "60000"];
    server.command::<()>(&set).await;
    let refused = lock.read().owned_by(&newcomer).try_lock().await;
    assert!(
        refused.unwrap().is_none(),
        "the intent refuses a new reader"
    );
    let inner = lock.read().owned_by(&reader).try_lock().await;
    drop(inner.unwrap().expect("a reader may enter again"));
    drop(outer);
    let refused = lock.read().owned_by(&newcomer).try_lock().await;
    assert!(
        refused.unwrap().is_none(),
        "the intent still refuses a new reader"
    );
    // The writer may read inside its write hold. Its acquisition ends its intent.
    let writer = lock.write().lock().await.unwrap();
    drop(lock.read().try_lock().await.unwrap().expect("a downgrade"));
    let _ = writer.unlock().await.unwrap();
    server.command::<()>(&["DEL", &intent]).await;
    let free = lock.read().owned_by(&newcomer).try_lock().await;
    drop(free.unwrap().expect("the intent has ended"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_leaves_no_intent_after_its_wait() {
    let server = Server::start().await;
    let (client, other) = (client_of(&server).await, client_of(&server).await);
    let name = unique_name("given-up");
    let intent = format!("{{{name}}}:write_intent");
    let read = client.read_write_lock(&name).read().clone();
    let write = other.read_write_lock(&name).write().clone();
    for gives_up in [true, false] {
        let reading = read.lock().await.unwrap();
        let waiting = tokio::spawn({
            let write = write.clone();
            async move { write.take(Duration::ZERO).await }
        });
        let left = async || exists(&server, &intent).await;
        eventually("the writer sets an intent", GENEROUS, left).await;
        if gives_up {
            waiting.abort();
            let _ = waiting.await;
            drop(reading);
        } else {
            drop(reading);
            waiting.await.expect("the waiter acquires the lock");
            assert!(
                !exists(&server, &intent).await,
                "the writer's intent outlives its acquisition"
            );
        }
        nothing_left(&server, PROMPT).await;
    }
    let mut config = Config::default();
    config.yield_to_others = false;
    let hasty = connect(&server.url(), config).await;
    let reading = read.lock().await.unwrap();
    let wait = Duration::from_millis(200);
    let refused = hasty
        .read_write_lock(&name)
        .write()
        .try_lock_for(wait)
        .await;
    assert!(busy_at_worst(refused).is_none());
    assert!(
        !exists(&server, &format!("{intent}:rest")).await,
        "a client without yields must set no pause between intents"
    );
    drop(reading);
}

async fn pair_on(url: &str, config: Config, name: &str) -> f64 {
    let clients = [
        connect(url, config.clone()).await,
        connect(url, config).await,
    ];
    contest_of(&clients, |client| client.reentrant_lock(name)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_client_has_its_share_on_a_cluster() {
    let cluster = Clustered::masters(2).await;
    for node in 0..2 {
        let mut config = Config::default();
        let name = cluster.name_on(node, "share").await;
        assert!(pair_on(&cluster.url(), config.clone(), &name).await >= 0.5);
        // The nodes do not report which clients listen elsewhere, so a tenth of the time is left to
        // them. Without the rule, one of the two clients gets a turn in a hundred.
        config.sharded_pubsub = ShardedPubSub::Off;
        assert!(pair_on(&cluster.url(), config, &name).await >= 0.1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_client_has_its_share_behind_sentinels() {
    let set_up = Watched::start_some(1, 1).await;
    let share = pair_on(&set_up.url(), Config::default(), &unique_name("share")).await;
    assert!(share >= 0.5);
    let master = &set_up.replicated.servers[0];
    eventually("no client subscribes", PROMPT, async || {
        let mut channels = subscriptions(master).await;
        channels.retain(|channel| !channel.starts_with("__sentinel__"));
        channels.is_empty()
    })
    .await;
}
