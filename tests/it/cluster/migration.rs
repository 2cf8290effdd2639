//! A slot moves to another node while its locks are acquired, held, awaited, renewed and released.
//!
//! During the move, a script runs at the old node while that node has all of its keys. It is
//! redirected to the new node when all keys have moved, and refused with TRYAGAIN when some have
//! (P-T3, P-R6).

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use redisson_lock::{Config, Error, Guard, Kind, Lock, LockClient, Owner, Released, ShardedPubSub};
use testbed::{Clustered, Move, eventually, slot_of};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::{
    contract::subjects::{Fair, Fenced, Read, Reentrant, Simple, Spin, Subject, Write},
    hazards::stage::{GENEROUS, Room, all_done, connect, let_pass, watched, woken_only},
};

/// How far the move has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// All keys are at the old node.
    Begun,
    /// All keys are at the new node, which does not own the slot yet.
    KeysMoved,
    Ended,
}

const PHASES: [Phase; 3] = [Phase::Begun, Phase::KeysMoved, Phase::Ended];

/// The move of a name's slot from the first node to the second.
struct Way<'a> {
    cluster: &'a Clustered,
    moving: Move,
    reached: Phase,
}

impl<'a> Way<'a> {
    async fn begin(cluster: &'a Clustered, name: &str) -> Self {
        Self {
            cluster,
            moving: cluster.begin_move(slot_of(name), 1).await,
            reached: Phase::Begun,
        }
    }

    async fn go_on_to(&mut self, phase: Phase) {
        if self.reached == Phase::Begun && phase != Phase::Begun {
            self.cluster.move_keys(self.moving).await;
        }
        if self.reached != Phase::Ended && phase == Phase::Ended {
            self.cluster.end_move(self.moving).await;
        }
        self.reached = phase;
    }

    /// Releases at the new node, before it owns the slot, a lock that a task waits for. The end of
    /// the move wakes the waiter.
    async fn wakes<K: Kind>(
        &mut self,
        guard: Guard<K>,
        waiting: JoinHandle<Result<Released, Error>>,
    ) {
        // The waiter is subscribed by now, so only a message wakes it.
        let_pass(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        self.go_on_to(Phase::KeysMoved).await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        self.go_on_to(Phase::Ended).await;
        let waited = timeout(GENEROUS, waiting)
            .await
            .expect("a message wakes the waiter");
        assert_eq!(waited.unwrap(), Ok(Released::Fully));
    }
}

/// No renewal is due within a test, and polls bring in waiters that missed a message.
fn config() -> Config {
    watched(Duration::from_secs(60))
}

async fn nothing_left(cluster: &Clustered) {
    for server in &cluster.servers {
        eventually("no key is left", GENEROUS, async || {
            let mut keys: Vec<String> = server.command(&["KEYS", "*"]).await;
            keys.retain(|key| !key.starts_with("redisson_lock_token:"));
            let channels: Vec<String> = server.command(&["PUBSUB", "SHARDCHANNELS"]).await;
            keys.is_empty() && channels.is_empty()
        })
        .await;
    }
}

/// A fair or fenced lock has further keys at the old node, which keep new owners out while the move
/// has just begun.
fn enters_during_the_move<W: Subject>(phase: Phase) -> bool {
    phase != Phase::Begun || !["fair", "fenced"].contains(&W::NAME)
}

/// Locks of kind `H`, with two holders where it is shared, and waiters of kind `W`. The holders
/// release in each phase.
async fn a_release_lets_waiters_in<H: Subject, W: Subject>() {
    let cluster = Clustered::masters(2).await;
    for phase in PHASES {
        let name = cluster.name_on(0, H::NAME).await;
        let mut guards = Vec::new();
        for _ in 0..if H::SHARED { 2 } else { 1 } {
            let lock = H::lock(&connect(&cluster.url(), config()).await, &name);
            guards.push(lock.lock().await.unwrap());
        }
        let inside = Arc::new(AtomicUsize::new(guards.len()));
        let mut waiting = JoinSet::new();
        let room = Arc::<Room>::default();
        for _ in 0..2 {
            let client = connect(&cluster.url(), config()).await;
            for _ in 0..2 {
                let lock = W::lock(&client, &name);
                waiting.spawn(wait::<W>(lock, room.clone(), inside.clone()));
            }
        }
        awaited::<W>(&cluster, &name).await;
        let mut way = Way::begin(&cluster, &name).await;
        way.go_on_to(phase).await;
        for guard in guards {
            inside.fetch_sub(1, SeqCst);
            let released = timeout(GENEROUS, guard.unlock()).await;
            let released = released.unwrap_or_else(|_| panic!("{phase:?}: not released"));
            assert_eq!(released, Ok(Released::Fully), "{phase:?}");
        }
        if enters_during_the_move::<W>(phase) {
            eventually("all waiters acquire the lock", GENEROUS, async || {
                room.visits() == 4
            })
            .await;
        }
        way.go_on_to(Phase::Ended).await;
        timeout(GENEROUS, all_done(waiting))
            .await
            .unwrap_or_else(|_| panic!("{phase:?}: a waiter did not acquire the lock"));
        assert_eq!(room.visits(), 4);
        nothing_left(&cluster).await;
    }
}

async fn wait<W: Subject>(lock: Lock<W::Kind>, room: Arc<Room>, holders: Arc<AtomicUsize>) {
    let guard = lock.lock().await.unwrap();
    assert_eq!(holders.load(SeqCst), 0, "a holder is still inside");
    room.visit_as::<W>().await;
    guard.unlock().await.unwrap();
}

async fn awaited<W: Subject>(cluster: &Clustered, name: &str) {
    let pattern = format!("{}*", W::channel(name));
    eventually("a client subscribes", GENEROUS, async || {
        let list = ["PUBSUB", "SHARDCHANNELS", &pattern];
        let channels: Vec<String> = cluster.servers[0].command(&list).await;
        !W::LISTENS || !channels.is_empty()
    })
    .await;
}

/// The new node publishes within its shard before it owns the slot, when all subscribers are still
/// at the old one. The end of the move wakes the waiters without a poll.
async fn the_end_of_the_move_wakes(sharded: ShardedPubSub) {
    let cluster = Clustered::masters(2).await;
    let mut config = woken_only();
    config.sharded_pubsub = sharded;
    let holder = connect(&cluster.url(), config.clone()).await;
    let waiter = connect(&cluster.url(), config).await;
    for kind_is_fair in [false, true] {
        let name = cluster.name_on(0, "woken").await;
        let mut way = Way::begin(&cluster, &name).await;
        if kind_is_fair {
            let guard = holder.fair_lock(&name).lock().await.unwrap();
            let lock = waiter.fair_lock(&name);
            let waiting = tokio::spawn(async move { lock.lock().await?.unlock().await });
            way.wakes(guard, waiting).await;
        } else {
            let guard = holder.reentrant_lock(&name).lock().await.unwrap();
            let lock = waiter.reentrant_lock(&name);
            let waiting = tokio::spawn(async move { lock.lock().await?.unlock().await });
            way.wakes(guard, waiting).await;
        }
    }
    nothing_left(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_w7_the_end_of_the_move_wakes_in_the_shard() {
    the_end_of_the_move_wakes(ShardedPubSub::Auto).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_w7_the_end_of_the_move_wakes_everywhere() {
    the_end_of_the_move_wakes(ShardedPubSub::Off).await;
}

/// A hold stays for longer than the lease, so a lost renewal shows.
const LEASE: Duration = Duration::from_millis(1500);
const STAY: Duration = Duration::from_millis(2000);

/// Holds are renewed in every phase. Kinds with re-entry are entered again.
async fn holds_go_on<S: Subject>() {
    let cluster = Clustered::masters(2).await;
    let name = cluster.name_on(0, S::NAME).await;
    let mut guards = Vec::new();
    for _ in 0..if S::SHARED { 2 } else { 1 } {
        let client = connect(&cluster.url(), watched(LEASE)).await;
        let lock = S::lock(&client, &name);
        let guard = lock.lock().await.unwrap();
        guards.push((lock, guard));
    }
    let mut way = Way::begin(&cluster, &name).await;
    let mut entered = JoinSet::new();
    for phase in PHASES {
        way.go_on_to(phase).await;
        if S::REENTRANT {
            for (lock, _) in &guards {
                let owner = Owner::current();
                entered.spawn(once_more(lock.owned_by(&owner)));
            }
        }
        let_pass(STAY).await;
        assert!(
            guards.iter().all(|(_, guard)| !guard.is_lost()),
            "{phase:?}: a hold was lost"
        );
    }
    all_done(entered).await;
    for (_, guard) in guards {
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    nothing_left(&cluster).await;
}

async fn once_more<K: Kind>(lock: Lock<K>) {
    let guard = lock.lock().await.unwrap();
    let released = guard.unlock().await;
    assert!(
        matches!(released, Ok(Released::StillHeld { .. })),
        "{released:?}"
    );
}

/// A free lock is acquired and released in every phase.
async fn free_locks_are_acquired<S: Subject>() {
    let cluster = Clustered::masters(2).await;
    let client = connect(&cluster.url(), config()).await;
    for phase in PHASES {
        let name = cluster.name_on(0, S::NAME).await;
        let mut way = Way::begin(&cluster, &name).await;
        way.go_on_to(phase).await;
        let lock = S::lock(&client, &name);
        let guard = timeout(GENEROUS, lock.try_lock()).await;
        let guard = guard.unwrap_or_else(|_| panic!("{phase:?}: not acquired"));
        let guard = guard.unwrap().expect("the lock is free");
        let rival = S::Rival::lock(&client, &name).owned_by(&Owner::new());
        assert!(rival.try_lock().await.unwrap().is_none(), "{phase:?}");
        assert_eq!(guard.unlock().await, Ok(Released::Fully), "{phase:?}");
        way.go_on_to(Phase::Ended).await;
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    nothing_left(&cluster).await;
}

macro_rules! migration {
    ($($kind:ident: $subject:ident, awaited as $($waiter:ident)+;)+) => {
        $(mod $kind {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn a_release_lets_waiters_in() {
                $(super::a_release_lets_waiters_in::<$subject, $waiter>().await;)+
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn holds_go_on() {
                super::holds_go_on::<$subject>().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn free_locks_are_acquired() {
                super::free_locks_are_acquired::<$subject>().await;
            }
        })+
    };
}

migration! {
    reentrant: Reentrant, awaited as Reentrant;
    fair: Fair, awaited as Fair;
    fenced: Fenced, awaited as Fenced;
    read: Read, awaited as Write;
    write: Write, awaited as Read Write;
    simple: Simple, awaited as Simple;
    spin: Spin, awaited as Spin;
}

/// The hash and the markers of a read lock move apart. A reader's release does not free the lock
/// under another reader, and no reader loses a lease that is at the other node (P-RW4).
async fn readers_stay_together(first: impl Fn(&String) -> bool) {
    let cluster = Clustered::masters(2).await;
    let name = cluster.name_on(0, "read").await;
    let mut guards = Vec::new();
    for _ in 0..2 {
        let client = connect(&cluster.url(), watched(3 * LEASE)).await;
        guards.push(Read::lock(&client, &name).lock().await.unwrap());
    }
    let writer = connect(&cluster.url(), watched(LEASE)).await;
    let writer = Write::lock(&writer, &name);
    let mut keys: Vec<String> = cluster.servers[0].command(&["KEYS", "*"]).await;
    assert_eq!(keys.len(), 3, "the lock and two markers");
    keys.retain(first);
    let mut way = Way::begin(&cluster, &name).await;
    cluster.move_some(way.moving, &keys).await;
    let stays: Guard<_> = guards.pop().expect("there are two");
    let leaves = guards.pop().expect("there are two");
    let releasing = tokio::spawn(async move { leaves.unlock().await });
    // Long enough for a renewal, and for a release that does not wait.
    let_pass(2 * LEASE).await;
    assert!(!stays.is_lost());
    assert!(
        !matches!(writer.try_lock_for(LEASE / 10).await, Ok(Some(_))),
        "a writer holds the lock beside a reader"
    );
    way.go_on_to(Phase::Ended).await;
    let released = timeout(GENEROUS, releasing)
        .await
        .expect("the task ends in time");
    assert_eq!(released.unwrap(), Ok(Released::Fully));
    let_pass(4 * LEASE).await;
    assert!(!stays.is_lost(), "the hold is renewed at the new node");
    assert!(writer.try_lock().await.unwrap().is_none());
    assert_eq!(stays.unlock().await, Ok(Released::Fully));
    assert!(writer.try_lock().await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_rw4_readers_whose_hash_moves_first_stay_together() {
    readers_stay_together(|key| !key.contains("rwlock_timeout")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_rw4_readers_whose_markers_move_first_stay_together() {
    readers_stay_together(|key| key.contains("rwlock_timeout")).await;
}

/// A slot that moves costs holders in the other slots nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_slot_costs_holders_in_other_slots_nothing() {
    let cluster = Clustered::masters(2).await;
    let client = connect(&cluster.url(), woken_only()).await;
    let mut guards = Vec::new();
    for number in 0..200 {
        let name = cluster.name_on(number % 2, "held").await;
        guards.push(client.reentrant_lock(&name).lock().await.unwrap());
    }
    for server in &cluster.servers {
        server.reset_calls().await;
    }
    let name = cluster.name_on(0, "moving").await;
    for _ in 0..3 {
        let held = client.reentrant_lock(&name).lock().await.unwrap();
        let slot = slot_of(&name);
        let to = 1 - cluster.owner_of(slot).await;
        cluster.move_slot(slot, to).await;
        assert_eq!(held.unlock().await, Ok(Released::Fully));
        // The client verifies its holds of the moved slot in this time.
        let_pass(Duration::from_millis(500)).await;
    }
    let mut scripts = 0;
    for server in &cluster.servers {
        let calls = server.calls().await;
        scripts += calls.get("evalsha").unwrap_or(&0) + calls.get("eval").unwrap_or(&0);
    }
    assert!(scripts < 100, "{scripts} scripts");
    assert!(guards.iter().all(|guard| !guard.is_lost()));
}

/// A group with names in several slots of both nodes, one of which moves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_r6_many_locks_together_with_one_whose_slot_moves() {
    let cluster = Clustered::masters(2).await;
    let client: LockClient = connect(&cluster.url(), watched(LEASE)).await;
    let mut names = Vec::new();
    for node in [0, 0, 1, 1, 0] {
        names.push(cluster.name_on(node, "member").await);
    }
    // Two names of the slot that moves: a batch of both is refused as a whole when only one has
    // moved.
    names.push(format!("beside:{{{}}}", names[0]));
    let held = client.multi_lock(names.clone()).lock().await.unwrap();
    let mut way = Way::begin(&cluster, &names[0]).await;
    cluster.move_some(way.moving, &names[..1]).await;
    let_pass(STAY).await;
    assert!(!held.is_lost(), "all are renewed");
    assert_eq!(held.unlock().await.map(drop), Ok(()));
    for phase in PHASES {
        way.go_on_to(phase).await;
        let held = client.multi_lock(names.clone()).lock().await.unwrap();
        assert_eq!(held.unlock().await.map(drop), Ok(()), "{phase:?}");
    }
    nothing_left(&cluster).await;
}
