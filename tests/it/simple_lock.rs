//! Tests of the simple lock only: it shares a string with clients that do not know Redisson.

use std::time::Duration;

use redisson_lock::{Error, LockClient, LostReason, Owner, Released, SimpleLock};
use testbed::{Proxy, eventually, unique_name};

use crate::witness::{SOON, Witness, always, connect, done, only_messages, polling, watched};

struct Latch {
    witness: Witness,
    name: String,
}

impl Latch {
    async fn new() -> Self {
        Self {
            witness: Witness::new().await,
            name: unique_name("simple"),
        }
    }

    fn lock(&self, client: &LockClient) -> SimpleLock {
        client.simple_lock(&self.name)
    }

    async fn value(&self) -> Option<String> {
        self.witness.ask(&["GET", &self.name]).await
    }

    async fn pttl(&self) -> i64 {
        self.witness.pttl(&self.name).await
    }

    /// `SET name value NX PX lease`, as redis-py and redsync do. Returns whether it was
    /// granted.
    async fn foreign_take(&self, value: &str, lease: &str) -> bool {
        let words = ["SET", &self.name, value, "NX", "PX", lease];
        self.witness.ask::<Option<String>>(&words).await.is_some()
    }

    /// The release of such clients: deletes the key if it has their value.
    async fn foreign_release(&self, value: &str) -> bool {
        const RELEASE: &str = "
            if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
        let words = ["EVAL", RELEASE, "1", &self.name, value];
        self.witness.ask(&words).await
    }

    /// The extension of such clients.
    async fn foreign_extend(&self, value: &str, lease: &str) -> bool {
        const EXTEND: &str = "
            if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) end
            return 0";
        let words = ["EVAL", EXTEND, "1", &self.name, value, lease];
        self.witness.ask(&words).await
    }
}

#[tokio::test]
async fn foreign_clients_and_this_crate_exclude_each_other() {
    let latch = Latch::new().await;
    let client = latch.witness.a_client().await;
    let lock = latch.lock(&client);
    let guard = lock.lock().await.unwrap();
    let value = latch.value().await;
    assert_eq!(value, Some(format!("{}:{}", client.id(), Owner::current())));
    let left = latch.pttl().await;
    assert!(left > 20_000 && left <= 30_000, "{left}");
    assert!(!latch.foreign_take("theirs", "10000").await);
    assert!(!latch.foreign_release("theirs").await);
    assert!(!latch.foreign_extend("theirs", "1").await);
    assert_eq!(latch.value().await, value);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));

    assert!(latch.foreign_take("theirs", "10000").await);
    assert!(lock.try_lock().await.unwrap().is_none());
    assert_eq!(lock.is_locked().await, Ok(true));
    assert_eq!(lock.is_held().await, Ok(false));
    let left = lock.remaining_lease().await.unwrap().unwrap();
    assert!(left <= Duration::from_secs(10), "{left:?}");
    assert!(latch.foreign_extend("theirs", "20000").await);
    assert!(latch.foreign_release("theirs").await);
    let guard = lock.try_lock().await.unwrap().expect("the lock is free");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    latch.witness.nothing_left().await;
}

/// Foreign clients publish no releases, so the client polls.
#[tokio::test]
async fn a_foreign_release_is_noticed_without_a_message() {
    let latch = Latch::new().await;
    let client = latch.witness.client(only_messages()).await;
    assert!(latch.foreign_take("theirs", "600000").await);
    let lock = latch.lock(&client);
    let waiter = tokio::spawn(async move { lock.lock().await });
    latch.witness.have_run(2).await;
    assert!(latch.foreign_release("theirs").await);
    let guard = done("the waiter polls", waiter).await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    // Polls come five times a second.
    assert!(latch.foreign_take("theirs", "600000").await);
    latch.witness.server.reset_calls().await;
    let second = Duration::from_secs(1);
    assert!(
        latch
            .lock(&client)
            .try_lock_for(second)
            .await
            .unwrap()
            .is_none()
    );
    let asked = latch.witness.scripts().await;
    assert!((3..=10).contains(&asked), "{asked} attempts in a second");
}

/// A release by this crate is announced to waiters of this crate.
#[tokio::test]
async fn a_release_is_announced_to_waiters_of_this_library() {
    let latch = Latch::new().await;
    let [holder, waiter] = [
        latch.witness.a_client().await,
        latch.witness.a_client().await,
    ];
    let guard = latch.lock(&holder).lock().await.unwrap();
    let lock = latch.lock(&waiter);
    let waiting = tokio::spawn(async move { lock.lock().await });
    latch
        .witness
        .has_a_subscriber(&format!("simple_lock__channel:{{{}}}", latch.name))
        .await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let guard = done("the waiter is notified", waiting).await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    latch.witness.nothing_left().await;
}

/// A renewal extends only the client's own value. When the value is another's, the hold is lost and
/// the value unchanged.
#[tokio::test]
async fn a_renewal_extends_the_clients_own_value_only() {
    let latch = Latch::new().await;
    let lease = Duration::from_millis(1500);
    let client = latch.witness.client(watched(lease)).await;
    let guard = latch.lock(&client).lock().await.unwrap();
    always("the lock is held", 3 * lease, async || {
        latch.value().await.is_some() && !guard.is_lost()
    })
    .await;
    let () = latch.witness.ask(&["DEL", &latch.name]).await;
    assert!(latch.foreign_take("theirs", "600").await);
    let lost = tokio::time::timeout(SOON, guard.lost()).await;
    assert_eq!(lost.expect("the loss is reported"), LostReason::Gone);
    eventually("the foreign value expires", SOON, async || {
        latch.value().await.is_none()
    })
    .await;
    drop(guard);
    latch.witness.nothing_left().await;
}

/// A hold whose lease ended: the value belongs to another owner.
#[tokio::test]
async fn a_late_unlock_leaves_another_owners_value_alone() {
    let latch = Latch::new().await;
    let client = latch.witness.a_client().await;
    let lease = Duration::from_millis(200);
    let guard = latch.lock(&client).with_lease(lease).lock().await.unwrap();
    eventually("the lease expires", SOON, async || {
        latch.foreign_take("theirs", "60000").await
    })
    .await;
    let late = guard.unlock().await;
    assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
    assert_eq!(latch.value().await.as_deref(), Some("theirs"));
    // The same before the client's clock reports the loss.
    let () = latch.witness.ask(&["DEL", &latch.name]).await;
    let guard = latch.lock(&client).lock().await.unwrap();
    let () = latch.witness.ask(&["SET", &latch.name, "theirs"]).await;
    let gone = guard.unlock().await;
    assert!(matches!(gone, Err(Error::Lost { .. })), "{gone:?}");
    assert_eq!(latch.value().await.as_deref(), Some("theirs"));
    // The release of a dropped guard does not touch the value either.
    let () = latch.witness.ask(&["DEL", &latch.name]).await;
    let guard = latch.lock(&client).lock().await.unwrap();
    let () = latch.witness.ask(&["SET", &latch.name, "theirs"]).await;
    latch.witness.server.reset_calls().await;
    drop(guard);
    latch.witness.have_run(1).await;
    assert_eq!(latch.value().await.as_deref(), Some("theirs"));
}

#[tokio::test]
async fn an_expired_value_of_another_owners_is_free() {
    let latch = Latch::new().await;
    let client = latch.witness.client(only_messages()).await;
    assert!(latch.foreign_take("theirs", "1000").await);
    let lock = latch.lock(&client);
    let waiter = tokio::spawn(async move { lock.lock().await });
    let guard = done("the foreign lease expires", waiter).await.unwrap();
    assert!(!latch.foreign_extend("theirs", "60000").await);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    latch.witness.nothing_left().await;
}

/// A value without expiry is held for ever, also an empty one, or one that resembles an owner of
/// this client.
#[tokio::test]
async fn a_value_without_expiry_is_held() {
    let latch = Latch::new().await;
    let client = latch
        .witness
        .client(polling(Duration::from_millis(200)))
        .await;
    let lock = latch.lock(&client);
    let almost = format!("{}:{}0", client.id(), Owner::current());
    for value in ["", "1", &almost] {
        let () = latch.witness.ask(&["SET", &latch.name, value]).await;
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(lock.remaining_lease().await, Ok(None));
        assert_eq!(latch.value().await.as_deref(), Some(value));
        assert_eq!(lock.force_unlock().await, Ok(true));
    }
    latch.witness.nothing_left().await;
}

/// Redisson's kinds at the name of a simple lock, and the reverse.
#[tokio::test]
async fn other_shapes_are_refused_both_ways() {
    let latch = Latch::new().await;
    let client = latch.witness.a_client().await;
    let other = Owner::new();
    let is_wrong = |tried: Result<(), Error>| {
        assert!(matches!(tried, Err(Error::WrongKind { .. })), "{tried:?}");
    };
    let held = latch.lock(&client).owned_by(&other).lock().await.unwrap();
    let before = latch.value().await;
    is_wrong(
        client
            .reentrant_lock(&latch.name)
            .try_lock()
            .await
            .map(drop),
    );
    is_wrong(client.fair_lock(&latch.name).try_lock().await.map(drop));
    is_wrong(client.fair_lock(&latch.name).lock().await.map(drop));
    is_wrong(client.fenced_lock(&latch.name).try_lock().await.map(drop));
    is_wrong(client.spin_lock(&latch.name).lock().await.map(drop));
    let both = client.read_write_lock(&latch.name);
    is_wrong(both.read().try_lock().await.map(drop));
    is_wrong(both.write().try_lock().await.map(drop));
    is_wrong(
        client
            .reentrant_lock(&latch.name)
            .force_unlock()
            .await
            .map(drop),
    );
    is_wrong(client.fair_lock(&latch.name).force_unlock().await.map(drop));
    is_wrong(both.read().force_unlock().await.map(drop));
    is_wrong(both.write().force_unlock().await.map(drop));
    assert_eq!(latch.value().await, before);
    assert_eq!(held.unlock().await, Ok(Released::Fully));
    // The waits for the fair lock left no queue, and the attempt on the fenced lock raised no
    // counter.
    latch.witness.nothing_left().await;

    let held = client
        .reentrant_lock(&latch.name)
        .owned_by(&other)
        .lock()
        .await
        .unwrap();
    is_wrong(latch.lock(&client).try_lock().await.map(drop));
    is_wrong(latch.lock(&client).lock().await.map(drop));
    is_wrong(latch.lock(&client).is_locked().await.map(drop));
    is_wrong(latch.lock(&client).force_unlock().await.map(drop));
    assert_eq!(held.unlock().await, Ok(Released::Fully));
    let held = both.read().owned_by(&other).lock().await.unwrap();
    is_wrong(latch.lock(&client).try_lock().await.map(drop));
    assert_eq!(held.unlock().await, Ok(Released::Fully));
    for words in [
        &["RPUSH", &latch.name, "x"] as &[&str],
        &["SADD", &latch.name, "x"],
        &["ZADD", &latch.name, "1", "x"],
    ] {
        let () = latch.witness.ask(words).await;
        is_wrong(latch.lock(&client).try_lock().await.map(drop));
        let () = latch.witness.ask(&["DEL", &latch.name]).await;
    }
}

/// The lock has no re-entry, and refuses a second hold without a request.
#[tokio::test]
async fn a_simple_lock_is_refused_to_its_own_holder() {
    let latch = Latch::new().await;
    let lock = latch.lock(&latch.witness.a_client().await);
    let guard = lock.lock().await.unwrap();
    for again in [lock.lock().await.map(Some), lock.try_lock().await] {
        let again = again.map(drop);
        assert!(matches!(again, Err(Error::AlreadyHeld { .. })), "{again:?}");
    }
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let _ = lock.lock().await.unwrap().unlock().await.unwrap();
    latch.witness.nothing_left().await;
}

/// Lost replies and requests cause no second hold, no "not held" and no loss of a foreign value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_sent_again_after_a_loss_is_executed_once() {
    let latch = Latch::new().await;
    let proxy = Proxy::start(latch.witness.server.port()).await;
    let lock = latch.lock(&connect(&proxy.url(), watched(SOON * 3)).await);
    let faults = proxy.faults();
    faults.only(Some(latch.name.clone()));
    for round in 0..8 {
        let lose = || match round % 2 {
            0 => faults.lose_next_reply(),
            _ => faults.lose_next_request(),
        };
        lose();
        let guard = lock.lock().await.unwrap();
        assert!(!latch.foreign_take("theirs", "60000").await);
        lose();
        assert_eq!(guard.unlock().await, Ok(Released::Fully), "round {round}");
        assert!(latch.foreign_take("theirs", "60000").await);
        assert!(latch.foreign_release("theirs").await);
    }
    assert_eq!(faults.lost_replies() + faults.lost_requests(), 16);
    latch.witness.nothing_left().await;
}
