//! Servers that stop, restart or cannot be reached: holders learn of the loss in time, and waiters
//! acquire the lock.

use std::time::{Duration, Instant, SystemTime};

use redisson_lock::{Error, Guard, Kind, Lock, LostReason, Released};
use testbed::{Server, eventually, unique_name};
use tokio::{task::JoinHandle, time::timeout};

use super::stage::{
    GENEROUS, Locks, PROMPT, Stage, Subject, exists, is_waited_for, let_pass, nothing_left, pttl,
    scripts, watched,
};

type Got<S> = Result<Guard<<S as Subject>::Kind>, Error>;

/// Starts a task that waits, and returns when it does.
async fn waiter<S: Subject>(server: &Server, lock: Lock<S::Kind>) -> JoinHandle<Got<S>> {
    let name = lock.name().to_owned();
    let waiting = tokio::spawn(async move { lock.lock().await });
    eventually("the task waits", GENEROUS, async || {
        is_waited_for::<S>(server, &name).await
    })
    .await;
    waiting
}

async fn got_in<K: Kind>(waiting: JoinHandle<Result<Guard<K>, Error>>) -> Guard<K> {
    let got = timeout(GENEROUS, waiting)
        .await
        .expect("the waiter acquires the lock");
    got.expect("the task does not panic").expect("no error")
}

pub async fn a_server_stopped_for_less_than_a_lease_costs_nothing<S: Subject>() {
    stopped_for::<S>(seconds(1), seconds(3)).await;
}

/// The stop is longer than a PING may take, so the client closes its connections.
pub async fn a_server_stopped_for_longer_than_a_ping_costs_nothing<S: Subject>() {
    stopped_for::<S>(seconds(4), seconds(12)).await;
}

async fn stopped_for<S: Subject>(stop: Duration, lease: Duration) {
    let stage = Stage::new().await;
    let client = stage.direct(watched(lease)).await;
    let other = stage.direct(watched(lease)).await;
    let name = unique_name("stopped");
    let guard = client.kind::<S>(&name).lock().await.unwrap();
    let waiting = waiter::<S::Rival>(&stage.server, other.rival::<S>(&name)).await;
    stage.server.pause();
    // A request awaits its reply during the stop, so that the client notices the silence.
    let asked = client.kind::<S>(&name);
    let asked = tokio::spawn(async move { asked.is_locked().await });
    let_pass(stop).await;
    stage.server.resume();
    assert_eq!(timeout(GENEROUS, asked).await.unwrap().unwrap(), Ok(true));
    let_pass(lease - stop).await;
    assert!(!guard.is_lost() && !waiting.is_finished());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(got_in(waiting).await.unlock().await, Ok(Released::Fully));
    nothing_left(&stage.server, PROMPT).await;
}

pub async fn a_server_stopped_for_more_than_a_lease_costs_the_hold<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.direct(watched(seconds(2))).await;
    let other = stage.direct(watched(seconds(30))).await;
    let name = unique_name("stopped");
    let guard = client.kind::<S>(&name).lock().await.unwrap();
    let token = guard.cancellation_token();
    let waiting = waiter::<S::Rival>(&stage.server, other.rival::<S>(&name)).await;
    stage.server.pause();
    let reason = timeout(GENEROUS, guard.lost()).await;
    assert_eq!(reason, Ok(LostReason::Expired));
    assert!(guard.is_lost() && !waiting.is_finished());
    timeout(GENEROUS, token.cancelled()).await.unwrap();
    // The client reports the loss without the server.
    let unlocked = timeout(GENEROUS, guard.unlock()).await.unwrap();
    assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    stage.server.resume();
    assert_eq!(got_in(waiting).await.unlock().await, Ok(Released::Fully));
    nothing_left(&stage.server, PROMPT).await;
}

pub async fn a_server_that_starts_over_empty_is_noticed_at_once<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.direct(watched(seconds(60))).await;
    let other = stage.direct(watched(seconds(60))).await;
    let lock = client.kind::<S>(unique_name("restarted"));
    let fixed = client
        .kind::<S>(unique_name("restarted"))
        .with_lease(seconds(60));
    let guards = [lock.lock().await.unwrap(), fixed.lock().await.unwrap()];
    let waiting = waiter::<S::Rival>(&stage.server, other.rival::<S>(lock.name())).await;
    stage.server.restart().await;
    for guard in &guards {
        assert_eq!(timeout(PROMPT, guard.lost()).await, Ok(LostReason::Gone));
    }
    let next = got_in(waiting).await;
    for guard in guards {
        let unlocked = guard.unlock().await;
        assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    }
    assert_eq!(next.unlock().await, Ok(Released::Fully));
    let again = lock.lock().await.unwrap();
    assert_eq!(again.unlock().await, Ok(Released::Fully));
    nothing_left(&stage.server, PROMPT).await;
}

/// [Invariant 2](../../../docs/invariants.md): validity ends before the key expires.
pub async fn a_partition_ends_the_hold_before_the_server_does<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(watched(seconds(2))).await;
    // On a busy machine a timer can be late, so one of three rounds suffices.
    for _ in 0..3 {
        if partition::<S>(&stage, client.kind::<S>(unique_name("partition"))).await {
            return;
        }
    }
    panic!("the token never fired while the key had time left");
}

/// Returns whether the token fired before the key expired.
async fn partition<S: Subject>(stage: &Stage, lock: Lock<S::Kind>) -> bool {
    let guard = lock.lock().await.unwrap();
    let token = guard.cancellation_token();
    stage.faults().stall(true);
    // Requests that passed the proxy before the stall have run by now.
    let_pass(Duration::from_millis(100)).await;
    let expires = expiry(&stage.server, lock.name()).await;
    let relied_upon = guard
        .valid_until()
        .saturating_duration_since(Instant::now());
    assert!(
        SystemTime::now() + relied_upon < expires,
        "the hold outlives its key"
    );
    timeout(GENEROUS, token.cancelled()).await.unwrap();
    let in_time = SystemTime::now() < expires;
    assert!(guard.is_lost());
    eventually("the key has gone", GENEROUS, async || {
        !exists(&stage.server, lock.name()).await
    })
    .await;
    stage.faults().stall(false);
    let unlocked = guard.unlock().await;
    assert!(matches!(unlocked, Err(Error::Lost { .. })), "{unlocked:?}");
    let again = lock.lock().await.unwrap();
    assert_eq!(again.unlock().await, Ok(Released::Fully));
    nothing_left(&stage.server, PROMPT).await;
    in_time
}

async fn expiry(server: &Server, name: &str) -> SystemTime {
    let millis: u64 = server.command(&["PEXPIRETIME", name]).await;
    SystemTime::UNIX_EPOCH + Duration::from_millis(millis)
}

/// The holder checks the clock and not a timer. When the key is gone, a later look at the guard
/// shows the loss.
pub async fn a_hold_is_lost_before_its_key_expires<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(watched(seconds(30))).await;
    for _ in 0..10 {
        let name = unique_name("expiry");
        let lock = client.kind::<S>(&name);
        let guard = lock
            .with_lease(Duration::from_millis(120))
            .lock()
            .await
            .unwrap();
        let mut admin = stage.server.admin().await;
        loop {
            let there = redis::cmd("EXISTS")
                .arg(&name)
                .query_async::<bool>(&mut admin)
                .await;
            let lost = guard.is_lost();
            if !there.unwrap() {
                assert!(lost, "the key expired before the guard was lost");
                break;
            }
        }
    }
}

pub async fn p_a11_a_short_attempt_ends_in_time_and_its_late_grant_is_released<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(watched(seconds(60))).await;
    let name = unique_name("unreachable");
    let lock = client.kind::<S>(&name);
    // The client asks before its first acquisition whether scripts may publish, and no more than that would arrive late.
    let guard = client
        .kind::<S>(unique_name("earlier"))
        .lock()
        .await
        .unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    stage.faults().stall(true);
    let began = Instant::now();
    let tried = lock.try_lock_for(Duration::from_millis(300)).await;
    // The time limit of `lock` or `command_wait` would be 30 s or more here.
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    assert!(!exists(&stage.server, &name).await);
    stage.server.reset_calls().await;
    stage.faults().stall(false);
    eventually("the late grant is released", PROMPT, async || {
        scripts(&stage.server).await >= 2
    })
    .await;
    nothing_left(&stage.server, PROMPT).await;
}

/// The stall outlasts the connection, which the client closes. Its requests may still arrive,
/// before or after its end.
pub async fn requests_that_arrive_after_a_stall_do_no_harm<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(watched(seconds(60))).await;
    let held = client.kind::<S>(unique_name("stall"));
    let wanted = client.kind::<S>(unique_name("stall"));
    let guard = held.lock().await.unwrap();
    stage.faults().stall(true);
    let tried = wanted.try_lock_for(Duration::from_millis(200)).await;
    assert!(matches!(tried, Err(Error::Unavailable { .. })), "{tried:?}");
    let unlock = tokio::spawn(guard.unlock());
    let again = client
        .rival::<S>(held.name())
        .owned_by(&redisson_lock::Owner::new());
    let again = tokio::spawn(async move { again.lock().await });
    let_pass(seconds(4)).await;
    stage.faults().stall(false);
    let unlocked = timeout(GENEROUS, unlock).await.unwrap().unwrap();
    assert_eq!(unlocked, Ok(Released::Fully));
    let next = got_in(again).await;
    assert!(pttl(&stage.server, held.name()).await > 0 && !next.is_lost());
    assert_eq!(next.unlock().await, Ok(Released::Fully));
    nothing_left(&stage.server, PROMPT).await;
}

/// A foreign script blocks the server, which answers `BUSY`. The client does not take the server
/// for dead (P-T2).
pub async fn p_t2_operations_wait_for_a_busy_server<S: Subject>() {
    let options = ["--busy-reply-threshold", "50"];
    let server = Server::start_with(&options).await;
    let client = super::stage::connect(&server.url(), watched(seconds(30))).await;
    let guard = client.kind::<S>(unique_name("busy")).lock().await.unwrap();
    let (mut spinning, mut watching) = (server.admin().await, server.admin().await);
    let spin = tokio::spawn(async move {
        let script = redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query_async::<()>(&mut spinning)
            .await;
        script.unwrap_err()
    });
    eventually("the server is busy", GENEROUS, async || {
        let pong = redis::cmd("PING").query_async::<()>(&mut watching).await;
        pong.is_err_and(|error| error.to_string().contains("usy"))
    })
    .await;
    let free = client.kind::<S>(unique_name("busy"));
    let second = tokio::spawn(async move { free.lock().await });
    let unlock = tokio::spawn(guard.unlock());
    let_pass(seconds(4)).await;
    assert!(!second.is_finished() && !unlock.is_finished());
    server.command::<()>(&["SCRIPT", "KILL"]).await;
    spin.await.unwrap();
    assert_eq!(unlock.await.unwrap(), Ok(Released::Fully));
    assert_eq!(got_in(second).await.unlock().await, Ok(Released::Fully));
    nothing_left(&server, PROMPT).await;
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}
