//! Waiters are notified in time, rather twice than never, and at a bounded cost (P-W3 to P-W11).

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use redisson_lock::{Lock, Owner, Released};
use testbed::{Server, eventually, unique_name};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::contract::subjects::held_by;

use super::stage::{
    GENEROUS, Locks, PROMPT, Random, Room, Stage, Subject, all_done, connect, hold_as,
    is_waited_for, let_pass, nothing_left, pair, scripts, subscriptions, watched, woken_only,
};
use crate::witness::{busy_at_worst, poll_and_drop};

/// Starts a task that waits as a new owner, and returns when the lock has a waiter.
async fn waiter<S: Subject>(
    server: &Server,
    lock: &Lock<S::Kind>,
    room: &Arc<Room>,
) -> JoinHandle<()> {
    let (own, room) = (lock.owned_by(&Owner::new()), room.clone());
    let waiting = tokio::spawn(async move { pair::<S>(&own, &room).await });
    eventually("the task waits", GENEROUS, async || {
        is_waited_for::<S>(server, lock.name()).await
    })
    .await;
    waiting
}

async fn gets_in(within: Duration, waiting: JoinHandle<()>) {
    let got_in = timeout(within, waiting).await;
    got_in
        .expect("the waiter acquires the lock")
        .expect("the task succeeds");
}

pub async fn p_w11_with_every_message_muted_waiters_poll<S: Subject>() {
    let stage = Stage::new().await;
    stage.faults().mute_messages(true);
    let holder = stage.direct(watched(Duration::from_secs(300))).await;
    let client = stage.client(watched(Duration::from_secs(300))).await;
    let lock = client.kind::<S>(unique_name("muted"));
    let room = Arc::default();
    for _ in 0..3 {
        let guard = holder.rival::<S>(lock.name()).lock().await.unwrap();
        let waiting = waiter::<S>(&stage.server, &lock, &room).await;
        let _ = guard.unlock().await.unwrap();
        gets_in(PROMPT, waiting).await;
    }
    nothing_left(&stage.server, PROMPT).await;
}

/// Messages are lost while newcomers are refused all the time. They do not delay the poll of an
/// earlier waiter.
pub async fn p_w4_newcomers_do_not_delay_a_waiters_poll<S: Subject>() {
    let stage = Stage::new().await;
    stage.faults().mute_messages(true);
    let holder = stage.direct(watched(Duration::from_secs(300))).await;
    let client = stage.client(watched(Duration::from_secs(300))).await;
    let lock = client.kind::<S>(unique_name("newcomers"));
    let guard = holder.rival::<S>(lock.name()).lock().await.unwrap();
    let waiting = waiter::<S>(&stage.server, &lock, &Arc::default()).await;
    let newcomers = newcomers::<S>(lock.clone());
    // Free for longer than held, so a poll each second soon finds it free.
    let turns = tokio::spawn(async move {
        let mut guard = Some(guard);
        loop {
            let_pass(Duration::from_millis(100)).await;
            drop(guard.take());
            let_pass(Duration::from_millis(200)).await;
            guard = holder
                .rival::<S>(lock.name())
                .try_lock()
                .await
                .expect("the server is there");
        }
    });
    gets_in(GENEROUS, waiting).await;
    newcomers.abort();
    turns.abort();
    nothing_left(&stage.server, PROMPT).await;
}

/// Tasks arrive one after the other, try for 20 ms and leave.
fn newcomers<S: Subject>(lock: Lock<S::Kind>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let wait = Duration::from_millis(20);
            let tried = lock.owned_by(&Owner::new()).try_lock_for(wait).await;
            drop(tried.expect("the server is there"));
            let_pass(wait).await;
        }
    })
}

pub async fn p_w5_two_waiters_of_one_process_are_both_woken<S: Subject>() {
    let server = Server::start().await;
    let holder = connect(&server.url(), woken_only()).await;
    let client = connect(&server.url(), woken_only()).await;
    let lock = client.kind::<S>(unique_name("two"));
    let room = Arc::default();
    for _ in 0..20 {
        let guard = holder.rival::<S>(lock.name()).lock().await.unwrap();
        let first = waiter::<S>(&server, &lock, &room).await;
        let second = waiter::<S>(&server, &lock, &room).await;
        let _ = guard.unlock().await.unwrap();
        gets_in(GENEROUS, first).await;
        gets_in(GENEROUS, second).await;
    }
    nothing_left(&server, PROMPT).await;
}

/// The first of two waiters is notified, but dropped before it is polled.
pub async fn p_w3_a_notified_waiter_that_is_dropped_passes_the_notification_on<S: Subject>() {
    let server = Server::start().await;
    let holder = connect(&server.url(), woken_only()).await;
    let client = connect(&server.url(), woken_only()).await;
    let lock = client.kind::<S>(unique_name("passed-on"));
    for _ in 0..5 {
        let guard = holder.rival::<S>(lock.name()).lock().await.unwrap();
        let first = lock.owned_by(&Owner::new());
        let mut first = Box::pin(async move { first.lock().await.map(drop) });
        // Polled until it waits.
        let polled = poll_and_drop(&mut first, 1000);
        assert!(timeout(Duration::from_millis(300), polled).await.is_err());
        let second = waiter::<S>(&server, &lock, &Arc::default()).await;
        let_pass(Duration::from_millis(200)).await;
        let _ = guard.unlock().await.unwrap();
        let_pass(Duration::from_millis(100)).await;
        drop(first);
        gets_in(GENEROUS, second).await;
    }
    nothing_left(&server, PROMPT).await;
}

/// Waiters that time out around the release do not take the notification from one that waits on.
pub async fn p_w3_waiters_that_time_out_take_no_notification_from_a_live_one<S: Subject>() {
    let server = Server::start().await;
    let mut random = Random::new();
    let holder = connect(&server.url(), woken_only()).await;
    let client = connect(&server.url(), woken_only()).await;
    let lock = client.kind::<S>(unique_name("patient"));
    for _ in 0..30 {
        let guard = holder.rival::<S>(lock.name()).lock().await.unwrap();
        let mut impatient = JoinSet::new();
        for _ in 0..6 {
            let own = lock.owned_by(&Owner::new());
            let wait = random.up_to(Duration::from_millis(30)) + Duration::from_millis(1);
            impatient
                .spawn(async move { own.try_lock_for(wait).await.map(|guard| guard.map(drop)) });
        }
        let patient = lock.owned_by(&Owner::new());
        let patient = tokio::spawn(async move { pair::<S>(&patient, &Room::default()).await });
        let_pass(random.up_to(Duration::from_millis(30))).await;
        let _ = guard.unlock().await.unwrap();
        gets_in(GENEROUS, patient).await;
        for tried in all_done(impatient).await {
            busy_at_worst(tried);
        }
    }
    nothing_left(&server, PROMPT).await;
}

pub async fn p_w9_five_hundred_names_take_one_connection<S: Subject>() {
    const NAMES: usize = 500;
    let server = Server::start().await;
    let holder = connect(&server.url(), woken_only()).await;
    let client = connect(&server.url(), woken_only()).await;
    let mut guards = Vec::new();
    let mut waiting = JoinSet::new();
    for _ in 0..NAMES {
        let name = unique_name("many");
        guards.push(holder.rival::<S>(&name).lock().await.unwrap());
        let lock = client.kind::<S>(&name);
        waiting.spawn(async move { pair::<S>(&lock, &Room::default()).await });
    }
    eventually("the client listens for all of them", GENEROUS, async || {
        subscriptions(&server).await.len() == NAMES
    })
    .await;
    let listeners: String = server.command(&["CLIENT", "LIST", "TYPE", "pubsub"]).await;
    assert_eq!(listeners.lines().count(), 1, "{listeners}");
    for guard in guards {
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    all_done(waiting).await;
    nothing_left(&server, PROMPT).await;
}

/// A key without expiry whose owner never sends a message: the waiter polls it, at a bounded rate.
pub async fn p_a7_a_key_without_expiry_is_polled<S: Subject>() {
    let server = Server::start().await;
    let client = connect(&server.url(), watched(Duration::from_secs(300))).await;
    let lock = client.kind::<S>(unique_name("persistent"));
    hold_as::<S::Rival>(&server, lock.name(), "another:1").await;
    assert_eq!(lock.remaining_lease().await, Ok(None));
    let waiting = waiter::<S>(&server, &lock, &Arc::default()).await;
    server.reset_calls().await;
    let_pass(Duration::from_secs(3)).await;
    let asked = scripts(&server).await;
    // A waiting writer also checks, ever more seldom, whether readers block it.
    assert!((1..=8).contains(&asked), "{asked} scripts in 3 s");
    assert!(!waiting.is_finished());
    server.command::<()>(&["DEL", lock.name()]).await;
    gets_in(PROMPT, waiting).await;
    nothing_left(&server, PROMPT).await;
}

/// A client acquires the lock over and over and releases it without a message, as a spin lock does.
/// Each refusal reports almost no remaining lease, and the waiter still polls at a bounded rate.
pub async fn p_f2_short_remaining_leases_cause_no_hot_loop<S: Subject>() {
    let server = Server::start().await;
    let client = connect(&server.url(), watched(Duration::from_secs(300))).await;
    let lock = client.kind::<S>(unique_name("spinning"));
    let stop = Arc::<AtomicBool>::default();
    let spinning = tokio::spawn(keep_about_to_end::<S::Rival>(
        server.admin().await,
        lock.name().to_owned(),
        stop.clone(),
    ));
    let held = client.rival::<S>(lock.name());
    eventually("the lock is held", GENEROUS, async || {
        held.is_locked().await.unwrap()
    })
    .await;
    // The waiter may get the lock when the rival is late, and may then lose it.
    let own = lock.clone();
    let waiting = tokio::spawn(async move { lock.lock().await.map(drop).expect("no error") });
    eventually("the task waits", GENEROUS, async || {
        waiting.is_finished() || is_waited_for::<S>(&server, own.name()).await
    })
    .await;
    let_pass(Duration::from_secs(1)).await;
    let before = scripts(&server).await;
    let_pass(Duration::from_secs(2)).await;
    let asked = scripts(&server).await - before;
    assert!(
        waiting.is_finished() || asked <= 40,
        "{asked} scripts in 2 s"
    );
    stop.store(true, SeqCst);
    spinning.await.unwrap();
    gets_in(PROMPT, waiting).await;
    nothing_left(&server, PROMPT).await;
}

/// Keeps a foreign hold that always has 20 ms left.
async fn keep_about_to_end<S: Subject>(
    mut admin: redis::aio::MultiplexedConnection,
    name: String,
    stop: Arc<AtomicBool>,
) {
    while !stop.load(SeqCst) {
        let mut moment = redis::pipe();
        moment.atomic();
        for words in held_by::<S>(&name, "another:1") {
            moment.cmd(&words[0]).arg(&words[1..]).ignore();
        }
        moment.pexpire(&name, 20);
        let done: redis::RedisResult<()> = moment.query_async(&mut admin).await;
        done.expect("the server is there");
    }
}
