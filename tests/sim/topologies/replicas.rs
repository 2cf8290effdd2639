//! Clients of a master with replicas and sentinels. One arranged case per test, under a paused clock.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{Config, Durability, DynLock, Error, LockClient, Owner};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Ending, Executed, Fate, Faults, Frame, Replicated},
};
use tokio::time::{Instant, sleep, timeout};

const LEASE: Duration = Duration::from_secs(30);

async fn client(world: &Replicated, durability: Durability) -> LockClient {
    let config = Config::default().with_durability(durability);
    world.client_with(config).await.expect("the servers are up")
}

/// A release does not wait for replicas, so a new master may not know the extended outer lease.
#[tokio::test(start_paused = true)]
async fn an_inner_release_extends_the_outer_lease_only_without_replication() {
    for (durability, prolongs) in [(Durability::Local, true), (Durability::All, false)] {
        let world = Replicated::new(1);
        let client = client(&world, durability).await;
        let lock = client.reentrant_lock("a").owned_by(&Owner::new());
        let lock = lock.with_lease(LEASE);
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        let before = outer.valid_until();
        sleep(LEASE / 2).await;
        inner.unlock().await.unwrap();
        assert_eq!(outer.valid_until() > before, prolongs, "{durability:?}");
    }
}

/// The server has a longer lease already, so the renewal has nothing to extend. The last write of its connection has been
/// acknowledged; what another connection wrote since may not have been.
#[tokio::test(start_paused = true)]
async fn renewal_without_effect_waits_for_replicas() {
    let world = Replicated::new(1);
    let client = client(&world, Durability::All).await;
    let locks: [DynLock; 4] = [
        client.reentrant_lock("plain").into_dyn(),
        client.simple_lock("simple").into_dyn(),
        client.read_write_lock("read").read().clone().into_dyn(),
        client.read_write_lock("write").write().clone().into_dyn(),
    ];
    let mut guards = Vec::new();
    for lock in locks {
        guards.push(lock.with_lease(LEASE).lock().await.unwrap());
    }
    world.set_lag(LEASE);
    for guard in guards {
        let extended = guard.extend(LEASE / 2).await;
        assert!(
            matches!(extended, Err(Error::Replication { .. })),
            "{guard:?}: {extended:?}"
        );
    }
}

/// The server executes the renewals, and no replica has them.
#[tokio::test(start_paused = true)]
async fn renewal_that_too_few_replicas_have_extends_no_validity() {
    let world = Replicated::new(1);
    let client = client(&world, Durability::All).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let until = guard.valid_until();
    world.set_lag(2 * LEASE);
    sleep(LEASE / 2).await;
    let kept = world.remaining_lease("a").unwrap();
    assert!(
        kept > until - Instant::now().into_std() + LEASE / 6,
        "not renewed: {kept:?}"
    );
    assert_eq!(guard.valid_until(), until);
}

/// The first sending of the script executes nothing, so the `WAIT` behind it counts replicas that have the writes before.
#[tokio::test(start_paused = true)]
async fn acquisition_by_a_forgotten_script_waits_for_replicas() {
    let world = Replicated::new(1);
    let client = client(&world, Durability::All).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    world.set_lag(LEASE);
    world.forget_scripts();
    let acquired = lock.lock().await;
    assert!(
        matches!(acquired, Err(Error::Replication { .. })),
        "{acquired:?}"
    );
}

/// A replaced master that only clients can reach still grants locks. A client leaves it when a sentinel names the new one.
#[tokio::test(start_paused = true)]
async fn client_leaves_a_replaced_master_that_still_answers() {
    let world = Replicated::new(1);
    let client = client(&world, Durability::Auto).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    let before = world.master();
    world.isolate(before);
    sleep(Duration::from_secs(3)).await;
    assert_ne!(world.master(), before, "no replica was promoted");
    let guard = lock.lock().await.unwrap();
    assert_eq!(world.holders("a").len(), 1, "the new master lacks the hold");
    drop(guard);
}

/// Delays of the scripts on each connection. A connection that executed a `WAIT` is *durable*.
#[derive(Clone, Default)]
struct Delays(Arc<Mutex<Delayed>>);

#[derive(Default)]
struct Delayed {
    durable: BTreeSet<u64>,
    on_durable: Duration,
    on_others: Duration,
    /// Scripts on durable connections end them, and no connection opens.
    cuts_durable: bool,
    /// The number of scripts that were executed on durable connections.
    executed: usize,
}

impl Faults for Delays {
    fn sending(&mut self, connection: u64, command: &'static str) -> Fate {
        let delays = self.0.lock().unwrap();
        let is_durable = delays.durable.contains(&connection);
        match is_durable {
            _ if !command.starts_with("EVAL") => Fate::default(),
            true => Fate {
                delay: delays.on_durable,
                ending: delays.cuts_durable.then_some(Ending::Unsent),
            },
            false => Fate {
                delay: delays.on_others,
                ending: None,
            },
        }
    }

    fn connecting(&mut self) -> Duration {
        match self.0.lock().unwrap().cuts_durable {
            true => LEASE,
            false => Duration::ZERO,
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        let mut delays = self.0.lock().unwrap();
        match executed.command {
            "WAIT" => drop(delays.durable.insert(executed.connection)),
            command if command.starts_with("EVAL") => {
                let counts = delays.durable.contains(&executed.connection);
                delays.executed += usize::from(counts);
            }
            _ => {}
        }
    }
}

/// A world whose durable connection is known.
async fn delayed(config: Config) -> (Replicated, LockClient, Delays) {
    let (world, delays) = (Replicated::new(1), Delays::default());
    world.set_faults(delays.clone());
    let client = world.client_with(config).await.expect("the servers are up");
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(delays.0.lock().unwrap().durable.len(), 1);
    (world, client, delays)
}

/// The release travels on one connection, and the acquisition of the client's next task on another one, which waits for replicas.
#[tokio::test(start_paused = true)]
async fn acquisition_does_not_overtake_the_release_on_another_connection() {
    for durability in [Durability::Auto, Durability::All] {
        let config = Config::default()
            .with_durability(durability)
            .with_local_hand_off(Duration::ZERO);
        let (_world, client, delays) = delayed(config).await;
        let [one, two] = [(), ()].map(|()| client.reentrant_lock("a").owned_by(&Owner::new()));
        let guard = one.lock().await.unwrap();
        let next = tokio::spawn(async move { two.lock().await.unwrap().unlock().await });
        sleep(PROMPT).await;
        {
            let mut delays = delays.0.lock().unwrap();
            (delays.on_others, delays.executed) = (PROMPT, 0);
        }
        guard.unlock().await.unwrap();
        next.await.unwrap().unwrap();
        let attempts = delays.0.lock().unwrap().executed;
        assert_eq!(attempts, 1, "{durability:?}: the first was refused");
    }
}

/// The server executes an extension after the client has given up on it. The owner's next hold has a connection of its own.
#[tokio::test(start_paused = true)]
async fn late_extension_does_not_reach_the_next_hold_of_its_owner() {
    let config = Config::default()
        .with_durability(Durability::All)
        .with_command_wait(PROMPT);
    let (world, client, delays) = delayed(config).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let guard = lock.with_lease(LEASE).lock().await.unwrap();
    delays.0.lock().unwrap().on_durable = 4 * PROMPT;
    let extended = guard.extend(4 * LEASE).await;
    assert!(
        matches!(extended, Err(Error::Unavailable { .. })),
        "{extended:?}"
    );
    drop(guard);
    let next = lock.with_durability(Durability::Local).with_lease(LEASE);
    let guard = next.lock().await.unwrap();
    sleep(5 * PROMPT).await;
    let kept = world.remaining_lease("a").expect("it is held");
    assert!(kept <= LEASE, "{kept:?}");
    drop(guard);
}

/// Extensions wait in vain for the connection that waits for replicas. The owner's other operations have another one.
#[tokio::test(start_paused = true)]
async fn unsent_extension_does_not_hold_up_its_owner() {
    let config = Config::default()
        .with_durability(Durability::All)
        .with_command_wait(PROMPT);
    let (_world, client, delays) = delayed(config).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let guard = lock.with_lease(LEASE).lock().await.unwrap();
    delays.0.lock().unwrap().cuts_durable = true;
    for _ in 0..2 {
        let extended = guard.extend(4 * LEASE).await;
        assert!(
            matches!(extended, Err(Error::Unavailable { .. })),
            "{extended:?}"
        );
        sleep(10 * PROMPT).await;
    }
    guard.unlock().await.unwrap();
    let next = lock.with_durability(Durability::Local);
    drop(next.lock().await.unwrap());
}

/// Longer than an operation that does not wait for replicas.
const PROMPT: Duration = Duration::from_millis(100);

/// A world with one of two replicas down. The sentinels already report it.
async fn one_replica_down() -> Replicated {
    let world = Replicated::new(1);
    world.stop((world.master() + 1) % 3);
    sleep(Duration::from_secs(1)).await;
    world
}

/// Returns whether the acquisition succeeded, and how long it took. Panics on errors other than too few replicas.
async fn took<T>(acquisition: impl Future<Output = Result<T, Error>>) -> (bool, Duration) {
    let began = Instant::now();
    let entered = acquisition.await;
    let is_short = matches!(entered, Err(Error::Replication { .. }));
    assert!(entered.is_ok() || is_short, "{:?}", entered.map(drop));
    (entered.is_ok(), began.elapsed())
}

/// `WAIT` blocks its connection, for a second if a replica is down.
#[tokio::test(start_paused = true)]
async fn wait_for_a_dead_replica_delays_no_other_durability() {
    let world = one_replica_down().await;
    let client = client(&world, Durability::Auto).await;
    let strict = client.reentrant_lock("a").with_durability(Durability::All);
    let neighbours = [Durability::Auto, Durability::Majority];
    let neighbours = neighbours.map(|durability| {
        let lock = client.reentrant_lock(format!("{durability:?}"));
        lock.with_durability(durability)
    });
    let waiting = tokio::spawn(took(async move { strict.lock().await.map(drop) }));
    sleep(PROMPT).await;
    for lock in &neighbours {
        let (entered, took) = took(lock.lock()).await;
        assert!(entered && took < PROMPT, "{took:?}");
    }
    assert!(!waiting.is_finished());
    assert!(!waiting.await.unwrap().0, "granted without all replicas");
}

/// An acquisition is queued behind another, which misses its replicas. It still ends within its own `replica_wait`.
#[tokio::test(start_paused = true)]
async fn queued_acquisition_waits_for_replicas_within_its_own_limit() {
    let world = one_replica_down().await;
    let client = client(&world, Durability::All).await;
    let longest = Config::default().replica_wait;
    let mut waiting = Vec::new();
    for index in 0..5 {
        let lock = client.reentrant_lock(index.to_string());
        waiting.push(tokio::spawn(took(
            async move { lock.lock().await.map(drop) },
        )));
        sleep(longest / 4).await;
    }
    for waiting in waiting {
        let (entered, took) = waiting.await.unwrap();
        assert!(!entered, "granted without all replicas");
        assert!(took < longest + PROMPT, "{took:?}");
    }
}

/// How long after a promotion a client takes to lock on the new master, the only server of three that still runs.
async fn recovers(durability: Durability, seed: u64) -> Duration {
    let world = Replicated::new(seed);
    let client = client(&world, durability).await;
    sleep(Duration::from_secs(1)).await;
    let before = world.master();
    world.stop((before + 1) % 3);
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    world.hang(before);
    while world.master() == before {
        sleep(Duration::from_millis(1)).await;
    }
    let (entered, took) = took(lock.lock()).await;
    assert!(entered);
    took
}

/// Sentinels list a hung master as a replica of its successor, although it is not connected.
#[tokio::test(start_paused = true)]
async fn after_a_failover_the_replicas_that_are_connected_count() {
    for seed in 1..=10 {
        let (without, with) = (
            recovers(Durability::Local, seed).await,
            recovers(Durability::Auto, seed).await,
        );
        assert!(
            with < without + 5 * PROMPT,
            "{with:?}, without replicas {without:?}"
        );
    }
}

/// A lost replica counts until the first `WAIT` for it ends.
#[tokio::test(start_paused = true)]
async fn durability_auto_grants_without_lost_replicas() {
    let world = Replicated::new(1);
    let client = client(&world, Durability::Auto).await;
    sleep(Duration::from_secs(1)).await;
    let lock = client.reentrant_lock("a");
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.acknowledgements(), Some(2));
    guard.unlock().await.unwrap();
    let master = world.master();
    world.stop((master + 1) % 3);
    world.stop((master + 2) % 3);
    let guard = lock.lock().await.unwrap();
    assert_eq!(guard.acknowledgements(), Some(0));
}

/// A single server whose replies a test changes.
#[derive(Clone, Default)]
struct Changed(Arc<Switches>);

#[derive(Default)]
struct Switches {
    /// Scripts are answered as by a replica.
    is_replica: AtomicBool,
    /// The user may not run `WAIT`.
    refuses_wait: AtomicBool,
    /// The latest connection that sent a `WAIT`.
    waited_on: AtomicU64,
    /// The latest connection that sent a `PING`.
    pinged_on: AtomicU64,
}

impl Faults for Changed {
    fn refusal(&mut self, command: &'static str) -> Option<String> {
        let is_refused = command == "WAIT" && self.0.refuses_wait.load(Relaxed);
        is_refused.then(|| "NOPERM this user has no permissions to run the 'wait' command".into())
    }

    fn answer(&mut self, command: &'static str, answer: Frame) -> Frame {
        let failed = "READONLY You can't write against a read only replica.";
        match command.starts_with("EVAL") && self.0.is_replica.load(Relaxed) {
            true => Frame::List(vec![Frame::Number(4), Frame::Text(failed.into())]),
            false => answer,
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        let latest = match executed.command {
            "WAIT" => &self.0.waited_on,
            "PING" => &self.0.pinged_on,
            _ => return,
        };
        latest.store(executed.connection, Relaxed);
    }
}

async fn changed() -> (InMemoryRedis, LockClient, Changed) {
    let (server, changed) = (InMemoryRedis::new(), Changed::default());
    server.set_faults(changed.clone());
    let config = Config::default().with_durability(Durability::All);
    let client = server.client_with(config).await.expect("the server is up");
    (server, client, changed)
}

/// A managed service moves a name to another server in this way. The open connection once stayed at the old one for ever.
#[tokio::test(start_paused = true)]
async fn the_connection_that_waits_for_replicas_leaves_a_server_that_became_one() {
    let (_server, client, changed) = changed().await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    let before = changed.0.waited_on.load(Relaxed);
    client.ping().await.unwrap();
    let for_other_calls = changed.0.pinged_on.load(Relaxed);
    sleep(Duration::from_secs(1)).await;
    changed.0.is_replica.store(true, Relaxed);
    let asking = tokio::spawn(async move { lock.lock().await.map(drop) });
    sleep(Duration::from_secs(2)).await;
    changed.0.is_replica.store(false, Relaxed);
    asking.await.unwrap().unwrap();
    assert_ne!(changed.0.waited_on.load(Relaxed), before);
    // The other connection may lead to the new master already: its own answers tell.
    client.ping().await.unwrap();
    assert_eq!(changed.0.pinged_on.load(Relaxed), for_other_calls);
}

/// One refusal, of a server before its users were loaded, once ended durability for the life of the client.
#[tokio::test(start_paused = true)]
async fn after_a_refused_wait_the_next_connection_waits_for_replicas_again() {
    let (server, client, changed) = changed().await;
    let lock = client.reentrant_lock("a");
    for (refuses_wait, expected) in [(true, None), (false, None), (false, Some(0))] {
        changed.0.refuses_wait.store(refuses_wait, Relaxed);
        let guard = lock.lock().await.unwrap();
        assert_eq!(guard.acknowledgements(), expected);
        guard.unlock().await.unwrap();
        if !refuses_wait {
            server.disconnect();
        }
    }
}

/// The names of a managed service: the readers' name follows later than the primary's, and leads to the new primary meanwhile.
#[tokio::test(start_paused = true)]
async fn two_names_of_one_server_lead_to_one_master_before_and_after_a_failover() {
    let world = Replicated::new(1);
    let first = world.master();
    let replica = (first + 1) % 3;
    for reader in [replica, first] {
        world.lead_names_to(first, reader);
        let client = world.client_by_names(Config::default()).await.unwrap();
        let lock = client.reentrant_lock("a");
        lock.lock().await.unwrap().unlock().await.unwrap();
        client.shutdown().await;
    }
    let client = world.client_by_names(Config::default()).await.unwrap();
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert!(world.fail_over());
    let new = world.master();
    assert_ne!(new, first);
    world.lead_names_to(new, new);
    // The replaced master serves its connections until it learns of its successor.
    let found = timeout(Duration::from_secs(10), async {
        loop {
            if let Ok(guard) = lock.lock().await {
                match world.holders("a").is_empty() {
                    true => drop(guard.unlock().await),
                    false => return guard,
                }
            }
            sleep(Duration::from_millis(100)).await;
        }
    });
    let guard = found.await.expect("the new master is found");
    assert_eq!(world.holders("a").len(), 1);
    guard.unlock().await.unwrap();
}
