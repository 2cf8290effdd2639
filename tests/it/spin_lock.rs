//! Tests of the spin lock only: its waiters poll, and receive no messages.

use std::time::{Duration, Instant};

use redisson_lock::{BackOff, LockClient, Owner, Released, SpinLock};
use testbed::{Server, eventually, unique_name};

use crate::witness::{
    Listener, SOON, Witness, busy_at_worst, done, let_pass, only_messages, polling,
};

struct Turnstile {
    witness: Witness,
    name: String,
}

impl Turnstile {
    async fn new() -> Self {
        Self {
            witness: Witness::new().await,
            name: unique_name("spin"),
        }
    }

    fn lock(&self, client: &LockClient) -> SpinLock {
        client.spin_lock(&self.name).owned_by(&Owner::new())
    }

    fn channel(&self) -> String {
        format!("redisson_lock__channel:{{{}}}", self.name)
    }

    /// Makes a thread of Redisson hold the lock, whose release is not announced.
    async fn java_enters(&self, lease: &str) {
        let java = "33333333-3333-4333-8333-333333333333:1";
        let () = self.witness.ask(&["HSET", &self.name, java, "1"]).await;
        let () = self.witness.ask(&["PEXPIRE", &self.name, lease]).await;
    }

    async fn java_leaves(&self) {
        let () = self.witness.ask(&["DEL", &self.name]).await;
    }

    /// The number of attempts in a wait of `wait`.
    async fn attempts(&self, lock: &SpinLock, wait: Duration) -> u64 {
        self.witness.server.reset_calls().await;
        assert!(busy_at_worst(lock.try_lock_for(wait).await).is_none());
        self.witness.scripts().await
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Redisson's two strategies. A busy machine makes fewer attempts, never more.
#[tokio::test]
async fn both_back_offs_space_the_attempts() {
    let turnstile = Turnstile::new().await;
    let client = turnstile.witness.a_client().await;
    turnstile.java_enters("60000").await;
    let lock = turnstile.lock(&client);
    let backing_off = |back_off| lock.with_back_off(back_off);
    // Pauses of 1, 2, 4 .. 128 ms: eight attempts in the first quarter of a second, then eight a
    // second. The first script is sent twice.
    let attempts = turnstile.attempts(&lock, SECOND).await;
    assert!((4..=18).contains(&attempts), "{attempts} in a second");
    let constant = backing_off(BackOff::Constant(Duration::from_millis(250)));
    let attempts = turnstile.attempts(&constant, SECOND).await;
    assert!((2..=5).contains(&attempts), "{attempts} in a second");
    let constant = backing_off(BackOff::Constant(Duration::from_millis(20)));
    let attempts = turnstile.attempts(&constant, SECOND).await;
    assert!((10..=51).contains(&attempts), "{attempts} in a second");
    let exponential = backing_off(BackOff::Exponential {
        initial: Duration::from_millis(100),
        max: Duration::from_millis(400),
        multiplier: 4,
    });
    let attempts = turnstile.attempts(&exponential, SECOND).await;
    assert!((2..=5).contains(&attempts), "{attempts} in a second");
}

/// A pause of zero is raised to a millisecond, so no setting keeps the server busy.
#[tokio::test]
async fn a_back_off_of_zero_is_a_millisecond() {
    let turnstile = Turnstile::new().await;
    let client = turnstile.witness.a_client().await;
    turnstile.java_enters("60000").await;
    let lock = turnstile.lock(&client);
    let never_resting = lock.with_back_off(BackOff::Constant(Duration::ZERO));
    let began = Instant::now();
    let attempts = turnstile.attempts(&never_resting, SECOND / 2).await;
    let millis = began.elapsed().as_millis() as u64;
    assert!(attempts <= millis + 2, "{attempts} in {millis} ms");
}

/// A long pause does not outlast the wait's limit or the holder's lease.
#[tokio::test]
async fn a_long_pause_ends_with_the_limit_and_with_the_lease() {
    let turnstile = Turnstile::new().await;
    let client = turnstile.witness.a_client().await;
    let lock = turnstile.lock(&client);
    let lazy = lock.with_back_off(BackOff::Constant(Duration::from_secs(60)));
    turnstile.java_enters("60000").await;
    let short = Duration::from_millis(50);
    let tried = tokio::time::timeout(SOON, lazy.try_lock_for(short)).await;
    let tried = tried.expect("the wait ends at its limit");
    assert!(busy_at_worst(tried).is_none());
    turnstile.java_leaves().await;
    let pause = Duration::from_secs(60);
    let growing = lock.with_back_off(BackOff::Exponential {
        initial: Duration::from_millis(1),
        max: pause,
        multiplier: 1000,
    });
    turnstile.java_enters("2000").await;
    let guard = tokio::time::timeout(SOON, growing.lock()).await;
    let guard = guard.expect("the wait ends with the lease").unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// A waiter subscribes to nothing, because it needs no message.
#[tokio::test]
async fn a_spin_lock_polls_and_does_not_subscribe() {
    let turnstile = Turnstile::new().await;
    let client = turnstile.witness.client(only_messages()).await;
    turnstile.java_enters("60000").await;
    let lock = turnstile.lock(&client);
    turnstile.witness.server.reset_calls().await;
    let waiter = tokio::spawn(async move { lock.lock().await });
    turnstile.witness.have_run(5).await;
    assert_eq!(turnstile.witness.ran(&["subscribe", "ssubscribe"]).await, 0);
    turnstile.java_leaves().await;
    let guard = done("the waiter polls", waiter).await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    turnstile.witness.nothing_left().await;
}

/// Unlike Redisson's, a release is published, once per release and not for an inner hold.
#[tokio::test]
async fn a_spin_release_is_announced_once() {
    let turnstile = Turnstile::new().await;
    let client = turnstile.witness.a_client().await;
    let lock = turnstile.lock(&client);
    let mut listener = Listener::on(&turnstile.witness.server, &turnstile.channel()).await;
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(listener.messages().await, [""; 0]);
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
    assert_eq!(listener.messages().await, ["0"]);
    drop(listener);
    // A waiter of this crate that listens on the name acquires the lock without a poll.
    let guard = lock.lock().await.unwrap();
    let other = turnstile.witness.client(only_messages()).await;
    let plain = other.reentrant_lock(&turnstile.name);
    turnstile.witness.server.reset_calls().await;
    let waiter = tokio::spawn(async move { plain.lock().await });
    turnstile.witness.have_run(2).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let guard = done("the waiter is notified", waiter).await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    turnstile.witness.nothing_left().await;
}

/// P-W11: a listening waiter behind Redisson's spin lock retries at the poll interval ..
#[tokio::test]
async fn p_w11_a_poll_finds_a_silent_release() {
    let turnstile = Turnstile::new().await;
    let client = turnstile.witness.client(polling(SECOND)).await;
    turnstile.java_enters("600000").await;
    let plain = client.reentrant_lock(&turnstile.name);
    turnstile.witness.server.reset_calls().await;
    let waiter = tokio::spawn(async move { plain.lock().await });
    turnstile.witness.have_run(2).await;
    turnstile.java_leaves().await;
    let guard = done("the waiter polls at the poll interval", waiter)
        .await
        .unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// .. and at the end of the lease that its refusal reported, if that is earlier.
#[tokio::test]
async fn p_w11_waiters_retry_when_a_lease_expires() {
    let turnstile = Turnstile::new().await;
    let client = turnstile.witness.client(only_messages()).await;
    turnstile.java_enters("1500").await;
    let plain = client.reentrant_lock(&turnstile.name);
    let waiter = tokio::spawn(async move { plain.lock().await });
    let guard = done("the waiter retries at the lease's end", waiter)
        .await
        .unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// A spin lock's hold is renewed like any other.
#[tokio::test]
async fn a_hold_is_renewed() {
    let turnstile = Turnstile::new().await;
    let lease = Duration::from_millis(1500);
    let client = turnstile
        .witness
        .client(crate::witness::watched(lease))
        .await;
    let guard = turnstile.lock(&client).lock().await.unwrap();
    let before = guard.valid_until();
    eventually("the lease is renewed", SOON, async || {
        guard.valid_until() > before
    })
    .await;
    let_pass(2 * lease).await;
    assert!(turnstile.lock(&client).try_lock().await.unwrap().is_none());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// As Redisson's spin lock does, which publishes nothing.
#[tokio::test]
async fn spin_lock_works_where_no_message_can_be_published() {
    let without_command = Server::start_with(&["--rename-command", "PUBLISH", ""]).await;
    let without_channels = Server::start().await;
    let user = [
        "ACL",
        "SETUSER",
        "app",
        "on",
        ">pw",
        "~*",
        "+@all",
        "resetchannels",
    ];
    without_channels.command::<()>(&user).await;
    let as_user = format!("redis://app:pw@127.0.0.1:{}", without_channels.port());
    for (server, url) in [
        (&without_command, without_command.url()),
        (&without_channels, as_user),
    ] {
        let client = LockClient::connect(&url).await.unwrap();
        let lock = client.spin_lock("a").owned_by(&Owner::new());
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        let waiter = client.spin_lock("a").owned_by(&Owner::new());
        let waiting = tokio::spawn(async move { waiter.lock().await?.unlock().await });
        assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
        assert_eq!(outer.unlock().await, Ok(Released::Fully));
        assert_eq!(waiting.await.unwrap(), Ok(Released::Fully));
        lock.lock().await.unwrap().leak();
        assert_eq!(lock.force_unlock().await, Ok(true));
        assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0, "{url}");
    }
}
