//! Many operations in one call: one that fails affects no other (P-R1).

use redisson_lock::{Error, LockClient};
use testbed::Server;
use tokio::task::JoinSet;

use super::{
    ACQUIRE, Bed, Caller, FORCE_RELEASE, INSPECT, LEASE, Operation, RELEASE, RENEW, Reply, US,
    owned,
};

const OPERATIONS: usize = 100;
const BAD: [usize; 3] = [0, 50, 99];

fn locks() -> Vec<String> {
    (0..OPERATIONS)
        .map(|number| format!("lock:{number}"))
        .collect()
}

/// The same operation on every lock.
fn on_each<'a>(locks: &'a [String], arguments: &[&str]) -> Vec<Operation<'a>> {
    locks
        .iter()
        .map(|lock| (&**lock, owned(arguments)))
        .collect()
}

/// Fails unless all replies but those on keys of another type are `good`.
fn all_but_the_bad(replies: &[Reply], good: impl Fn(&Reply) -> bool) {
    for (number, reply) in replies.iter().enumerate() {
        if BAD.contains(&number) {
            assert_eq!(
                *reply,
                Reply::WrongKind("string".into()),
                "operation {number}"
            );
        } else {
            assert!(good(reply), "operation {number}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn keys_of_another_type_touch_no_neighbour() {
    let bed = Bed::new().await;
    for number in BAD {
        bed.ask::<()>(&["SET", &format!("lock:{number}"), "x"])
            .await;
    }
    let locks = locks();
    let lease = LEASE.to_string();
    let done = |reply: &Reply| *reply == Reply::Done;
    let acquire = on_each(&locks, &[US, &lease, "1"]);
    all_but_the_bad(&bed.admin.run_all(ACQUIRE, &acquire).await, done);
    let renew = on_each(&locks, &[US, &lease]);
    all_but_the_bad(&bed.admin.run_all(RENEW, &renew).await, done);
    let inspect = on_each(&locks, &[US]);
    let held = |reply: &Reply| matches!(reply, Reply::Told(told) if told[0] > 0 && told[1] == 1);
    all_but_the_bad(&bed.admin.run_all(INSPECT, &inspect).await, held);
    let release = on_each(&locks, &[US, "0", &lease, "channel"]);
    all_but_the_bad(&bed.admin.run_all(RELEASE, &release).await, done);
    let force = on_each(&locks, &["channel"]);
    all_but_the_bad(&bed.admin.run_all(FORCE_RELEASE, &force).await, |reply| {
        *reply == Reply::Absent
    });
    assert_eq!(bed.ask::<usize>(&["DBSIZE"]).await, BAD.len());
}

/// The same for a user without the right to ask for the type of a key.
#[tokio::test]
async fn a_key_of_another_type_whose_type_must_not_be_asked_for() {
    let bed = Bed::new().await;
    bed.ask::<()>(&["SET", "lock:1", "x"]).await;
    let rights = ["~*", "&*", "+@all", "-type"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let locks = locks();
    let acquire = on_each(&locks[..3], &[US, "60000", "1"]);
    let replies = caller.run_all(ACQUIRE, &acquire).await;
    assert_eq!(replies[0], Reply::Done);
    assert!(
        matches!(replies[1], Reply::WrongKind(_) | Reply::Failed(_)),
        "{replies:?}"
    );
    assert_eq!(replies[2], Reply::Done);
}

#[tokio::test]
async fn every_operation_has_its_own_arguments_and_answer() {
    let bed = Bed::new().await;
    bed.ask::<u32>(&["HSET", "taken", "another", "1"]).await;
    bed.ask::<u32>(&["HSET", "ours", US, "1"]).await;
    let operations = [
        ("free", owned(&[US, "10000", "1"])),
        ("taken", owned(&[US, "20000", "1"])),
        ("ours", owned(&[US, "30000", "2"])),
        ("gone", owned(&[US, "40000", "2"])),
        ("refused", owned(&[US, "no number", "1"])),
        ("free too", owned(&[US, "50000", "1"])),
    ];
    let replies = bed.admin.run_all(ACQUIRE, &operations).await;
    let expected = [Reply::Done, Reply::Busy(-1), Reply::Done, Reply::Absent];
    assert_eq!(replies[..4], expected);
    assert!(replies[4].failed_with("not an integer"), "{replies:?}");
    assert_eq!(replies[5], Reply::Done);
    for (lock, lease) in [("free", 10_000), ("ours", 30_000), ("free too", 50_000)] {
        let left: i64 = bed.ask(&["PTTL", lock]).await;
        assert!(left > lease - 9_000 && left <= lease, "{lock}: {left}");
    }
    assert_eq!(bed.ask::<u32>(&["EXISTS", "gone", "refused"]).await, 0);
}

#[tokio::test]
async fn one_lock_twice_in_one_call() {
    let bed = Bed::new().await;
    let operations = [
        ("lock", owned(&["one", "60000", "1"])),
        ("lock", owned(&["other", "60000", "1"])),
        ("lock", owned(&["one", "60000", "2"])),
    ];
    let replies = bed.admin.run_all(ACQUIRE, &operations).await;
    assert_eq!(replies[0], Reply::Done);
    assert!(matches!(replies[1], Reply::Busy(1..)), "{replies:?}");
    assert_eq!(replies[2], Reply::Done);
    assert_eq!(bed.ask::<u32>(&["HGET", "lock", "one"]).await, 2);
}

/// Redis refuses a whole call when the user may not access one of its keys.
#[tokio::test]
async fn a_forbidden_key_touches_no_neighbour() {
    let server = Server::start().await;
    let rights = [
        "ACL", "SETUSER", "app", "on", ">pw", "~good:*", "&*", "+@all",
    ];
    server.command::<()>(&rights).await;
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let client = LockClient::connect(&url).await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..200 {
        let good = number % 10 != 0;
        let lock = client.reentrant_lock(format!("{}:{number}", if good { "good" } else { "bad" }));
        tasks.spawn(async move {
            let locked = lock.run(async |_| ()).await;
            assert!(
                good || matches!(locked, Err(Error::Redis { .. })),
                "{locked:?}"
            );
            locked.err().filter(|_| good)
        });
    }
    let harmed: Vec<Error> = tasks.join_all().await.into_iter().flatten().collect();
    assert!(harmed.is_empty(), "{} of 180: {}", harmed.len(), harmed[0]);
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
}
