//! The commands that a client sends for its locks, also when the server has lost the scripts.

use redisson_lock::{Config, LockClient, Released};
use testbed::{Proxy, Server, eventually};

use super::{LOCK, SOON};

async fn pair(client: &LockClient) {
    let guard = client.reentrant_lock(LOCK).lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// One script per lock and one per unlock, and no other command.
#[tokio::test]
async fn two_scripts_and_nothing_else() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let client = LockClient::connect(&proxy.url()).await.unwrap();
    pair(&client).await;
    server.reset_calls().await;
    let before = proxy.faults().requests();
    for _ in 0..100 {
        pair(&client).await;
    }
    let requests = proxy.faults().requests() - before;
    let calls = server.calls().await;
    assert_eq!(calls.get("evalsha"), Some(&200), "{calls:?}");
    let further = requests - 200;
    let pings = calls.get("ping").copied().unwrap_or(0);
    assert_eq!(
        further, pings,
        "a command besides scripts and PINGs: {calls:?}"
    );
    assert!(pings <= 10, "{calls:?}");
    for unwanted in [
        "eval",
        "subscribe",
        "unsubscribe",
        "set",
        "exists",
        "script|load",
    ] {
        assert!(!calls.contains_key(unwanted), "{calls:?}");
    }
}

#[tokio::test]
async fn a_script_is_sent_in_full_once() {
    let server = Server::start().await;
    let client = LockClient::connect(&server.url()).await.unwrap();
    server.reset_calls().await;
    for _ in 0..10 {
        pair(&client).await;
    }
    let calls = server.calls().await;
    assert_eq!(
        (calls.get("eval"), calls.get("evalsha")),
        // The third one asks whether scripts may publish.
        (Some(&3), Some(&20)),
        "{calls:?}"
    );
}

/// P-T1, for every operation.
#[tokio::test]
async fn forgotten_scripts_are_sent_again() {
    let server = Server::start().await;
    let client = LockClient::connect(&server.url()).await.unwrap();
    let lock = client.reentrant_lock(LOCK);
    let forget = async || server.command::<()>(&["SCRIPT", "FLUSH"]).await;
    for _ in 0..5 {
        forget().await;
        let outer = lock.lock().await.unwrap();
        forget().await;
        let inner = lock.try_lock().await.unwrap().expect("the owner re-enters");
        forget().await;
        assert_eq!(lock.hold_count().await, Ok(2));
        forget().await;
        assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
        forget().await;
        assert_eq!(lock.force_unlock().await, Ok(true));
        assert!(outer.is_lost());
        forget().await;
        drop(lock.lock().await.unwrap());
        forget().await;
        let free = async || server.command::<u32>(&["DBSIZE"]).await == 0;
        eventually("a dropped guard is released", SOON, free).await;
    }
}

#[tokio::test]
async fn renewals_cope_with_forgotten_scripts_too() {
    let server = Server::start().await;
    let mut config = Config::default();
    config.watchdog_lease = std::time::Duration::from_secs(3);
    let builder = LockClient::builder().url(server.url()).config(config);
    let client = builder.build().await.unwrap();
    let guard = client.reentrant_lock(LOCK).lock().await.unwrap();
    for _ in 0..2 {
        server.command::<()>(&["SCRIPT", "FLUSH"]).await;
        let before = guard.valid_until();
        let renewed = async || guard.valid_until() > before;
        eventually("the lease is renewed", SOON, renewed).await;
    }
    assert!(!guard.is_lost());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
