//! A failed renewal affects no other lock, and no renewal outlives its hold (P-R1, P-R2, P-A4).

use std::time::Duration;

use redisson_lock::{Error, Guard, LockClient, LostReason, Owner, Released};
use testbed::{Server, eventually, unique_name};
use tokio::{task::JoinSet, time::timeout};

use crate::contract::subjects::{Reentrant, Write};

use super::stage::{
    GENEROUS, Locks, PROMPT, Random, Stage, Subject, all_done, count, exists, hold_as, let_pass,
    nothing_left, pttl, watched,
};
use crate::witness::poll_and_drop;

/// Ways to change a held lock from outside.
async fn spoil<S: Subject>(server: &Server, name: &str, way: usize) {
    // Redisson's write lock overwrites a plain lock of the same name without a check (P-A8).
    if way > 0 && (way < 4 || S::TYPE != "hash" || S::MODE.is_some()) {
        server.command::<()>(&["DEL", name]).await;
    }
    match way {
        0 => server.command::<()>(&["DEL", name]).await,
        1 => server.command::<()>(&["SET", name, "odd"]).await,
        2 => hold_as::<S::Rival>(server, name, "another:1").await,
        3 => server.command::<()>(&["ZADD", name, "1", "odd"]).await,
        _ if S::MODE.is_some() => hold_as::<Reentrant>(server, name, "another:1").await,
        _ => hold_as::<Write>(server, name, "another:1").await,
    }
}

const WAYS: usize = 5;

pub async fn p_r1_overwritten_locks_do_not_stop_other_renewals<S: Subject>() {
    let stage = Stage::new().await;
    let lease = Duration::from_secs(2);
    let client = stage.direct(watched(lease)).await;
    let names: Vec<_> = (0..40).map(|_| unique_name("renewals")).collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(client.kind::<S>(name).lock().await.unwrap());
    }
    for way in 0..WAYS {
        spoil::<S>(&stage.server, &names[way * 7], way).await;
    }
    for way in 0..WAYS {
        let lost = timeout(PROMPT, guards[way * 7].lost()).await;
        assert_eq!(lost, Ok(LostReason::Gone), "not noticed: way {way}");
    }
    let_pass(lease * 2).await;
    for (number, guard) in guards.into_iter().enumerate() {
        let spoilt = number % 7 == 0 && number / 7 < WAYS;
        assert_eq!(guard.is_lost(), spoilt, "lock {number}");
        assert_eq!(is_lost_error(&guard.unlock().await), spoilt);
        if !spoilt {
            assert!(!exists(&stage.server, &names[number]).await);
        }
    }
}

fn is_lost_error(unlocked: &Result<Released, Error>) -> bool {
    match unlocked {
        Ok(Released::Fully) => false,
        Err(Error::Lost { .. }) => true,
        other => panic!("{other:?}"),
    }
}

/// A third of all renewals or their replies are lost, each with its connection.
pub async fn p_r1_lost_renewals_are_sent_again<S: Subject>() {
    let stage = Stage::new().await;
    let mut random = Random::new();
    // The lease allows eight attempts: each failure lengthens the pause before the next connection.
    let lease = Duration::from_secs(4);
    let client = stage.client(watched(lease)).await;
    let mut guards = Vec::new();
    for _ in 0..10 {
        let lock = client.kind::<S>(unique_name("lost-renewals"));
        guards.push(lock.lock().await.unwrap());
    }
    stage.faults().seed(random.next());
    stage.faults().lose_replies(0.2);
    stage.faults().lose_requests(0.2);
    let_pass(lease * 2).await;
    // Losses are random. Usually enough have happened by now.
    eventually("a few renewals were lost", 8 * PROMPT, async || {
        stage.faults().lost_replies() + stage.faults().lost_requests() > 2
    })
    .await;
    stage.faults().heal();
    for guard in guards {
        assert!(!guard.is_lost());
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    nothing_left(&stage.server, PROMPT).await;
}

/// The verification after a reconnection is lost. Its repetition finds the loss, also for fixed
/// leases, which no renewal checks later.
pub async fn a_lost_verification_after_a_reconnection_is_repeated<S: Subject>() {
    let stage = Stage::new().await;
    let client = stage.client(watched(Duration::from_secs(60))).await;
    for round in 0..8 {
        let mut guards = Vec::new();
        for _ in 0..5 {
            let lock = client.kind::<S>(unique_name("looks"));
            let lock = lock.with_lease(Duration::from_secs(60));
            guards.push(lock.lock().await.unwrap());
        }
        stage.server.command::<()>(&["FLUSHALL"]).await;
        stage.faults().lose_next_reply();
        stage.faults().cut_all();
        for guard in &guards {
            let lost = timeout(PROMPT, guard.lost()).await;
            assert_eq!(lost, Ok(LostReason::Gone), "round {round}");
        }
        stage.faults().heal();
    }
}

/// The watchdog's lease in the race. The fixed lease is shorter, so that a late renewal shows.
const LEASE: Duration = Duration::from_millis(1500);
const FIXED: Duration = Duration::from_millis(1000);

/// Waits until about the time of the renewal.
async fn about_its_renewal(random: &mut Random) {
    let spread = Duration::from_millis(16);
    let_pass(LEASE / 3 - spread / 2 + random.up_to(spread)).await;
}

/// Fails if the key's remaining lease rises within a renewal interval.
async fn only_falls(server: &Server, name: &str) {
    let mut left = pttl(server, name).await;
    for _ in 0..60 {
        let_pass(LEASE / 150).await;
        let now = pttl(server, name).await;
        assert!(now <= left, "{name} was renewed, from {left} to {now} ms");
        left = now;
    }
}

/// On a busy machine so short a lease may expire before.
async fn end<S: Subject>(guard: Guard<S::Kind>) {
    let _ = is_lost_error(&guard.unlock().await);
}

async fn race_fixed<S: Subject>(client: LockClient, server: &Server, mut random: Random) {
    let owner = Owner::new();
    for _ in 0..4 {
        let name = unique_name("race");
        let lock = client.kind::<S>(&name).owned_by(&owner);
        let guard = lock.lock().await.unwrap();
        about_its_renewal(&mut random).await;
        end::<S>(guard).await;
        assert!(!exists(server, &name).await, "{name} still exists");
        let fixed = lock.with_lease(FIXED).lock().await.unwrap();
        only_falls(server, &name).await;
        end::<S>(fixed).await;
    }
}

async fn race_nested<S: Subject>(client: LockClient, server: &Server, mut random: Random) {
    for _ in 0..4 {
        let name = unique_name("race");
        let lock = client.kind::<S>(&name).owned_by(&Owner::new());
        let outer = lock.with_lease(FIXED).lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        about_its_renewal(&mut random).await;
        let unlocked = inner.unlock().await;
        let held = unlocked == Ok(Released::StillHeld { holds: 1 });
        assert!(held || matches!(unlocked, Err(Error::Lost { .. })));
        only_falls(server, &name).await;
        end::<S>(outer).await;
    }
}

pub async fn p_r2_a_renewal_that_races_a_release_restores_no_hold<S: Subject>() {
    let stage: &Stage = Box::leak(Box::new(Stage::new().await));
    let mut random = Random::new();
    stage.faults().delay(Duration::from_millis(3));
    let client = stage.client(watched(LEASE)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        tasks.spawn(race_fixed::<S>(
            client.clone(),
            &stage.server,
            random.split(),
        ));
        if S::REENTRANT {
            tasks.spawn(race_nested::<S>(
                client.clone(),
                &stage.server,
                random.split(),
            ));
        }
    }
    all_done(tasks).await;
    nothing_left(&stage.server, PROMPT).await;
    stage.server.kill();
}

/// A late release by a dropped guard or a dropped `unlock` never releases the owner's next hold.
pub async fn p_a4_a_late_release_spares_the_next_hold<S: Subject>() {
    let stage = Stage::new().await;
    let mut random = Random::new();
    stage.faults().delay(Duration::from_millis(2));
    let client = stage.client(watched(Duration::from_secs(60))).await;
    let name = unique_name("late");
    let lock = client.kind::<S>(&name);
    for _ in 0..40 {
        end_somehow::<S>(lock.lock().await.unwrap(), &mut random).await;
        let next = timeout(GENEROUS, lock.lock()).await.unwrap().unwrap();
        eventually("one hold is counted", PROMPT, async || {
            count::<S>(&stage.server, &name).await == 1
        })
        .await;
        let_pass(random.up_to(Duration::from_millis(8))).await;
        assert_eq!(count::<S>(&stage.server, &name).await, 1);
        assert!(!next.is_lost());
        assert_eq!(next.unlock().await, Ok(Released::Fully));
    }
    nothing_left(&stage.server, PROMPT).await;
}

async fn end_somehow<S: Subject>(guard: Guard<S::Kind>, random: &mut Random) {
    match random.below(4) {
        0 => drop(guard),
        polls => drop(poll_and_drop(guard.unlock(), polls).await),
    }
}
