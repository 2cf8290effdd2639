//! The simple lock's scripts: one string that is set, compared and deleted.

use super::{Bed, Caller, LEASE, LOCK, Listener, Reply, THEM, US, owned};

const CHANNEL: &str = "simple_lock__channel:{order:42}";
const ACQUIRE: &str = script!("expiry", "simple_acquire");
const RELEASE: &str = script!("simple_release");
const RENEW: &str = script!("expiry", "simple_renew");
const FORCE_RELEASE: &str = script!("simple_force_release");
const INSPECT: &str = script!("simple_inspect");

async fn acquire(caller: &Caller, owner: &str, lease: i64) -> Reply {
    caller.run(ACQUIRE, &[owner, &lease.to_string()]).await
}

async fn release(caller: &Caller, owner: &str) -> Reply {
    caller.run(RELEASE, &[owner, CHANNEL]).await
}

async fn renew(caller: &Caller, owner: &str, lease: i64) -> Reply {
    caller.run(RENEW, &[owner, &lease.to_string()]).await
}

#[tokio::test]
async fn the_owner_of_the_value_holds_it() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    for answer in [release(admin, US).await, renew(admin, US, LEASE).await] {
        assert_eq!(answer, Reply::Absent);
    }
    assert_eq!(acquire(admin, US, LEASE).await, Reply::Done);
    assert_eq!(bed.ask::<String>(&["GET", LOCK]).await, US);
    bed.expires_in_about(LEASE).await;
    let refused = acquire(admin, THEM, LEASE).await;
    assert!(matches!(refused, Reply::Busy(1..)), "{refused:?}");
    for answer in [release(admin, THEM).await, renew(admin, THEM, LEASE).await] {
        assert_eq!(answer, Reply::Absent);
    }
    assert_eq!(renew(admin, US, 5 * LEASE).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    assert_eq!(
        renew(admin, US, LEASE).await,
        Reply::Done,
        "a lease is never shortened"
    );
    assert_eq!(
        renew(admin, US, 0).await,
        Reply::Done,
        "a lease of 0 changes nothing"
    );
    bed.expires_in_about(5 * LEASE).await;
    assert_eq!(listener.messages().await, [""; 0]);
    assert_eq!(release(admin, US).await, Reply::Counted(1));
    assert_eq!(listener.messages().await, ["0"]);
    bed.is_free().await;
    bed.ask::<()>(&["SET", LOCK, THEM]).await;
    assert_eq!(acquire(admin, US, LEASE).await, Reply::Busy(-1));
    assert_eq!(admin.run(INSPECT, &[US]).await, Reply::Told(vec![-1, 0]));
    assert_eq!(admin.run(INSPECT, &[THEM]).await, Reply::Told(vec![-1, 1]));
    assert_eq!(admin.run(FORCE_RELEASE, &[CHANNEL]).await, Reply::Done);
    assert_eq!(admin.run(FORCE_RELEASE, &[CHANNEL]).await, Reply::Absent);
    assert_eq!(listener.messages().await, ["0"]);
    assert_eq!(admin.run(INSPECT, &[US]).await, Reply::Told(vec![-2, 0]));
}

#[tokio::test]
async fn a_repeated_simple_request_is_executed_once() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    for _ in 0..3 {
        assert_eq!(acquire(admin, US, LEASE).await, Reply::Done);
    }
    assert_eq!(acquire(admin, US, 1000).await, Reply::Done);
    bed.expires_in_about(LEASE).await;
    assert_eq!(release(admin, US).await, Reply::Counted(1));
    assert_eq!(release(admin, US).await, Reply::Absent);
    assert_eq!(listener.messages().await, ["0"]);
    assert_eq!(acquire(admin, THEM, LEASE).await, Reply::Done);
    assert_eq!(release(admin, US).await, Reply::Absent, "a late release");
    assert_eq!(bed.ask::<String>(&["GET", LOCK]).await, THEM);
}

#[tokio::test]
async fn a_refused_simple_request_changes_nothing() {
    let bed = Bed::new().await;
    let rights = ["~*", "+@all", "resetchannels"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    assert_eq!(acquire(&caller, US, LEASE).await, Reply::Done);
    for answer in [
        release(&caller, US).await,
        caller.run(FORCE_RELEASE, &[CHANNEL]).await,
    ] {
        assert!(matches!(answer, Reply::Failed(_)), "{answer:?}");
        assert_eq!(bed.ask::<String>(&["GET", LOCK]).await, US);
    }
    bed.out_of_memory().await;
    assert!(matches!(
        acquire(&bed.admin, THEM, LEASE).await,
        Reply::Busy(1..)
    ));
    assert_eq!(
        acquire(&bed.admin, US, 2 * LEASE).await,
        Reply::Done,
        "the repetition"
    );
    assert_eq!(renew(&bed.admin, US, 5 * LEASE).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    assert_eq!(release(&bed.admin, US).await, Reply::Done);
    let refused = acquire(&bed.admin, US, LEASE).await;
    assert!(refused.failed_with("OOM"), "{refused:?}");
    bed.is_free().await;
}

#[tokio::test]
async fn other_types_are_refused_by_name_and_left_alone() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    for (kind, words) in [
        ("hash", &["HSET", LOCK, US, "1"] as &[_]),
        ("list", &["RPUSH", LOCK, US]),
        ("set", &["SADD", LOCK, US]),
        ("zset", &["ZADD", LOCK, "1", US]),
        ("stream", &["XADD", LOCK, "1-1", US, "1"]),
    ] {
        bed.ask::<redis::Value>(words).await;
        let before = bed.snapshot().await;
        for answer in [
            acquire(admin, US, LEASE).await,
            release(admin, US).await,
            renew(admin, US, LEASE).await,
            admin.run(FORCE_RELEASE, &[CHANNEL]).await,
            admin.run(INSPECT, &[US]).await,
        ] {
            assert_eq!(answer, Reply::WrongKind(kind.to_owned()));
        }
        assert_eq!(bed.snapshot().await, before, "the {kind} was changed");
        bed.ask::<()>(&["DEL", LOCK]).await;
    }
}

#[tokio::test]
async fn many_operations_in_one_call() {
    let bed = Bed::new().await;
    let locks: Vec<String> = (0..30).map(|number| format!("lock:{number}")).collect();
    let each = |arguments: &[&str]| {
        let operations = locks.iter().map(|lock| (&**lock, owned(arguments)));
        operations.collect::<Vec<_>>()
    };
    bed.ask::<()>(&["HSET", "lock:0", "x", "1"]).await;
    bed.ask::<()>(&["SET", "lock:1", THEM]).await;
    for _ in 0..2 {
        let replies = bed.admin.run_all(ACQUIRE, &each(&[US, "60000"])).await;
        assert_eq!(replies[0], Reply::WrongKind("hash".into()));
        assert_eq!(replies[1], Reply::Busy(-1));
        assert_eq!(replies[2..], [const { Reply::Done }; 28]);
    }
    let replies = bed.admin.run_all(RELEASE, &each(&[US, "channel"])).await;
    assert_eq!(replies[1], Reply::Absent);
    assert_eq!(replies[2..], [const { Reply::Done }; 28]);
    assert_eq!(bed.ask::<u32>(&["DBSIZE"]).await, 2);
}

/// The commands of each operation.
#[tokio::test]
async fn the_commands_of_each_operation() {
    let bed = Bed::new().await;
    let inner = async || {
        let calls = bed.inner_calls().await;
        bed.server.reset_calls().await;
        calls.values().sum::<u64>()
    };
    bed.server.reset_calls().await;
    assert_eq!(acquire(&bed.admin, US, LEASE).await, Reply::Done);
    assert!(inner().await <= 2, "pttl, set");
    assert!(matches!(
        acquire(&bed.admin, THEM, LEASE).await,
        Reply::Busy(_)
    ));
    assert!(inner().await <= 2, "pttl, get");
    assert_eq!(renew(&bed.admin, US, LEASE).await, Reply::Done);
    assert!(inner().await <= 3, "get, pttl, pexpire");
    assert_eq!(release(&bed.admin, US).await, Reply::Done);
    assert!(inner().await <= 3, "get, publish, del");
}
