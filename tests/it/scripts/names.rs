//! Names with braces and with characters beyond ASCII (P-T9, P-W8).

use redisson_lock::{Config, LockClient, Released};
use testbed::{Server, eventually};

use super::{Listener, SOON};

/// A client whose waiters are woken only by messages.
async fn patient(server: &Server) -> LockClient {
    let mut config = Config::default();
    config.watchdog_lease = 30 * SOON;
    config.max_poll_interval = 30 * SOON;
    let builder = LockClient::builder().url(server.url()).config(config);
    builder.build().await.unwrap()
}

async fn listeners(server: &Server, channel: &str) -> u32 {
    let (_, count): (String, u32) = server.command(&["PUBSUB", "NUMSUB", channel]).await;
    count
}

/// Waits until `waiters` were refused before and after they subscribed, since the counters were
/// reset.
async fn parked(server: &Server, waiters: u64) {
    let tried = async || server.calls().await.get("pttl") >= Some(&(2 * waiters));
    eventually("the waiters are parked", SOON, tried).await;
}

#[tokio::test]
async fn every_name_is_the_key_and_wakes_its_waiters() {
    let server = Server::start().await;
    let (holder, waiter) = (patient(&server).await, patient(&server).await);
    for (name, channel) in [
        ("order:42", "redisson_lock__channel:{order:42}"),
        ("a b  c", "redisson_lock__channel:{a b  c}"),
        ("a{b", "redisson_lock__channel:a{b"),
        ("a}b", "redisson_lock__channel:{a}b}"),
        ("{}x", "redisson_lock__channel:{}x"),
        ("x{a}{b}", "redisson_lock__channel:x{a}{b}"),
        ("Gebühr 🔒 锁", "redisson_lock__channel:{Gebühr 🔒 锁}"),
        ("%s'\"\\*?[x]", "redisson_lock__channel:{%s'\"\\*?[x]}"),
        ("-1", "redisson_lock__channel:{-1}"),
    ] {
        let guard = holder.reentrant_lock(name).lock().await.unwrap();
        assert_eq!(server.command::<Vec<String>>(&["KEYS", "*"]).await, [name]);
        server.reset_calls().await;
        let lock = waiter.reentrant_lock(name);
        let waits = tokio::spawn(async move { lock.lock().await.unwrap().unlock().await });
        parked(&server, 1).await;
        assert_eq!(listeners(&server, channel).await, 1, "{name}");
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        let entered = tokio::time::timeout(SOON, waits).await;
        let entered = entered.unwrap_or_else(|_| panic!("{name}: the waiter was not woken"));
        assert_eq!(entered.unwrap(), Ok(Released::Fully));
        assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
    }
}

/// Two locks that share a channel.
#[tokio::test]
async fn a_name_and_the_same_in_braces_wake_each_their_own() {
    let server = Server::start().await;
    let (holder, waiter) = (patient(&server).await, patient(&server).await);
    for names in [["a", "{a}"], ["{a}", "a"]] {
        let mut guards = Vec::new();
        for name in names {
            let guard = holder.reentrant_lock(name).try_lock().await.unwrap();
            guards.push(guard.expect("the two names are different locks"));
        }
        server.reset_calls().await;
        let mut waits = Vec::new();
        for name in names {
            let lock = waiter.reentrant_lock(name);
            waits.push(tokio::spawn(async move { lock.lock().await }));
        }
        parked(&server, 2).await;
        assert_eq!(listeners(&server, "redisson_lock__channel:{a}").await, 1);
        for (guard, wait) in guards.into_iter().zip(waits) {
            assert!(!wait.is_finished(), "the waiter acquired a held lock");
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
            let entered = tokio::time::timeout(SOON, wait)
                .await
                .expect("a message wakes the waiter");
            let guard = entered.unwrap().unwrap();
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
        }
        let deaf = async || listeners(&server, "redisson_lock__channel:{a}").await == 0;
        eventually("no client subscribes any more", SOON, deaf).await;
    }
}

#[tokio::test]
async fn a_release_is_announced_on_redissons_channel() {
    let server = Server::start().await;
    let client = LockClient::connect(&server.url()).await.unwrap();
    for (name, channel) in [
        ("order:42", "redisson_lock__channel:{order:42}"),
        ("a:{b}", "redisson_lock__channel:a:{b}"),
        ("{b}:a", "redisson_lock__channel:{b}:a"),
        ("a{b", "redisson_lock__channel:a{b"),
    ] {
        let mut listener = Listener::on(&server, channel).await;
        let guard = client.reentrant_lock(name).lock().await.unwrap();
        assert_eq!(listener.messages().await, [""; 0]);
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        assert_eq!(listener.messages().await, ["0"], "{name}");
    }
}
