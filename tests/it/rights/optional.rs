//! Rights that a user may go without, and the cost: each makes a feature worse and breaks nothing.

use std::{collections::BTreeSet, time::Duration};

use redisson_lock::{Config, Error, JobOutcome, LockClient, Owner, Released};
use testbed::{Server, eventually};
use tokio::time::timeout;

use super::{admit_with, all_rights, rights};

const SURE: Duration = Duration::from_secs(20);
const NAME: &str = "app:42";

/// The commands, keys and channels that the server has refused, by its ACL log.
async fn refused(server: &Server) -> BTreeSet<String> {
    let log: Vec<std::collections::HashMap<String, String>> = server.command(&["ACL", "LOG"]).await;
    log.into_iter()
        .filter_map(|mut entry| entry.remove("object"))
        .collect()
}

async fn connect(url: &str) -> LockClient {
    let mut config = Config::default();
    config.max_poll_interval = 30 * SURE;
    config.watchdog_lease = 30 * SURE;
    let builder = LockClient::builder().url(url).config(config);
    builder.build().await.expect("the user may connect")
}

/// A hold and a waiter live on while all connections are killed.
async fn lives_on(server: &Server, url: &str) {
    let (holder, waiter) = (connect(url).await, connect(url).await);
    let guard = holder.reentrant_lock(NAME).lock().await.unwrap();
    let lock = waiter.reentrant_lock(NAME);
    let waiting = tokio::spawn(async move { lock.lock().await?.unlock().await });
    let listens = async || {
        let channels: Vec<String> = server.command(&["PUBSUB", "CHANNELS"]).await;
        channels.len() == 1
    };
    eventually("the task waits", SURE, listens).await;
    for connections in ["normal", "pubsub"] {
        let kill = ["CLIENT", "KILL", "TYPE", connections, "SKIPME", "yes"];
        server.command::<u32>(&kill).await;
    }
    eventually("the task waits again", SURE, listens).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let entered = timeout(SURE, waiting)
        .await
        .expect("a message wakes the waiter");
    assert_eq!(entered.unwrap(), Ok(Released::Fully));
}

/// The client kills its broken connection before it repeats a request, if it may ask for the
/// connection's id and kill it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_rights_of_connections_old_ones_are_not_killed() {
    for (granted, kills, refusals) in [
        (&["client|info", "client|kill"] as &[_], true, &[] as &[_]),
        (&["client|info"], false, &["client|kill"]),
        (&["client|kill"], false, &["client|info"]),
        (&[], false, &["client|info"]),
    ] {
        let server = Server::start().await;
        let mut all = all_rights(&["reentrant"]);
        all.push("+client|setname".to_owned());
        all.extend(granted.iter().map(|command| format!("+{command}")));
        let url = admit_with(&server, "app", &all).await;
        server.reset_calls().await;
        lives_on(&server, &url).await;
        let refused = refused(&server).await;
        assert_eq!(refused.iter().collect::<Vec<_>>(), refusals, "{granted:?}");
        // The test itself sends two.
        let calls = server.calls().await;
        let killed = calls.get("client|kill") > Some(&2);
        assert_eq!(killed, kills, "{granted:?}: {calls:?}");
    }
}

#[tokio::test]
async fn without_the_right_to_type_an_error_does_not_name_the_type() {
    for (right, said) in [("+type", "list"), ("-type", "another type")] {
        let server = Server::start().await;
        let mut all = all_rights(&["reentrant"]);
        all.push(right.to_owned());
        let url = admit_with(&server, "app", &all).await;
        server.command::<()>(&["RPUSH", NAME, "1"]).await;
        let error = connect(&url).await.reentrant_lock(NAME).lock().await;
        match error.map(drop) {
            Err(Error::WrongKind { found, .. }) => assert_eq!(found, said),
            other => panic!("{right}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn without_its_commands_only_force_unlock_fails() {
    let server = Server::start().await;
    let mut all = all_rights(&["reentrant"]);
    all.retain(|right| !["+exists", "+hexists"].contains(&&**right));
    let url = admit_with(&server, "app", &all).await;
    let client = connect(&url).await;
    let lock = client.reentrant_lock(NAME);
    let guard = lock.lock().await.unwrap();
    let forced = lock.force_unlock().await;
    assert!(matches!(forced, Err(Error::Redis { .. })), "{forced:?}");
    assert_eq!(lock.is_held().await, Ok(true));
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

#[tokio::test]
async fn without_its_command_only_the_end_of_a_job_is_late() {
    let server = Server::start().await;
    let mut all = all_rights(&["reentrant"]);
    all.retain(|right| right != "+hdel");
    let url = admit_with(&server, "app", &all).await;
    let client = connect(&url).await;
    let lock = client.reentrant_lock(NAME);
    assert_eq!(lock.run(async |_| 7).await, Ok(7));
    let ran = lock.run_at_least(30 * SURE, async |_| 8).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(8)));
    let seen = lock.run_at_least(SURE, async |_| 9).await;
    assert!(matches!(seen, Ok(JobOutcome::Done { .. })), "{seen:?}");
    assert!(refused(&server).await.contains("hdel"));
}

/// The client uses no right that is not on the page. A group needs no more than its members.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_uses_no_right_that_is_not_on_the_page() {
    let server = Server::start().await;
    let all = [all_rights(&["reentrant"]), rights("optional")].concat();
    let url = admit_with(&server, "app", &all).await;
    lives_on(&server, &url).await;
    let client = connect(&url).await;
    let names = ["app:1", "app:2", "app:3"];
    let group = client.multi_lock(names);
    let guard = group.lock().await.unwrap();
    let other = client.multi_lock(names).owned_by(&Owner::new());
    assert!(other.try_lock().await.unwrap().is_none());
    guard.unlock().await.unwrap();
    let guard = client.red_lock(names).lock().await.unwrap();
    guard.unlock().await.unwrap();
    client.ping().await.unwrap();
    client.shutdown().await;
    assert_eq!(refused(&server).await, BTreeSet::new());
}

#[tokio::test]
async fn another_database_has_to_be_chosen() {
    let server = Server::start().await;
    for part in [None, Some("another database")] {
        let parts: Vec<_> = ["reentrant"].into_iter().chain(part).collect();
        let url = admit_with(&server, "app", &all_rights(&parts)).await + "/3";
        let connected = LockClient::connect(&url).await;
        assert_eq!(connected.is_ok(), part.is_some(), "{connected:?}");
        if let Ok(client) = connected {
            let guard = client.reentrant_lock(NAME).lock().await.unwrap();
            let elsewhere: u32 = server.command(&["EXISTS", NAME]).await;
            assert_eq!(elsewhere, 0);
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
        }
    }
}
