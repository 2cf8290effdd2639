//! The client's reports about itself and its holds.

use std::time::Duration;

use redisson_lock::{Config, Durability, Error, Guard, LockClient, Owner, blocking, kind};
use testbed::{Clustered, Server, eventually};

/// The limit for steps that take milliseconds.
const SOON: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_client_lists_its_holds_with_their_validity() {
    let server = Server::start().await;
    let config = Config::default().with_name_prefix("app:");
    let builder = LockClient::builder().url(server.url()).config(config);
    let client = builder.build().await.unwrap();
    assert_eq!(client.holds(), []);
    let (one, other) = (Owner::new(), Owner::new());
    let lock = client.reentrant_lock("a");
    let outer = lock.owned_by(&one).lock().await.unwrap();
    let inner = lock.owned_by(&one).lock().await.unwrap();
    assert_eq!((outer.name(), outer.owner()), ("a", one));
    let reads = client.read_write_lock("b");
    let first = reads.read().owned_by(&one).lock().await.unwrap();
    let second = reads.read().owned_by(&other).lock().await.unwrap();
    let listed = || {
        let holds = client.holds();
        assert!(holds.is_sorted_by_key(|held| held.since));
        assert!(holds.iter().all(|held| held.valid_until > held.since));
        let mut listed: Vec<_> = holds
            .iter()
            .map(|held| (held.name.to_string(), held.owner.owner(), held.holds))
            .collect();
        listed.sort_by_key(|(name, owner, _)| (name.clone(), *owner != one));
        listed
    };
    let (a, b) = ("a".to_owned(), "b".to_owned());
    let all = [
        (a.clone(), one, 2),
        (b.clone(), one, 1),
        (b.clone(), other, 1),
    ];
    assert_eq!(listed(), all);
    // The server shows the same owner.
    let shown = client.holds()[0].owner.to_string();
    assert_eq!(server.command::<u32>(&["HGET", "app:a", &shown]).await, 2);
    inner.leak();
    assert_eq!(listed(), all);
    drop(first);
    assert_eq!(listed(), [(a.clone(), one, 2), (b.clone(), other, 1)]);
    // The client removes a lost hold once it learns of the loss.
    client
        .read_write_lock("b")
        .read()
        .force_unlock()
        .await
        .unwrap();
    assert_eq!(listed(), [(a, one, 2)]);
    drop((outer, second));
    lock.owned_by(&one).unlock().await.unwrap();
    eventually("all is released", SOON, async || client.holds().is_empty()).await;
}

/// A hand-off within the client starts a new hold.
#[tokio::test]
async fn a_hold_belongs_to_its_own_owner() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    let lock = client.reentrant_lock("a");
    let (one, other) = (Owner::new(), Owner::new());
    let guard = lock.owned_by(&one).lock().await.unwrap();
    let since = client.holds()[0].since;
    let waiter = lock.owned_by(&other);
    let (next, _) = tokio::join!(waiter.lock(), async {
        tokio::task::yield_now().await;
        guard.unlock().await.unwrap()
    });
    let next = next.unwrap();
    assert_eq!(next.owner(), other);
    let holds = client.holds();
    assert_eq!((holds.len(), holds[0].owner.owner()), (1, other));
    assert!(holds[0].since > since);
    next.unlock().await.unwrap();
}

#[tokio::test]
async fn a_client_knows_whether_it_is_connected() {
    let mut config = Config::default();
    config.command_wait = Duration::from_millis(200);
    let server = Server::start().await;
    let builder = LockClient::builder().url(server.url()).config(config);
    let client = builder.build().await.unwrap();
    assert!(client.is_connected());
    server.kill();
    eventually("the client is not connected", SOON, async || {
        !client.is_connected()
    })
    .await;
    server.restart().await;
    eventually("the client is connected again", SOON, async || {
        client.is_connected()
    })
    .await;

    let cluster = Clustered::start().await;
    let client = LockClient::connect(cluster.url()).await.unwrap();
    eventually("the client is connected to all masters", SOON, async || {
        client.is_connected()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_blocking_client_lists_its_holds_too() {
    let server = Server::start().await;
    let url = server.url();
    let program = move || {
        let client = blocking::LockClient::connect(url).unwrap();
        let owner = Owner::new();
        let lock = client.reentrant_lock("a").owned_by(&owner);
        let guard = lock.lock().unwrap();
        assert!(client.is_connected());
        assert_eq!(client.holds().len(), 1);
        assert_eq!((guard.name(), guard.owner()), ("a", owner));
        guard.unlock().unwrap();
        assert_eq!(client.holds(), []);
    };
    tokio::task::spawn_blocking(program).await.unwrap();
}

/// Callers ask whether to go on, retry or give up.
#[tokio::test]
async fn an_error_says_what_to_do() {
    let server = Server::start().await;
    let config = Config::default()
        .with_command_wait(Duration::from_millis(200))
        .with_outage_wait(Duration::from_millis(200));
    let builder = LockClient::builder().url(server.url()).config(config);
    let hasty = builder.await.unwrap();
    let client = LockClient::connect(server.url()).await.unwrap();
    let lock = client.fair_lock("a");
    let answers = |error: &Error| {
        (
            error.is_lost(),
            error.is_unavailable(),
            error.is_retryable(),
        )
    };
    let guard: Guard<kind::Fair> = lock.lock().await.unwrap();
    lock.force_unlock().await.unwrap();
    assert_eq!(
        answers(&guard.unlock().await.unwrap_err()),
        (true, false, false)
    );
    let error = client.fair_lock("").lock().await.unwrap_err();
    assert_eq!(answers(&error), (false, false, false));
    let durable = client
        .fair_lock("b")
        .with_durability(Durability::Replicas(1));
    let error = durable.lock().await.unwrap_err();
    assert_eq!(answers(&error), (false, false, true), "{error}");
    server.kill();
    assert_eq!(
        answers(&hasty.fair_lock("a").lock().await.unwrap_err()),
        (false, true, true)
    );
}

/// The names of all connections to the server but the test's own.
async fn names(server: &Server) -> Vec<String> {
    let clients: String = server.command(&["CLIENT", "LIST"]).await;
    let name = |line: &str| {
        let mut words = line.split(' ');
        let name = words.find_map(|word| word.strip_prefix("name="));
        name.filter(|name| !name.is_empty()).map(str::to_owned)
    };
    clients.lines().filter_map(name).collect()
}

#[tokio::test]
async fn a_server_shows_which_client_a_connection_is_of() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).await.unwrap();
    let id = client.id().to_string();
    let default = names(&server).await;
    // One for scripts and one for messages.
    assert_eq!(default.len(), 2, "{default:?}");
    let of_this_process = format!("-{}@", std::process::id());
    let is_default = |name: &String| {
        name.starts_with("it")
            && name.contains(&of_this_process)
            && name.ends_with(&format!("/{id}"))
    };
    assert!(default.iter().all(is_default), "{default:?}");
    client.shutdown().await;
    let named = |name: &str| Config::default().with_client_name(name);
    let building = |name| {
        LockClient::builder()
            .url(server.url())
            .config(named(name))
            .build()
    };
    let client = building("orders").await.unwrap();
    // The client's id is the first part of each of its owners.
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let held: Vec<String> = server.command(&["HKEYS", "a"]).await;
    let id = held[0].split(':').next().unwrap();
    let shown = [format!("orders/{id}"), format!("orders/{id}")];
    eventually("the old connections are closed", SOON, async || {
        names(&server).await == shown
    })
    .await;
    guard.unlock().await.unwrap();
    let long = "x".repeat(129);
    for bad in ["two words", "a\nb", "ümlaut", &long] {
        let error = building(bad).await.unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error}");
    }
}

/// The loss of a tenure concerns only the holds that it still has.
#[tokio::test]
async fn token_of_a_released_hold_is_not_cancelled_by_a_later_loss() {
    let server = Server::start().await;
    for own_runtime in [false, true] {
        // The readers share one tenure.
        let config = Config::default().with_local_hand_off(SOON);
        let client = LockClient::builder().url(server.url()).config(config);
        let client = client.own_runtime(own_runtime).build().await.unwrap();
        let lock = client.reentrant_lock("a");
        let outer = lock.lock().await.unwrap();
        let inner = lock.lock().await.unwrap();
        let reads = client.read_write_lock("b");
        let reader = |owner: &Owner| reads.read().owned_by(owner);
        let first = reader(&Owner::new()).lock().await.unwrap();
        let second = reader(&Owner::new()).lock().await.unwrap();
        let released = [inner.cancellation_token(), first.cancellation_token()];
        let lost = [outer.cancellation_token(), second.cancellation_token()];
        inner.unlock().await.unwrap();
        first.unlock().await.unwrap();

        lock.force_unlock().await.unwrap();
        reads.read().force_unlock().await.unwrap();
        eventually("the other tokens are cancelled", SOON, async || {
            lost.iter().all(|token| token.is_cancelled())
        })
        .await;
        assert!(!released.iter().any(|token| token.is_cancelled()));
        assert!(outer.is_lost() && second.is_lost());
    }
}
