//! One name, two kinds (P-A8). Data of another kind is refused and left alone. Data of this kind is
//! a lock, whichever client wrote it.

use std::time::Duration;

use redisson_lock::{Error, Owner, Released};
use tokio::time::timeout;

use super::{
    Subject,
    bed::{Bed, NEVER, SOON, assert_gone, only_messages},
    subjects::{
        Fair, Fenced, NonReentrant, NonReentrantFair, Read, Reentrant, Simple, Spin, Write,
    },
};

/// Kinds of one family have the same data, so each accepts the data of the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Plain,
    ReadWrite,
    Simple,
    /// Data of no lock.
    None,
}

fn family<S: Subject>() -> Family {
    match (S::TYPE, S::MODE) {
        ("string", _) => Family::Simple,
        (_, Some(_)) => Family::ReadWrite,
        _ => Family::Plain,
    }
}

/// Data that may be under a name: its family, and the command that writes it, without the name.
/// `US` is the owner that tries.
const SHAPES: &[(Family, &str, &[&str])] = &[
    (Family::Simple, "SET", &["1"]),
    (Family::Simple, "SET", &[US]),
    (Family::Simple, "SETRANGE", &["3", "\r\n"]),
    (Family::Simple, "PFADD", &["element"]),
    (Family::None, "RPUSH", &[US]),
    (Family::None, "SADD", &[US]),
    (Family::None, "ZADD", &["1", US]),
    (Family::None, "XADD", &["1-1", US, "1"]),
    (Family::Plain, "HSET", &["another:1", "1"]),
    (Family::Plain, "HSET", &[US, "1"]),
    (Family::Plain, "HSET", &[US, "1", US_WRITING, "1"]),
    (Family::Plain, "HSET", &["colour", "red"]),
    (
        Family::ReadWrite,
        "HSET",
        &["mode", "read", "another:1", "1"],
    ),
    (Family::ReadWrite, "HSET", &["mode", "read", US, "1"]),
    (
        Family::ReadWrite,
        "HSET",
        &["mode", "write", US_WRITING, "1"],
    ),
    (
        Family::ReadWrite,
        "HSET",
        &["mode", "write", US_WRITING, "1", US, "1"],
    ),
    (
        Family::ReadWrite,
        "HSET",
        &["mode", "write", "another:1:write", "1", "another:1", "1"],
    ),
    (Family::ReadWrite, "HSET", &["mode", "odd", US, "1"]),
];

const US: &str = "<us>";
const US_WRITING: &str = "<us>:write";

fn foreign_to<S: Subject>() -> impl Iterator<Item = (&'static str, &'static [&'static str])> {
    let foreign = SHAPES.iter().filter(|(of, ..)| *of != family::<S>());
    foreign.map(|(_, command, words)| (*command, *words))
}

/// Writes the data under the name, with an expiry that shows any change of it.
async fn put<S: Subject>(bed: &Bed<S>, command: &str, words: &[&str], us: &str) {
    let words: Vec<_> = words.iter().map(|word| word.replace(US, us)).collect();
    // One transaction: a waiter must not find the lock free in between.
    let mut moment = redis::pipe();
    moment.atomic().del(&bed.name).ignore();
    moment.cmd(command).arg(&bed.name).arg(words).ignore();
    moment.pexpire(&bed.name, 600_000).ignore();
    let mut admin = bed.server.admin().await;
    moment.query_async::<()>(&mut admin).await.expect(command);
}

/// All keys of the name, its value and its expiry.
async fn snapshot<S: Subject>(bed: &Bed<S>) -> (Vec<String>, Vec<u8>, i64) {
    (
        bed.all_keys().await,
        bed.ask(&["DUMP", &bed.name]).await,
        bed.ask(&["PEXPIRETIME", &bed.name]).await,
    )
}

fn is_wrong<T>(answer: Result<T, Error>, lock: &str) -> bool {
    matches!(answer, Err(Error::WrongKind { name, .. }) if *name == *lock)
}

/// Each operation that meets the data returns an error, and none changes the data.
async fn is_refused<S: Subject>(bed: &Bed<S>, owner: Owner) {
    let before = snapshot(bed).await;
    let (lock, name) = (bed.lock.owned_by(&owner), bed.name.as_str());
    assert!(is_wrong(lock.try_lock().await, name));
    assert!(is_wrong(lock.lock().await, name));
    assert!(is_wrong(lock.try_lock_for(SOON).await, name));
    assert!(is_wrong(lock.with_lease(SOON).lock().await, name));
    assert!(is_wrong(lock.run(async |_| ()).await, name));
    assert!(is_wrong(lock.force_unlock().await, name));
    assert!(is_wrong(lock.is_locked().await, name));
    assert!(is_wrong(lock.is_held().await, name));
    assert!(is_wrong(lock.hold_count().await, name));
    assert!(is_wrong(lock.remaining_lease().await, name));
    assert!(is_wrong(lock.holders().await, name));
    let unlocked = lock.unlock().await;
    assert!(
        matches!(unlocked, Err(Error::NotHeld { .. })),
        "{unlocked:?}"
    );
    assert_eq!(snapshot(bed).await, before);
}

pub async fn data_of_another_kind_is_refused_and_left_alone<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let owner = Owner::new();
    for (command, words) in foreign_to::<S>() {
        println!("{command} {words:?}");
        put(&bed, command, words, &bed.owner(owner)).await;
        is_refused(&bed, owner).await;
    }
}

/// Odd data of this kind is a lock too, held or free.
pub async fn no_data_of_this_kind_is_refused<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let owner = Owner::new();
    let lock = bed.lock.owned_by(&owner);
    for (of, command, words) in SHAPES {
        if *of != family::<S>() {
            continue;
        }
        let shape = format!("{command} {words:?}");
        let ours = words.iter().any(|word| word.starts_with(US));
        put(&bed, command, words, &bed.owner(owner)).await;
        let before = snapshot(&bed).await;
        lock.is_locked().await.expect(&shape);
        lock.hold_count().await.expect(&shape);
        lock.remaining_lease().await.expect(&shape);
        match lock.try_lock().await.expect(&shape) {
            Some(guard) => {
                assert!(ours || S::SHARED, "{shape} belongs to another owner");
                assert_eq!(guard.unlock().await, Ok(Released::Fully), "{shape}");
            }
            None => assert_eq!(snapshot(&bed).await, before, "{shape}"),
        }
        put(&bed, command, words, &bed.owner(owner)).await;
        lock.force_unlock().await.expect(&shape);
    }
}

/// A foreign command overwrites a held lock. The hold is lost, and the new data stays.
pub async fn foreign_data_that_replaced_a_held_lock_is_left_alone<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    let owner = Owner::new();
    let lock = bed.lock.owned_by(&owner);
    for (command, words) in foreign_to::<S>() {
        println!("{command} {words:?}");
        bed.ask::<()>(&["DEL", &bed.name]).await;
        let guard = lock.lock().await.unwrap();
        put(&bed, command, words, &bed.owner(owner)).await;
        let before = snapshot(&bed).await;
        let unlocked = guard.unlock().await;
        assert_gone(&unlocked);
        assert_eq!(snapshot(&bed).await, before);
        // A dropped guard reports no error. The next call returns after its release.
        bed.ask::<()>(&["DEL", &bed.name]).await;
        drop(lock.lock().await.unwrap());
        put(&bed, command, words, &bed.owner(owner)).await;
        let before = snapshot(&bed).await;
        assert!(is_wrong(lock.try_lock().await, &bed.name));
        assert_eq!(snapshot(&bed).await, before);
    }
}

pub async fn a_waiter_gets_an_error_when_foreign_data_replaces_the_lock<S: Subject>() {
    let mut config = only_messages();
    config.max_poll_interval = Duration::from_millis(100);
    let bed = Bed::<S>::with(config).await;
    bed.hold_as::<S::Rival>("another:1").await;
    let lock = bed.lock.clone();
    let waiter = tokio::spawn(async move { lock.lock().await.map(drop) });
    bed.awaited().await;
    put(&bed, "RPUSH", &["odd"], "").await;
    let refused = timeout(SOON, waiter).await.expect("the waiter is notified");
    assert!(is_wrong(refused.unwrap(), &bed.name));
    assert_eq!(bed.ask::<String>(&["TYPE", &bed.name]).await, "list");
}

/// A hold of kind `T` and an attempt of this kind, by another owner and by the same one. With a fixed lease, because a client
/// verifies its holds after each connection that it makes, and a verification of a watched hold is a renewal.
async fn meets<S: Subject, T: Subject>() {
    let bed = Bed::<S>::beside::<T>(only_messages()).await;
    let lock = T::lock(&bed.client, &bed.name).with_lease(NEVER);
    let guard = lock.lock().await.unwrap();
    if family::<S>() != family::<T>() {
        is_refused(&bed, Owner::new()).await;
        is_refused(&bed, Owner::current()).await;
    } else {
        let shared = S::SHARED && T::SHARED;
        let other = bed.lock.owned_by(&Owner::new());
        let entered = other.try_lock().await;
        assert_eq!(
            entered.map(|guard| guard.is_some()),
            Ok(shared),
            "{} over {}",
            S::NAME,
            T::NAME
        );
    }
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

pub async fn every_other_kind_is_excluded_or_refused<S: Subject>() {
    meets::<S, Reentrant>().await;
    meets::<S, Fair>().await;
    meets::<S, Read>().await;
    meets::<S, Write>().await;
    meets::<S, Fenced>().await;
    meets::<S, Spin>().await;
    meets::<S, NonReentrant>().await;
    meets::<S, NonReentrantFair>().await;
    meets::<S, Simple>().await;
}

/// Data as Redisson or another client writes it: of the same kind, so the lock is busy and can be
/// forced open.
pub async fn another_clients_data_of_this_kind_is_a_lock<S: Subject>() {
    let bed = Bed::<S>::with(only_messages()).await;
    for owner in [
        "another:1",
        "11111111-1111-4111-8111-111111111111:18446744073709551615",
        "no colon",
    ] {
        bed.hold_as::<S::Rival>(owner).await;
        assert!(bed.lock.try_lock().await.unwrap().is_none(), "{owner}");
        assert_eq!(bed.lock.hold_count().await, Ok(0));
        bed.ask::<()>(&["DEL", &bed.name]).await;
        bed.hold_as::<S>(owner).await;
        assert!(bed.rival_same_client().try_lock().await.unwrap().is_none());
        assert_eq!(bed.lock.is_locked().await, Ok(true));
        assert_eq!(bed.lock.remaining_lease().await, Ok(None));
        assert_eq!(bed.lock.force_unlock().await, Ok(true), "{owner}");
        assert!(bed.is_free().await);
        for marker in S::markers(&bed.name, owner) {
            bed.ask::<u32>(&["DEL", &marker]).await;
        }
        let guard = bed
            .lock
            .try_lock()
            .await
            .unwrap()
            .expect("the lock is free");
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
}
