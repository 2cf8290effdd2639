//! Moments that chance seldom meets: what happens between two steps of a client. One arranged case each, by a paused clock.

use std::{
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use redisson_lock::{
    All, Config, Error, GroupLock, Guard, Lock, LockClient, Owner, Reentrant, Released,
    test_util::{
        InMemoryRedis,
        simulation::{Delivering, Ending, Executed, Fate, Faults, Frame},
    },
};
use tokio::time::{Instant, sleep, sleep_until, timeout};

const LEASE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_secs(1);
/// What an undisturbed task may take to be inside once it can be.
const SOON: Duration = Duration::from_millis(50);
const NEVER: Duration = Duration::from_secs(3_600);

/// A network that does one thing when it is told to.
#[derive(Clone, Default)]
struct Network(Arc<Told>);

#[derive(Default)]
struct Told {
    /// How long a command is on its way, in milliseconds, and its answer as well.
    delay: AtomicU64,
    /// How much longer answers are on their way, in milliseconds.
    answers: AtomicU64,
    /// The answer to the script with this number from now on is late; none with zero.
    late_answer: AtomicU32,
    /// So many scripts arrive five seconds late, after the end of their connections.
    late: AtomicU32,
    /// The `CLIENT` command with this number from now on is lost with its connection; none with zero.
    lost_client: AtomicU32,
    /// Messages are lost.
    is_mute: AtomicBool,
    /// A PING is answered by the number of another one.
    shifts: AtomicBool,
    /// What is dropped when the next script is sent.
    dropped: Mutex<Vec<Guard<Reentrant>>>,
    /// The scripts that were sent, and run.
    sent: AtomicU64,
    scripts: AtomicU64,
    /// The connection that was opened last.
    latest: AtomicU64,
}

impl Network {
    fn delay(&self) -> Duration {
        Duration::from_millis(self.0.delay.load(Relaxed))
    }

    fn scripts(&self) -> u64 {
        self.0.scripts.load(Relaxed)
    }
}

impl Faults for Network {
    fn sending(&mut self, connection: u64, command: &'static str) -> Fate {
        self.0.latest.fetch_max(connection, Relaxed);
        let is_script = command.starts_with("EVAL");
        self.0.sent.fetch_add(is_script.into(), Relaxed);
        if is_script {
            let mut dropped = self
                .0
                .dropped
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            dropped.clear();
        }
        let left = |late: u32| late.checked_sub(1);
        if is_script && self.0.late.fetch_update(Relaxed, Relaxed, left).is_ok() {
            return Fate {
                delay: Duration::from_secs(5),
                ending: Some(Ending::Unheard),
            };
        }
        let lost = &self.0.lost_client;
        let before = |left: u32| left.checked_sub(1);
        let is_lost = command == "CLIENT" && lost.fetch_update(Relaxed, Relaxed, before) == Ok(1);
        Fate {
            delay: self.delay(),
            ending: is_lost.then_some(Ending::Unsent),
        }
    }

    fn answering(&mut self, _connection: u64) -> Duration {
        let late = self.0.late_answer.compare_exchange(1, 0, Relaxed, Relaxed);
        let extra = match late {
            Ok(_) => 100,
            Err(_) => self.0.answers.load(Relaxed),
        };
        self.delay() + Duration::from_millis(extra)
    }

    fn answer(&mut self, command: &'static str, answer: Frame) -> Frame {
        match command == "PING" && self.0.shifts.load(Relaxed) {
            true => Frame::Text("another".into()),
            false => answer,
        }
    }

    fn delivering(&mut self, _connection: u64) -> Delivering {
        match self.0.is_mute.load(Relaxed) {
            true => Delivering::Never,
            false => Delivering::After(Duration::ZERO),
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        if executed.command.starts_with("EVAL") {
            self.0.scripts.fetch_add(1, Relaxed);
            let before = |left: u32| (left > 1).then(|| left - 1);
            let _ = self.0.late_answer.fetch_update(Relaxed, Relaxed, before);
        }
    }
}

/// A server, and its network.
fn server() -> (InMemoryRedis, Network) {
    let (server, network) = (InMemoryRedis::new(), Network::default());
    server.set_faults(network.clone());
    (server, network)
}

/// A client that never asks by itself.
async fn client(server: &InMemoryRedis) -> LockClient {
    let config = Config::default().with_poll_floor(NEVER);
    server.client_with(config).await.expect("the server is up")
}

/// Polls a future until it waits for what does not come, and not until it asks by itself.
async fn parked<F: Future + ?Sized>(future: &mut Pin<Box<F>>) {
    let soon = Duration::from_millis(10);
    assert!(timeout(soon, future).await.is_err(), "it has ended");
}

/// A connection breaks with a command that is still on its way, and the next one breaks before the server has dropped the first.
#[tokio::test(start_paused = true)]
async fn a_connection_that_was_not_killed_is_killed_by_the_connection_after_the_next() {
    let (server, network) = server();
    let client = client(&server).await;
    network.0.late.store(1, Relaxed);
    // The first names the new connection.
    network.0.lost_client.store(2, Relaxed);
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    assert_eq!(network.0.lost_client.load(Relaxed), 0);
    guard.unlock().await.unwrap();
    sleep(2 * Duration::from_secs(5)).await;
    assert!(
        server.holders("a").is_empty(),
        "a command of a broken connection was executed"
    );
}

/// The answer to a nested acquisition is there, and the lock is forced open before its task looks at it.
#[tokio::test(start_paused = true)]
async fn a_grant_from_before_a_forced_release_is_no_hold() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let outer = lock.lock().await.unwrap();
    network.0.delay.store(10, Relaxed);
    let mut nested = Box::pin(lock.lock());
    let sent = timeout(Duration::from_millis(1), &mut nested).await;
    assert!(sent.is_err());
    // Another owner's task, behind the nested acquisition on the same connection.
    assert!(client.reentrant_lock("a").force_unlock().await.unwrap());
    assert!(outer.is_lost());
    let guard = nested.await.unwrap();
    assert!(!guard.is_lost());
    let holds: Vec<_> = server
        .holders("a")
        .iter()
        .map(|(_, holds)| *holds)
        .collect();
    assert_eq!(holds, [1], "the guard has its hold on the server");
}

/// A task gives up while there is no connection.
#[tokio::test(start_paused = true)]
async fn an_acquisition_given_up_before_it_was_sent_is_not_sent() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    server.stop();
    sleep(SOON).await;
    assert!(timeout(SOON, lock.lock()).await.is_err());
    let before = network.scripts();
    server.start();
    sleep(Duration::from_secs(10)).await;
    assert!(
        lock.try_lock().await.unwrap().is_some(),
        "there is a connection again"
    );
    sleep(SOON).await;
    // This attempt, and the release of its guard.
    assert_eq!(network.scripts(), before + 2);
}

/// What a broken connection carried is executed later, unless the server has dropped it.
#[tokio::test(start_paused = true)]
async fn a_command_of_a_broken_connection_is_not_executed_later() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    network.0.late.store(1, Relaxed);
    lock.lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(network.0.late.load(Relaxed), 0, "no command was late");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(server.holders("a"), []);
}

/// The connection that was to have the broken one killed breaks before it does.
#[tokio::test(start_paused = true)]
async fn a_command_of_a_connection_before_the_last_is_not_executed_later() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    lock.lock().await.unwrap().unlock().await.unwrap();
    network.0.late.store(1, Relaxed);
    // A new connection asks for its number first.
    network.0.lost_client.store(2, Relaxed);
    lock.lock().await.unwrap().unlock().await.unwrap();
    let left = [&network.0.late, &network.0.lost_client].map(|left| left.load(Relaxed));
    assert_eq!(left, [0, 0], "no command was late or lost");
    sleep(Duration::from_secs(6)).await;
    assert_eq!(server.holders("a"), []);
}

/// Answers have shifted: none belongs to its command any more.
#[tokio::test(start_paused = true)]
async fn a_connection_with_another_answer_to_a_ping_is_replaced() {
    let (server, network) = server();
    let _client = client(&server).await;
    let before = network.0.latest.load(Relaxed);
    network.0.shifts.store(true, Relaxed);
    sleep(Duration::from_secs(10)).await;
    network.0.shifts.store(false, Relaxed);
    sleep(Duration::from_secs(10)).await;
    assert!(
        network.0.latest.load(Relaxed) > before,
        "no other connection was opened"
    );
}

/// Two groups of one owner, in opposite orders: each has the turn of a lock that the other waits for.
#[tokio::test(start_paused = true)]
async fn two_groups_of_one_owner_do_not_wait_for_each_other() {
    let (server, network) = server();
    network.0.delay.store(1, Relaxed);
    let client = client(&server).await;
    let owner = Owner::new();
    let group = |names: [&str; 2]| {
        let locks = names.map(|name| client.reentrant_lock(name));
        GroupLock::<All>::of(locks).owned_by(&owner)
    };
    let (one, other) = (group(["a", "b"]), group(["b", "a"]));
    let both = timeout(SHORT, async { tokio::join!(one.lock(), other.lock()) }).await;
    let (one, other) = both.expect("both enter");
    one.unwrap().unlock().await.unwrap();
    assert_eq!(other.unwrap().unlock().await.unwrap(), Released::Fully);
}

/// A renewal is due while an acquisition of its owner is on its way: it is put off.
#[tokio::test(start_paused = true)]
async fn a_renewal_waits_for_an_operation_of_its_owner() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let began = Instant::now();
    let _outer = lock.lock().await.unwrap();
    let renewal = began + LEASE / 3;
    sleep_until(renewal - Duration::from_millis(100)).await;
    network.0.delay.store(200, Relaxed);
    let before = network.scripts();
    let _inner = lock.lock().await.unwrap();
    sleep(Duration::from_millis(300)).await;
    assert_eq!(
        network.scripts(),
        before + 1,
        "a renewal went beside an acquisition"
    );
    network.0.delay.store(0, Relaxed);
    server.advance(LEASE).await;
    assert!(!_outer.is_lost());
}

/// Each grant is over when its answer arrives: the caller is told so, and the lock is free.
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_too_short_for_the_distance_is_named_as_the_cause() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client
        .reentrant_lock("a")
        .with_lease(Duration::from_millis(20));
    // The server knows the scripts from here on.
    lock.lock().await.unwrap().unlock().await.unwrap();
    network.0.delay.store(30, Relaxed);
    let error = lock.try_lock_for(3 * SOON).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { reason, .. } if reason.contains("the lease is too short")),
        "{error:?}"
    );
    network.0.delay.store(0, Relaxed);
    sleep(Duration::from_secs(1)).await;
    let guard = lock.try_lock().await.unwrap().expect("the lock is free");
    guard.unlock().await.unwrap();
}

/// A renewal is due twice while a release is on its way.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_being_released_is_not_renewed() {
    let (server, network) = server();
    let client = client(&server).await;
    let lock = client.reentrant_lock("a");
    // The server knows the scripts from here on.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let began = Instant::now();
    let guard = lock.lock().await.unwrap();
    sleep_until(began + LEASE / 3 - Duration::from_millis(100)).await;
    network.0.delay.store(700, Relaxed);
    let sent = network.0.sent.load(Relaxed);
    assert_eq!(guard.unlock().await.unwrap(), Released::Fully);
    assert!(
        Instant::now() > began + LEASE / 3 + LEASE / 30,
        "it is due again"
    );
    assert_eq!(
        network.0.sent.load(Relaxed) - sent,
        1,
        "the release and nothing else"
    );
}

/// A guard is dropped at the moment at which its renewal is due. What it takes depends on which comes first; a renewal that
/// was not sent before is not sent any more.
#[tokio::test(start_paused = true)]
async fn a_dropped_guard_is_not_renewed() {
    for steps in 0..12 {
        let (server, network) = server();
        let client = client(&server).await;
        let lock = client.reentrant_lock("a");
        // The server knows the scripts from here on.
        let guard = lock.lock().await.unwrap();
        sleep(LEASE / 2).await;
        guard.unlock().await.unwrap();
        let began = Instant::now();
        let guard = lock.lock().await.unwrap();
        sleep_until(began + LEASE / 3).await;
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        let sent = network.0.sent.load(Relaxed);
        drop(guard);
        sleep(SOON).await;
        let after = network.0.sent.load(Relaxed) - sent;
        assert_eq!(
            after, 1,
            "the release and nothing else, after {steps} steps"
        );
        assert_eq!(server.holders("a"), []);
    }
}

/// Two renewals are due, each in a call of its own, and both guards are dropped when the first of them is sent.
#[tokio::test(start_paused = true)]
async fn a_guard_dropped_while_its_renewal_is_due_is_not_renewed() {
    let (server, network) = server();
    let config = Config::default().with_watchdog_batch_size(1);
    let client = server.client_with(config).await.unwrap();
    let lock = |name: &str| client.reentrant_lock(name);
    // The server knows the scripts from here on.
    let guard = lock("a").lock().await.unwrap();
    sleep(LEASE / 2).await;
    guard.unlock().await.unwrap();
    let guards = vec![
        lock("a").lock().await.unwrap(),
        lock("b").lock().await.unwrap(),
    ];
    let sent = network.0.sent.load(Relaxed);
    *network.0.dropped.lock().unwrap() = guards;
    sleep(LEASE / 2).await;
    assert!(network.0.dropped.lock().unwrap().is_empty());
    let after = network.0.sent.load(Relaxed) - sent;
    assert_eq!(after, 3, "one renewal and two releases");
    assert_eq!((server.holders("a"), server.holders("b")), (vec![], vec![]));
}

/// The locks of one client's tasks, one each.
fn of_each<const N: usize>(client: &LockClient) -> [Lock<Reentrant>; N] {
    [(); N].map(|()| client.reentrant_lock("a").owned_by(&Owner::new()))
}

/// A task that is passed the lock and is not polled holds no other one up: it goes to the next, and in the end to the server.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_picked_up_is_released() {
    let (server, _) = server();
    let config = Config::default().with_local_hand_off(SOON);
    let client = server.client_with(config).await.unwrap();
    let [one, two, three] = of_each(&client);
    let first = one.lock().await.unwrap();
    let mut second = Box::pin(two.lock());
    parked(&mut second).await;
    let mut third = Box::pin(three.lock());
    parked(&mut third).await;
    let released = timeout(Duration::ZERO, first.unlock()).await;
    assert_eq!(released.expect("an answer").unwrap(), Released::Fully);
    assert_eq!(server.holders("a").len(), 1, "it is passed on");
    let began = Instant::now();
    while !server.holders("a").is_empty() {
        sleep(Duration::from_millis(1)).await;
        assert!(
            began.elapsed() < SOON,
            "it stays with those who are not polled"
        );
    }
    // Both had it, for 2 ms each.
    assert!(
        began.elapsed() >= Duration::from_millis(4),
        "{:?}",
        began.elapsed()
    );
    drop(timeout(SHORT, second).await.expect("it enters").unwrap());
    drop(timeout(SHORT, third).await.expect("it enters").unwrap());
}

/// An owner has the lock by whichever of its tasks: one is not polled, and loses what it was passed while another one adds a hold.
#[tokio::test(start_paused = true)]
async fn an_owner_has_the_lock_although_one_of_its_tasks_is_not_polled() {
    let (server, network) = server();
    let config = Config::default().with_local_hand_off(SOON);
    let client = server.client_with(config).await.unwrap();
    let [other, its] = of_each(&client);
    let first = other.lock().await.unwrap();
    let mut forgotten = Box::pin(its.lock());
    parked(&mut forgotten).await;
    let second = its.clone();
    let second = tokio::spawn(async move { second.lock().await });
    sleep(Duration::from_millis(1)).await;
    // The forgotten one's hold is taken from it before the other one's is granted.
    network.0.delay.store(5, Relaxed);
    assert_eq!(first.unlock().await.unwrap(), Released::Fully);
    // One that comes in between waits, and is told.
    sleep(Duration::from_millis(7)).await;
    assert!(!second.is_finished());
    let between = its.clone();
    let between = tokio::spawn(async move { between.lock().await });
    let second = timeout(SHORT, second).await.expect("it enters");
    let second = second.unwrap().unwrap();
    let between = timeout(SHORT, between).await.expect("it is in").unwrap();
    drop(between.unwrap());
    sleep(SHORT).await;
    assert_eq!(its.hold_count().await.unwrap(), 1);
    let third = timeout(SHORT, its.lock()).await.expect("it is in");
    assert_eq!(its.hold_count().await.unwrap(), 2);
    drop((second, third));
    drop(timeout(SHORT, forgotten).await.expect("it enters").unwrap());
    sleep(SHORT).await;
    assert_eq!(server.holders("a"), vec![]);
}

/// What was passed on when the client closes, and no task has picked up, is neither left to its lease nor reported.
#[tokio::test(start_paused = true)]
async fn a_client_that_closes_releases_a_hand_off_that_was_not_picked_up() {
    let (server, _) = server();
    let client = client(&server).await;
    let [one, two] = of_each(&client);
    let first = one.lock().await.unwrap();
    let mut second = Box::pin(two.lock());
    let soon = Duration::from_millis(1);
    assert!(timeout(soon, &mut second).await.is_err());
    assert_eq!(first.unlock().await.unwrap(), Released::Fully);
    assert_eq!(server.holders("a").len(), 1, "it is passed on");
    let report = client.shutdown().await;
    assert!(report.unreleased.is_empty(), "{report:?}");
    assert_eq!(server.holders("a"), vec![]);
    assert!(matches!(second.await, Err(Error::Closed)));
}

/// Nothing new has been heard for long of a lock that another client has: it is taken, and not unknown.
#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_behind_another_waiter_reports_a_busy_lock() {
    let (server, _) = server();
    let (holder, waits) = (client(&server).await, client(&server).await);
    let _held = holder.reentrant_lock("a").lock().await.unwrap();
    let [one, two] = of_each(&waits);
    let mut first = Box::pin(one.lock());
    parked(&mut first).await;
    sleep(SHORT).await;
    let second = two.try_lock_for(SHORT).await;
    assert!(matches!(second, Ok(None)), "{second:?}");
}

/// How many scripts it takes to pass a lock from one task of a client to the next, if the first has this lease and keeps it for
/// some time.
async fn scripts_of_a_hand_off(config: Config, lease: Option<Duration>, kept: Duration) -> u64 {
    let (server, network) = server();
    let client = server.client_with(config).await.unwrap();
    let [one, two] = of_each(&client);
    let one = match lease {
        Some(lease) => one.with_lease(lease),
        None => one,
    };
    // The server knows the scripts from here on.
    two.lock().await.unwrap().unlock().await.unwrap();
    let first = one.lock().await.unwrap();
    let second = tokio::spawn(async move { two.lock().await });
    sleep(kept).await;
    let before = network.scripts();
    first.unlock().await.unwrap();
    let second = timeout(SHORT, second).await.expect("it enters");
    assert!(second.unwrap().is_ok());
    network.scripts() - before
}

/// Within the hand-off window the client sends nothing. After it, the client sends a release and the next acquisition.
#[tokio::test(start_paused = true)]
async fn lock_is_handed_off_in_memory_within_the_window() {
    let default = Config::default;
    let off = default().with_local_hand_off(Duration::ZERO);
    let (soon, late) = (Duration::from_millis(1), Duration::from_millis(2));
    assert_eq!(scripts_of_a_hand_off(default(), None, soon).await, 0);
    assert_eq!(scripts_of_a_hand_off(default(), None, late).await, 2);
    assert_eq!(scripts_of_a_hand_off(default(), Some(LEASE), soon).await, 2);
    assert_eq!(scripts_of_a_hand_off(off, None, soon).await, 2);
}

/// Waiters in memory hear of a forced release elsewhere as listeners do: once they have waited for a moment, the
/// client listens for them.
#[tokio::test(start_paused = true)]
async fn a_forced_release_elsewhere_lets_waiters_in_memory_in() {
    let (server, _) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    // It is not renewed, so that nothing else tells of the loss.
    let holder = one
        .reentrant_lock("a")
        .with_lease(NEVER)
        .lock()
        .await
        .unwrap();
    let waiter = waiter(&one);
    sleep(SHORT).await;
    let forced = Instant::now();
    assert!(other.reentrant_lock("a").force_unlock().await.unwrap());
    let (entered, _guard) = timeout(SHORT, waiter).await.expect("it enters").unwrap();
    assert!(entered - forced < SOON, "{:?}", entered - forced);
    assert!(holder.is_lost());
}

/// Waiters in memory are told that the client closes, though the holder stays and the first that waits is not polled.
#[tokio::test(start_paused = true)]
async fn a_client_that_closes_tells_waiters_in_memory() {
    let (server, _) = server();
    let client = client(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let [first, others @ ..] = of_each::<3>(&client);
    let mut forgotten = Box::pin(first.lock());
    parked(&mut forgotten).await;
    let waiters = others.map(|lock| tokio::spawn(async move { lock.lock().await }));
    sleep(SHORT).await;
    client.shutdown().await;
    for waiter in waiters {
        let told = timeout(SOON, waiter).await.expect("it is told").unwrap();
        assert!(matches!(told, Err(Error::Closed)), "{told:?}");
    }
    drop(guard);
}

/// The message of a release got lost: another's, much later, is not taken for it.
#[tokio::test(start_paused = true)]
async fn a_message_that_never_came_is_not_waited_for_without_end() {
    let (server, network) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let mine = || one.reentrant_lock("a").owned_by(&Owner::new());
    // The server knows the scripts from here on.
    mine().lock().await.unwrap().unlock().await.unwrap();
    let first = mine().lock().await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let lock = mine();
        waiting.push(tokio::spawn(async move { lock.lock().await }));
        sleep(SOON).await;
    }
    let third = waiting.remove(1);
    network.0.is_mute.store(true, Relaxed);
    first.unlock().await.unwrap();
    let second = waiting.remove(0).await.unwrap().unwrap();
    sleep(SHORT).await;
    network.0.is_mute.store(false, Relaxed);
    assert!(server.delete("a"));
    let theirs = other.reentrant_lock("a").lock().await.unwrap();
    server.advance(LEASE / 2).await;
    assert!(second.is_lost());
    assert!(!third.is_finished());
    let released = Instant::now();
    theirs.unlock().await.unwrap();
    let guard = timeout(LEASE, third).await.expect("the waiter enters");
    assert!(released.elapsed() < SOON, "{:?}", released.elapsed());
    drop(guard);
}

/// What is asked for while many wait costs the server little.
#[tokio::test(start_paused = true)]
async fn a_message_for_one_waiter_wakes_one() {
    const WAITERS: u64 = 20;
    let (server, network) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = other.reentrant_lock("a").lock().await.unwrap();
    for _ in 0..WAITERS {
        let lock = one.reentrant_lock("a").owned_by(&Owner::new());
        tokio::spawn(async move {
            let _guard = lock.lock().await;
            sleep(NEVER).await;
        });
    }
    sleep(SHORT).await;
    let before = network.scripts();
    guard.unlock().await.unwrap();
    sleep(SOON).await;
    assert_eq!(server.holders("a").len(), 1);
    // The release and an acquisition.
    let scripts = network.scripts() - before;
    assert!(scripts <= 3, "{scripts} scripts");
}

/// A waiter was told how long the lease lasts.
#[tokio::test(start_paused = true)]
async fn a_waiter_asks_when_the_lease_is_over_and_not_before() {
    let (server, network) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = other.reentrant_lock("a").with_lease(LEASE).lock().await;
    guard.unwrap().leak();
    let began = Instant::now();
    let lock = one.reentrant_lock("a");
    let waiter = tokio::spawn(async move { lock.lock().await.map(|_guard| Instant::now()) });
    sleep(SHORT).await;
    let before = network.scripts();
    sleep(LEASE - 2 * SHORT).await;
    assert_eq!(
        network.scripts(),
        before,
        "it asked before the end of the lease"
    );
    let entered = waiter.await.unwrap().unwrap() - began;
    assert!(entered < LEASE + SOON, "{entered:?}");
}

/// A server that has lost its data is seen to have when it is reached again, not at the next renewal.
#[tokio::test(start_paused = true)]
async fn a_reconnection_reveals_lost_holds() {
    let (server, _) = server();
    let client = client(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    sleep(SHORT).await;
    server.restart();
    assert!(timeout(SHORT, guard.lost()).await.is_ok());
}

/// A writer's lease is over, and the lock lives on by a read hold of the same owner: other readers may enter.
#[tokio::test(start_paused = true)]
async fn a_write_hold_that_the_clock_has_ended_is_given_back() {
    let (server, _) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let owner = Owner::new();
    let lock = one.read_write_lock("a");
    let writing = lock.write().owned_by(&owner).with_lease(SHORT);
    let writing = writing.lock().await.unwrap();
    let _reading = lock.read().owned_by(&owner).lock().await.unwrap();
    let lock = other.read_write_lock("a");
    let guard = timeout(LEASE, lock.read().lock()).await;
    assert!(guard.is_ok_and(|guard| guard.is_ok()), "no reader enters");
    assert!(writing.is_lost());
}

/// A task that waits for the lock, keeps it, and says when it had it.
fn waiter(client: &LockClient) -> tokio::task::JoinHandle<(Instant, Guard<Reentrant>)> {
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    tokio::spawn(async move {
        let guard = lock.lock().await.expect("the lock is had");
        (Instant::now(), guard)
    })
}

/// An operator deletes the lock: what its holder learns at its next renewal, those behind it learn as well.
#[tokio::test(start_paused = true)]
async fn waiters_enter_when_their_own_client_finds_the_lock_lost() {
    let (server, _) = server();
    let client = client(&server).await;
    let began = Instant::now();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let waiter = waiter(&client);
    sleep(SHORT).await;
    assert!(server.delete("a"));
    let (entered, _guard) = waiter.await.unwrap();
    assert!(
        entered < began + LEASE / 3 + 2 * SOON,
        "{:?}",
        entered - began
    );
    assert!(guard.is_lost());
}

/// Answers take long and messages do not: the lock is released at one moment after the other of an acquisition.
#[tokio::test(start_paused = true)]
async fn a_release_is_heard_at_every_moment_of_an_acquisition() {
    for moment in (0..500).step_by(10) {
        let (server, network) = server();
        let (one, other) = (client(&server).await, client(&server).await);
        let guard = other.reentrant_lock("a").lock().await.unwrap();
        network.0.answers.store(100, Relaxed);
        let waiter = waiter(&one);
        sleep(Duration::from_millis(moment)).await;
        let released = Instant::now();
        let (released_at, entered) = tokio::join!(guard.unlock(), timeout(LEASE, waiter));
        assert_eq!(released_at.unwrap(), Released::Fully);
        let (entered, _guard) = entered.expect("the waiter enters").unwrap();
        let took = entered - released;
        assert!(took < SHORT, "{took:?}, released after {moment} ms");
    }
}

/// The lock is granted, and forced open before the answer is there: the message is for the next waiter.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_out_of_date_on_arrival_wakes_the_next() {
    let (server, network) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = other.reentrant_lock("a").lock().await.unwrap();
    let first = waiter(&one);
    sleep(SOON).await;
    let second = waiter(&one);
    sleep(SHORT).await;
    network.0.answers.store(100, Relaxed);
    let lock = other.reentrant_lock("a").owned_by(&Owner::new());
    let (released, forced, entered) = tokio::join!(
        guard.unlock(),
        async {
            sleep(SOON).await;
            lock.force_unlock().await
        },
        timeout(SHORT, second),
    );
    assert_eq!(released.unwrap(), Released::Fully);
    assert!(forced.unwrap(), "nobody had the lock");
    let (_, _second) = entered.expect("the second waiter enters").unwrap();
    let (_, first) = first.await.unwrap();
    assert_eq!(server.holders("a").len(), 1);
    server.advance(LEASE / 2).await;
    assert!(first.is_lost() && !_second.is_lost());
}

/// A message for all waiters of a client lets its readers ask at a time, not one after the other.
#[tokio::test(start_paused = true)]
async fn readers_enter_together() {
    let (server, network) = server();
    let (reading, writing) = (client(&server).await, client(&server).await);
    let guard = writing.read_write_lock("a").write().lock().await.unwrap();
    let readers = Vec::from_iter((0..20).map(|_| {
        let lock = reading.read_write_lock("a").read().owned_by(&Owner::new());
        tokio::spawn(async move { lock.lock().await.map(|guard| (Instant::now(), guard)) })
    }));
    sleep(SHORT).await;
    network.0.delay.store(5, Relaxed);
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        let (entered, guard) = reader.await.unwrap().unwrap();
        assert!(entered - released < SOON, "{:?}", entered - released);
        guards.push(guard);
    }
}

/// The server does not know the script of the release and knows that of the acquisition: the next waiter, which is to ask
/// behind the release, asks before it. Its refusal arrives after the message.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_asked_before_the_release_is_notified_of_it() {
    let (server, network) = server();
    let client = client(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let waiter = waiter(&client);
    sleep(SOON).await;
    // The second script: counted down to one before it is answered.
    network.0.late_answer.store(3, Relaxed);
    let released = Instant::now();
    guard.unlock().await.unwrap();
    let (entered, _guard) = waiter.await.unwrap();
    assert_eq!(network.0.late_answer.load(Relaxed), 0, "no answer was late");
    assert!(entered - released < SHORT, "{:?}", entered - released);
}

/// A task that was told of a release gives up before it has asked: the message is for the next one.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_leaves_passes_its_message_on() {
    let (server, _) = server();
    let (one, other) = (client(&server).await, client(&server).await);
    let guard = other.reentrant_lock("a").lock().await.unwrap();
    let lock = one.reentrant_lock("a").owned_by(&Owner::new());
    let mut leaving = Box::pin(lock.lock());
    parked(&mut leaving).await;
    let waiter = waiter(&one);
    // Before one of them asks by itself.
    let short = Duration::from_millis(10);
    sleep(short).await;
    guard.unlock().await.unwrap();
    sleep(short).await;
    assert_eq!(server.holders("a"), []);
    let left = Instant::now();
    drop(leaving);
    let (entered, _guard) = waiter.await.unwrap();
    assert!(entered - left < short, "{:?}", entered - left);
}

/// Tasks of one client that wait for a lock of another one's: how often they ask in 9 s, and in which order they enter.
async fn crowd_so_far_away(delay: u64, tasks: u64) -> (u64, Vec<u64>) {
    let (network, server) = (Network::default(), InMemoryRedis::new());
    server.set_faults(network.clone());
    let (ours, theirs) = (client(&server).await, client(&server).await);
    let held = theirs.reentrant_lock("a").lock().await.unwrap();
    network.0.delay.store(delay, Relaxed);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut all = Vec::new();
    for task in 0..tasks {
        let (lock, order) = (ours.reentrant_lock("a"), order.clone());
        all.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            order.lock().unwrap().push(task);
            guard.unlock().await.unwrap();
        }));
        sleep(Duration::from_millis(1)).await;
    }
    sleep(Duration::from_secs(2)).await;
    let before = network.scripts();
    sleep(Duration::from_secs(9)).await;
    let asked = network.scripts() - before;
    held.unlock().await.unwrap();
    for task in all {
        task.await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    (asked, order)
}

/// What takes long by itself is not taken for a task that is not polled.
#[tokio::test(start_paused = true)]
async fn a_crowd_far_from_its_server_listens_and_enters_in_order() {
    for delay in [0, 45, 60, 80, 95] {
        let (asked, order) = crowd_so_far_away(delay, 4).await;
        assert!(asked <= 6, "{asked} scripts, {delay} ms away");
        assert_eq!(order, [0, 1, 2, 3], "{delay} ms away");
    }
    // Farther, the first comes last: it is not known yet how long an answer takes.
    for delay in [120, 150, 250] {
        let (asked, order) = crowd_so_far_away(delay, 4).await;
        assert!(asked <= 6, "{asked} scripts, {delay} ms away");
        assert_eq!(order.len(), 4);
    }
}

/// While the client's own runtime is blocked, another one hears of the end of a hold in time, which the release of a longer inner
/// hold has brought nearer.
#[test]
fn a_loss_that_comes_nearer_is_heard_of_on_another_runtime() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(1).enable_all().build().unwrap()
    };
    let (home, here) = (runtime(), runtime());
    let client = home.block_on(async { client(&InMemoryRedis::new()).await });
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    here.block_on(async {
        let lock = client.reentrant_lock("a").owned_by(&Owner::new());
        let outer = lock
            .with_lease(Duration::from_secs(2))
            .lock()
            .await
            .unwrap();
        let inner = lock.with_lease(NEVER).lock().await.unwrap();
        let token = outer.cancellation_token();
        let lost = {
            let waiting = outer.lost();
            tokio::pin!(waiting);
            // Both have begun to wait for the end of the longer hold.
            assert!(timeout(SOON, &mut waiting).await.is_err());
            inner.unlock().await.unwrap();
            home.spawn(async move { is_done.recv().is_ok() });
            timeout(Duration::from_secs(60), async {
                tokio::join!(token.cancelled(), waiting);
            })
            .await
        };
        assert!(lost.is_ok(), "it is not heard of");
        assert!(outer.is_lost());
        drop(done);
    });
    here.shutdown_background();
    home.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn a_majority_is_valid_without_the_locks_that_it_has_lost() {
    let servers = [(); 3].map(|()| InMemoryRedis::new());
    let mut locks = Vec::new();
    let mut clients = Vec::new();
    for (server, lease) in servers.iter().zip([60, 30, 10]) {
        let client = client(server).await;
        let lock = client.reentrant_lock("a");
        locks.push(lock.with_lease(Duration::from_secs(lease)));
        clients.push(client);
    }
    let guard = GroupLock::<redisson_lock::Majority>::of(locks);
    let guard = guard.lock().await.unwrap();
    let left = || {
        let now = Instant::now().into_std();
        guard.valid_until().saturating_duration_since(now)
    };
    assert!(left() > Duration::from_secs(25));
    servers[0].restart();
    sleep(SHORT).await;
    assert!(
        !guard.is_lost() && left() < Duration::from_secs(10),
        "{:?}",
        left()
    );
    sleep(Duration::from_secs(10)).await;
    assert!(guard.is_lost() && left().is_zero(), "{:?}", left());
}
