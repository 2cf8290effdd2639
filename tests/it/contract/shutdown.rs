//! The end of a client.

use std::time::{Duration, Instant};

use redisson_lock::{Config, Error, LockClient, LostReason, Owner, Released};
use testbed::eventually;
use tokio::time::timeout;

use super::{
    Subject,
    bed::{Bed, NEVER, SOON, only_messages},
};

/// Counts the connections of lock clients to the server of the lock.
async fn connections<S: Subject>(bed: &Bed<S>) -> usize {
    let list: String = bed.ask(&["CLIENT", "LIST"]).await;
    list.lines()
        .filter(|line| line.contains("addr=127.0.0.1") && !line.contains("name=sentinel-"))
        .count()
}

/// The number of a client's connections: for scripts and for messages. On a cluster, the latter
/// exist only for nodes with subscriptions.
fn of_a_client<S: Subject>(bed: &Bed<S>, waits: bool) -> usize {
    match bed.server.ground().is_cluster() && !(waits && S::LISTENS) {
        true => 1,
        false => 2,
    }
}

/// All keys of the bed's own servers, except those that outlive every hold.
async fn keys_of_locks<S: Subject>(bed: &Bed<S>) -> Vec<String> {
    let mut keys = Vec::new();
    for server in bed.server.ground().masters() {
        keys.extend(server.command::<Vec<String>>(&["KEYS", "*"]).await);
    }
    let remains = S::remains(&bed.name);
    let remains = remains
        .as_deref()
        .and_then(|key| key.split_once(':'))
        .map(|(prefix, _)| prefix);
    keys.retain(|key| remains.is_none_or(|prefix| !key.starts_with(prefix)));
    keys.sort_unstable();
    keys
}

pub async fn dropped_guards_are_released_and_live_ones_reported<S: Subject>() {
    let bed = Bed::<S>::alone(Config::default()).await;
    let live = bed.lock.with_lease(NEVER).lock().await.unwrap();
    for number in 0..50 {
        let lock = S::lock(&bed.client, &format!("{}:{number}", bed.name));
        drop(lock.lock().await.unwrap());
    }
    let report = bed.client.shutdown().await;
    let left = keys_of_locks(&bed).await;
    assert_eq!(
        left,
        bed.keys_of_a_hold(Owner::current()),
        "only the live hold is left"
    );
    assert!(bed.pttl().await > 0);
    let [unreleased] = &report.unreleased[..] else {
        panic!("{report:?}");
    };
    assert_eq!((&*unreleased.name, unreleased.holds), (&*bed.name, 1));
    let owner = format!("{}:{}", bed.client.id(), Owner::current());
    assert_eq!(unreleased.owner.to_string(), owner);
    assert!(unreleased.until > Instant::now() + NEVER / 2);
    assert!(live.is_lost() && live.cancellation_token().is_cancelled());
    assert_eq!(live.lost().await, LostReason::Closed);
    let unlocked = timeout(SOON, live.unlock())
        .await
        .expect("the call ends in time");
    assert!(
        matches!(
            &unlocked,
            Err(Error::Closed
                | Error::Lost {
                    reason: LostReason::Closed,
                    ..
                })
        ),
        "{unlocked:?}"
    );
}

pub async fn nested_and_leaked_holds_are_counted<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let _outer = bed.lock.lock().await.unwrap();
    bed.lock.lock().await.unwrap().leak();
    let other = bed.lock.name().to_owned() + ":other";
    let other = S::lock(&bed.client, &other).owned_by(&Owner::new());
    other.lock().await.unwrap().leak();
    let report = bed.client.shutdown().await;
    let mut unreleased: Vec<_> = report
        .unreleased
        .iter()
        .map(|one| (&*one.name, one.holds))
        .collect();
    unreleased.sort_unstable();
    assert_eq!(unreleased, [(bed.lock.name(), 2), (other.name(), 1)]);
}

pub async fn every_operation_is_closed_afterwards<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let report = bed.client.shutdown().await;
    assert_eq!(report.unreleased, []);
    let lock = S::lock(&bed.client, &bed.name);
    assert_eq!(lock.lock().await.map(drop), Err(Error::Closed));
    assert_eq!(lock.try_lock().await.map(drop), Err(Error::Closed));
    assert_eq!(lock.try_lock_for(SOON).await.map(drop), Err(Error::Closed));
    assert_eq!(
        lock.with_lease(SOON).lock().await.map(drop),
        Err(Error::Closed)
    );
    assert_eq!(lock.run(async |_| ()).await, Err(Error::Closed));
    assert_eq!(lock.unlock().await, Err(Error::Closed));
    assert_eq!(lock.force_unlock().await, Err(Error::Closed));
    assert_eq!(lock.is_locked().await, Err(Error::Closed));
    assert_eq!(lock.is_held().await, Err(Error::Closed));
    assert_eq!(lock.hold_count().await, Err(Error::Closed));
    assert_eq!(lock.remaining_lease().await, Err(Error::Closed));
    assert_eq!(lock.name(), bed.name, "the name needs no server");
}

pub async fn waiters_end_with_an_error_when_the_client_closes<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let other_client = bed.another_client().await;
    let guard = bed.lock.lock().await.unwrap();
    let waiters = [None, Some(NEVER)].map(|wait| {
        let lock = bed.rival_of(&other_client);
        tokio::spawn(async move {
            match wait {
                None => lock.lock().await.map(drop),
                Some(wait) => lock.try_lock_for(wait).await.map(drop),
            }
        })
    });
    bed.awaited().await;
    assert_eq!(other_client.shutdown().await.unreleased, []);
    for waiter in waiters {
        let answered = timeout(SOON, waiter).await.expect("the waiter is notified");
        assert_eq!(answered.unwrap(), Err(Error::Closed));
    }
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

pub async fn shutdown_closes_all_connections<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let guard = bed.lock.lock().await.unwrap();
    let client = bed.another_client().await;
    let lock = bed.rival_of(&client);
    let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
    bed.awaited().await;
    let (idle, waiting) = (of_a_client(&bed, false), of_a_client(&bed, true));
    let both = async || connections(&bed).await == idle + waiting;
    eventually("both clients are connected", SOON, both).await;
    client.shutdown().await;
    waiter.await.unwrap().unwrap_err();
    let gone = async || connections(&bed).await == idle && bed.channels().await.is_empty();
    eventually("one client's connections are closed", SOON, gone).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    bed.client.shutdown().await;
    let gone = async || connections(&bed).await == 0;
    eventually("all connections are closed", SOON, gone).await;
    assert_eq!(bed.channels().await, [""; 0]);
    assert_eq!(keys_of_locks(&bed).await, [""; 0]);
}

pub async fn shutdown_may_be_called_again<S: Subject>() {
    let bed = Bed::<S>::new().await;
    let _live = bed.lock.lock().await.unwrap();
    let clone = bed.client.clone();
    let (one, other) = tokio::join!(bed.client.shutdown(), clone.shutdown());
    assert_eq!(
        one.unreleased.len() + other.unreleased.len(),
        1,
        "reported more than once: {one:?} {other:?}"
    );
    let third = timeout(SOON, bed.client.shutdown())
        .await
        .expect("the call ends in time");
    assert_eq!(third.unreleased, []);
}

pub async fn clones_end_together_and_other_clients_go_on<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let other = bed.another_client().await;
    assert_ne!(other.id(), bed.client.id());
    let clone = bed.client.clone();
    assert_eq!(clone.id(), bed.client.id());
    clone.shutdown().await;
    assert_eq!(bed.lock.try_lock().await.map(drop), Err(Error::Closed));
    assert!(
        S::lock(&other, &bed.name)
            .try_lock()
            .await
            .unwrap()
            .is_some()
    );
}

pub async fn the_last_clone_releases_and_disconnects<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let client = bed.another_client().await;
    for number in 0..20 {
        let lock = S::lock(&client, &format!("{}:{number}", bed.name));
        drop(lock.lock().await.unwrap());
    }
    let clone = client.clone();
    drop(client);
    let idle = of_a_client(&bed, false);
    let both = async || connections(&bed).await == 2 * idle;
    eventually("both clients are connected", SOON, both).await;
    drop(clone);
    let gone = async || connections(&bed).await == idle;
    eventually("the client's connections are closed", SOON, gone).await;
    assert_eq!(
        keys_of_locks(&bed).await,
        [""; 0],
        "the dropped guards are released"
    );
}

pub async fn locks_and_guards_keep_the_client_going<S: Subject>() {
    let bed = Bed::<S>::alone(only_messages()).await;
    let client: LockClient = bed.another_client().await;
    let lock = S::lock(&client, &bed.name);
    drop(client);
    let guard = lock.lock().await.unwrap();
    drop(lock);
    assert!(!guard.is_lost());
    let rival = bed.rival_same_client();
    let short = Duration::from_millis(1);
    let waits = async || matches!(rival.try_lock_for(short).await, Ok(None));
    eventually("the rival waits", SOON, waits).await;
    drop(rival);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let waiting = of_a_client(&bed, true);
    let gone = async || connections(&bed).await == waiting;
    eventually("the client ends with its last guard", SOON, gone).await;
}

/// The client's tasks end with the runtime that it was built on. Its calls return errors.
pub async fn a_client_without_its_runtime_answers<S: Subject>() {
    let bed = Bed::<S>::new().await;
    for used in [true, false] {
        let client = made_on_a_runtime_that_is_gone(&bed, used).await;
        let lock = S::lock(&client, &bed.name);
        let locked = timeout(SOON, lock.try_lock())
            .await
            .expect("the call ends in time");
        let refused = matches!(locked, Err(Error::RuntimeEnded));
        assert!(refused, "{:?}", locked.map(drop));
        let closed = timeout(SOON, client.shutdown()).await;
        closed.unwrap_or_else(|_| panic!("the shutdown does not end (used before: {used})"));
    }
}

async fn made_on_a_runtime_that_is_gone<S: Subject>(bed: &Bed<S>, used: bool) -> LockClient {
    let (url, name, mut config) = (bed.url.clone(), bed.name.clone(), bed.config.clone());
    config.command_wait = Duration::from_millis(200);
    let made = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let builder = LockClient::builder().url(url).config(config);
            let client = builder.build().await.unwrap();
            if used {
                let lock = S::lock(&client, &name);
                lock.run(async |_| ()).await.unwrap();
            }
            client
        })
    });
    let made = tokio::task::spawn_blocking(|| made.join()).await.unwrap();
    made.unwrap()
}
