//! `Config::name_prefix` shows in the keys on the server, and in nothing else.

use std::collections::HashMap;

use redisson_lock::{AnyLock, Config, Error, LockClient, MultiLock, Owner, Released};
use testbed::Server;

use crate::hazards::stage::{connect, exists};

async fn client(server: &Server, prefix: &str) -> LockClient {
    connect(&server.url(), Config::default().with_name_prefix(prefix)).await
}

/// The name in an error.
fn name_in(error: &Error) -> &str {
    match error {
        Error::Lost { name, .. }
        | Error::NotHeld { name, .. }
        | Error::AlreadyHeld { name, .. }
        | Error::WrongKind { name, .. } => name,
        other => panic!("no name: {other:?}"),
    }
}

#[tokio::test]
async fn groups_return_the_names_that_the_caller_gave() {
    let server = Server::start().await;
    let client = client(&server, "billing:").await;
    let group = client.multi_fenced_lock(["b", "a"]);
    let guard = group.lock().await.unwrap();
    assert!(exists(&server, "billing:a").await && exists(&server, "billing:b").await);
    let names: Vec<_> = guard.names().map(|name| name.to_string()).collect();
    assert_eq!(names, ["a", "b"]);
    let tokens: HashMap<_, _> = guard.tokens().into_iter().collect();
    assert_eq!((tokens["a"], tokens.len()), (1, 2));
    assert_eq!(
        (guard.token_of("a"), guard.token_of("b")),
        (Some(1), Some(1))
    );
    assert_eq!(
        (guard.token_of("billing:a"), guard.token_of("c")),
        (None, None)
    );
    assert!(!format!("{group:?} {guard:?}").contains("billing:"));
    for (name, released) in guard.unlock_each().await {
        assert!(["a", "b"].contains(&&*name), "{name}");
        assert_eq!(released, Ok(Released::Fully));
    }
    let mixed = MultiLock::of([
        AnyLock::from(client.reentrant_lock("b")),
        client.fenced_lock("a").into(),
    ]);
    let guard = mixed.lock().await.unwrap();
    assert_eq!((guard.token_of("a"), guard.token_of("b")), (Some(2), None));
    guard.unlock().await.unwrap();
    let again = client.multi_fenced_lock(["b", "a", "b"]).lock().await;
    assert_eq!(again.unwrap().names().count(), 2);
}

/// The keys order the members of a group, because other processes may have other prefixes.
#[tokio::test]
async fn keys_order_the_members_of_a_group() {
    let server = Server::start().await;
    let (one, other) = (client(&server, "z:").await, client(&server, "b:").await);
    let group = MultiLock::of([one.reentrant_lock("a"), other.reentrant_lock("b")]);
    let guard = group.lock().await.unwrap();
    let names: Vec<_> = guard.names().map(|name| name.to_string()).collect();
    assert_eq!(names, ["b", "a"]);
    // One name, and two locks.
    let group = MultiLock::of([one.reentrant_lock("c"), other.reentrant_lock("c")]);
    assert_eq!(group.lock().await.unwrap().names().count(), 2);
}

#[tokio::test]
async fn errors_and_reports_say_the_names_that_the_caller_gave() {
    let server = Server::start().await;
    let client = client(&server, "app:").await;
    let (lock, owner) = (client.reentrant_lock("a"), Owner::new());
    let lock = lock.owned_by(&owner);
    assert_eq!((lock.name(), lock.key()), ("a", "app:a"));
    assert_eq!(name_in(&lock.unlock().await.unwrap_err()), "a");
    let guard = lock.lock().await.unwrap();
    assert_eq!((guard.name(), guard.key()), ("a", "app:a"));
    assert_eq!(&*client.holds()[0].name, "a");
    server.command::<u32>(&["DEL", "app:a"]).await;
    assert_eq!(name_in(&guard.unlock().await.unwrap_err()), "a");
    let () = server.command(&["SET", "app:b", "text"]).await;
    let wrong = client.reentrant_lock("b").try_lock().await.unwrap_err();
    assert_eq!(name_in(&wrong), "b");
    let simple = client.simple_lock("c").owned_by(&owner);
    let held = simple.lock().await.unwrap();
    assert_eq!(name_in(&simple.lock().await.unwrap_err()), "c");
    held.leak();
    let wrong = client.semaphore("c").acquire().await.unwrap_err();
    let say = format!("{wrong} {wrong:?}");
    assert!(!say.contains("app:"), "{say}");
    let (pool, expirable) = (
        client.semaphore("d"),
        client.permit_expirable_semaphore("e"),
    );
    let (latch, election) = (client.count_down_latch("f"), client.election("g"));
    let names = [pool.name(), expirable.name(), latch.name(), election.name()];
    assert_eq!(names, ["d", "e", "f", "g"]);
    let keys = [pool.key(), expirable.key(), latch.key()];
    assert_eq!(keys, ["app:d", "app:e", "app:f"]);
    assert!(pool.try_set_permits(1).await.unwrap() && latch.try_set_count(1).await.unwrap());
    assert!(exists(&server, pool.key()).await && exists(&server, latch.key()).await);
    let text = format!("{lock:?} {pool:?} {expirable:?} {latch:?} {election:?}");
    assert!(!text.contains("app:"), "{text}");
    let report = client.shutdown().await;
    let left: Vec<_> = report.unreleased.iter().map(|left| &*left.name).collect();
    assert_eq!(left, ["c"]);
}

/// Only the prefix makes the name too long.
#[tokio::test]
async fn an_error_of_a_prefix_says_so() {
    let server = Server::start().await;
    let client = client(&server, "app:").await;
    let error = client.reentrant_lock("x".repeat(65_535)).try_lock().await;
    let text = error.unwrap_err().to_string();
    assert!(text.contains("name_prefix"), "{text}");
    let longest = client.reentrant_lock("x".repeat(65_532));
    assert!(longest.try_lock().await.unwrap().is_some());
}
