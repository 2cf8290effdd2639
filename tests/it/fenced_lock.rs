//! Tests of the fenced lock only: its tokens and their counter.

use std::time::Duration;

use futures_util::poll;
use redisson_lock::{Error, FencedLock, LockClient, LostReason, Owner, Released};
use testbed::{Proxy, eventually, unique_name};
use tokio::task::JoinSet;

use crate::witness::{
    Listener, NEVER, SOON, Witness, busy_at_worst, connect, done, let_pass, only_messages, polling,
    watched,
};

/// One fenced lock and its counter.
struct Gate {
    witness: Witness,
    name: String,
    counter: String,
}

impl Gate {
    async fn new() -> Self {
        let name = unique_name("fenced");
        Self {
            witness: Witness::new().await,
            counter: format!("redisson_lock_token:{{{name}}}"),
            name,
        }
    }

    fn lock(&self, client: &LockClient) -> FencedLock {
        client.fenced_lock(&self.name)
    }

    async fn count(&self) -> Option<i64> {
        self.witness.ask(&["GET", &self.counter]).await
    }

    /// Acquires the lock as Redisson does, and returns the token.
    async fn java_enters(&self) -> i64 {
        let java = "33333333-3333-4333-8333-333333333333:1";
        let words = ["HSETNX", &self.name, java, "1"];
        assert_eq!(self.witness.ask::<u32>(&words).await, 1);
        let () = self.witness.ask(&["PEXPIRE", &self.name, "30000"]).await;
        self.witness.ask(&["INCR", &self.counter]).await
    }

    async fn java_leaves(&self) {
        let channel = format!("redisson_lock__channel:{{{}}}", self.name);
        let () = self.witness.ask(&["DEL", &self.name]).await;
        let () = self.witness.ask(&["PUBLISH", &channel, "0"]).await;
    }
}

/// Redisson's multi-lock sets its lease on the counter too. After its end, tokens would begin
/// again.
#[tokio::test]
async fn p_m7_a_counter_that_was_given_a_lease_is_kept() {
    let gate = Gate::new().await;
    let client = gate.witness.a_client().await;
    gate.java_enters().await;
    gate.java_leaves().await;
    let () = gate.witness.ask(&["PEXPIRE", &gate.counter, "60000"]).await;
    let guard = gate.lock(&client).lock().await.unwrap();
    assert_eq!(guard.token(), 2);
    assert_eq!(gate.witness.pttl(&gate.counter).await, -1);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

#[tokio::test]
async fn tokens_rise_over_holders_of_both_sides() {
    let gate = Gate::new().await;
    let clients = [gate.witness.a_client().await, gate.witness.a_client().await];
    let mut last = 0;
    for round in 0..12 {
        let token = if round % 3 == 2 {
            let token = gate.java_enters().await;
            gate.java_leaves().await;
            token
        } else {
            let lock = gate.lock(&clients[round % 3]).owned_by(&Owner::new());
            let guard = lock.lock().await.unwrap();
            let token = guard.token();
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
            token
        };
        assert_eq!(token, last + 1, "round {round}");
        last = token;
    }
    assert_eq!(
        gate.count().await,
        Some(last),
        "the counter outlives the lock"
    );
    assert_eq!(gate.witness.pttl(&gate.counter).await, -1);
}

/// Lua's numbers are exact up to 2^53. A service that continues the tokens of its store may be above it.
#[tokio::test]
async fn tokens_above_the_numbers_of_lua_differ() {
    let gate = Gate::new().await;
    let client = gate.witness.a_client().await;
    let last = 1_795_627_156_499_000_001_i64;
    let set = ["SET", &gate.counter, &last.to_string()];
    gate.witness.ask::<()>(&set).await;
    for token in 1..=3 {
        let guard = gate.lock(&client).lock().await.unwrap();
        assert_eq!(guard.token(), last + token);
        guard.unlock().await.unwrap();
    }
}

/// Each waiter gets its own token, in the order of the holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_waiters() {
    let gate = Gate::new().await;
    let inside = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for _ in 0..2 {
        let client = gate.witness.a_client().await;
        for _ in 0..10 {
            let (lock, inside) = (gate.lock(&client), inside.clone());
            tasks.spawn(async move {
                let guard = lock.lock().await.unwrap();
                inside.lock().unwrap().push(guard.token());
                assert_eq!(guard.unlock().await, Ok(Released::Fully));
            });
        }
    }
    tokio::time::timeout(SOON, tasks.join_all())
        .await
        .expect("all waiters acquire the lock");
    let tokens = inside.lock().unwrap().clone();
    assert_eq!(tokens, (1..=20).collect::<Vec<_>>());
}

/// P-M6: Redisson's tokens rise at a re-entry, so the owner's earlier token looks outdated.
#[tokio::test]
async fn p_m6_inner_holds_show_the_outer_ones_token() {
    let gate = Gate::new().await;
    let lock = gate.lock(&gate.witness.a_client().await);
    let outer = lock.lock().await.unwrap();
    let token = outer.token();
    let inner = lock.lock().await.unwrap();
    let innermost = lock.try_lock().await.unwrap().expect("the owner re-enters");
    assert_eq!(
        [inner.token(), innermost.token(), outer.token()],
        [token; 3]
    );
    // Redisson raises the counter for inner holds too.
    assert_eq!(gate.count().await, Some(token + 2));
    assert_eq!(outer.unlock().await, Ok(Released::StillHeld { holds: 2 }));
    assert_eq!([inner.token(), innermost.token()], [token; 2]);
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(innermost.unlock().await, Ok(Released::Fully));
    let next = lock.lock().await.unwrap();
    assert_eq!(next.token(), token + 3);
    assert_eq!(next.unlock().await, Ok(Released::Fully));
}

/// A separate GET may read a later owner's token. A guard keeps the token of its own hold, even
/// after a loss.
#[tokio::test]
async fn p_m6_a_lost_guard_keeps_its_own_token() {
    let gate = Gate::new().await;
    let client = gate.witness.a_client().await;
    let lease = Duration::from_millis(100);
    let lost = gate.lock(&client).with_lease(lease).lock().await.unwrap();
    assert_eq!(lost.lost().await, LostReason::Expired);
    let later = gate.lock(&client).lock().await.unwrap();
    assert_eq!((lost.token(), later.token()), (1, 2));
    let late = lost.unlock().await;
    assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
    assert_eq!(later.unlock().await, Ok(Released::Fully));
}

/// A repetition may count a second time: tokens rise, and an inner hold has that of the outer one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_over_lost_replies_and_requests() {
    let gate = Gate::new().await;
    let proxy = Proxy::start(gate.witness.server.port()).await;
    let lock = gate.lock(&connect(&proxy.url(), watched(SOON * 3)).await);
    let faults = proxy.faults();
    faults.only(Some(gate.name.clone()));
    let mut last = 0;
    for round in 0..10 {
        let lose = || match round % 2 {
            0 => faults.lose_next_reply(),
            _ => faults.lose_next_request(),
        };
        lose();
        let outer = lock.lock().await.unwrap();
        assert!(outer.token() > last, "{} after {last}", outer.token());
        last = outer.token();
        lose();
        let inner = lock.lock().await.unwrap();
        assert_eq!(inner.token(), outer.token());
        lose();
        assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
        lose();
        assert_eq!(outer.unlock().await, Ok(Released::Fully));
    }
    let lost = faults.lost_replies() + faults.lost_requests();
    assert_eq!(lost, 40, "{faults:?}");
}

/// P-A7: Redisson takes "no expiry" for "acquired", so two owners hold the lock (measured).
#[tokio::test]
async fn p_a7_a_lock_without_expiry_is_held() {
    let gate = Gate::new().await;
    let client = gate
        .witness
        .client(polling(Duration::from_millis(200)))
        .await;
    let lock = gate.lock(&client);
    let owner = Owner::new();
    let guard = lock.owned_by(&owner).lock().await.unwrap();
    let () = gate.witness.ask(&["PERSIST", &gate.name]).await;
    assert!(lock.try_lock().await.unwrap().is_none());
    let short = Duration::from_millis(500);
    assert!(busy_at_worst(lock.try_lock_for(short).await).is_none());
    assert_eq!(
        gate.count().await,
        Some(1),
        "no other acquisition was counted"
    );
    // No message comes, so the waiter polls.
    let waiter = tokio::spawn(async move { lock.lock().await });
    gate.witness.server.reset_calls().await;
    gate.witness.have_run(3).await;
    let () = gate.witness.ask(&["DEL", &gate.name]).await;
    let entered = done("the waiter polls", waiter).await.unwrap();
    assert_eq!(entered.token(), 2);
    assert_eq!(entered.unlock().await, Ok(Released::Fully));
    let late = guard.unlock().await;
    assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
}

/// P-A13: Redisson's `lockAndGetToken(lease)` ignores its lease, and under contention multiplies it
/// by a thousand.
#[tokio::test]
async fn p_a13_a_lease_is_the_lease_with_and_without_contention() {
    let gate = Gate::new().await;
    let client = gate.witness.client(only_messages()).await;
    let lease = Duration::from_secs(5);
    let leased = gate.lock(&client).with_lease(lease);
    let is_right = async || {
        let left = gate.witness.pttl(&gate.name).await;
        assert!(left > 0 && left <= 5000, "{left} ms of 5000");
    };
    let guard = leased.lock().await.unwrap();
    is_right().await;
    let [waits, tries] = [(); 2].map(|()| leased.owned_by(&Owner::new()));
    let mut waits = Box::pin(async move { waits.lock().await });
    let mut tries = Box::pin(async move { tries.try_lock_for(NEVER).await });
    assert!(poll!(&mut waits).is_pending() && poll!(&mut tries).is_pending());
    let (waiter, trier) = (tokio::spawn(waits), tokio::spawn(tries));
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let (mut waiter, mut trier) = (Some(waiter), Some(trier));
    for _ in 0..2 {
        eventually("an owner holds the lock", SOON, async || {
            gate.witness.exists(&gate.name).await
        })
        .await;
        is_right().await;
        let first = waiter.as_ref().is_some_and(|task| task.is_finished());
        let guard = if first || trier.is_none() {
            done("the task holds the lock", waiter.take().unwrap())
                .await
                .unwrap()
        } else {
            let taken = done("the task holds the lock", trier.take().unwrap()).await;
            taken.unwrap().expect("the lock is acquired in time")
        };
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}

/// The counter's key has other data: the lock is refused with an error that says so, and the data
/// stays.
#[tokio::test]
async fn a_counter_of_another_type_is_refused_by_name_and_left_alone() {
    let gate = Gate::new().await;
    let client = gate.witness.a_client().await;
    for (words, says) in [
        (&["RPUSH", &gate.counter, "x"] as &[&str], "further key"),
        (&["SET", &gate.counter, "no number"], "not an integer"),
        (&["SET", &gate.counter, "9223372036854775807"], "overflow"),
    ] {
        let _: redis::Value = gate.witness.ask(words).await;
        let before: Vec<u8> = gate.witness.ask(&["DUMP", &gate.counter]).await;
        let refused = gate.lock(&client).lock().await.map(drop).unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
        assert!(!gate.witness.exists(&gate.name).await, "the lock is held");
        let after: Vec<u8> = gate.witness.ask(&["DUMP", &gate.counter]).await;
        assert_eq!(after, before);
        let () = gate.witness.ask(&["DEL", &gate.counter]).await;
    }
    let guard = gate.lock(&client).lock().await.unwrap();
    assert_eq!(guard.token(), 1);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// P-M7: tokens live as long as the counter, and begin again after its loss. An inner hold still
/// has the outer hold's token.
#[tokio::test]
async fn p_m7_a_counter_that_is_lost_starts_again() {
    let gate = Gate::new().await;
    let lock = gate.lock(&gate.witness.a_client().await);
    let _ = lock.lock().await.unwrap().unlock().await.unwrap();
    let outer = lock.lock().await.unwrap();
    assert_eq!(outer.token(), 2);
    let () = gate.witness.ask(&["DEL", &gate.counter]).await;
    let inner = lock.lock().await.unwrap();
    assert_eq!((inner.token(), outer.token()), (2, 2));
    drop((inner, outer));
    let freed = async || !gate.witness.exists(&gate.name).await;
    eventually("the lock is free", SOON, freed).await;
    assert_eq!(
        lock.lock().await.unwrap().token(),
        2,
        "the inner hold took token 1"
    );
}

/// A release is published once, on the channel of Redisson's waiters.
#[tokio::test]
async fn a_fenced_release_is_announced_once() {
    let gate = Gate::new().await;
    let client = gate.witness.a_client().await;
    let channel = format!("redisson_lock__channel:{{{}}}", gate.name);
    let mut listener = Listener::on(&gate.witness.server, &channel).await;
    let guard = gate.lock(&client).lock().await.unwrap();
    let_pass(Duration::from_millis(1)).await;
    assert_eq!(listener.messages().await, [""; 0]);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(listener.messages().await, ["0"]);
}
