//! The fair lock's scripts when the server refuses a command, and in calls with several operations
//! (P-A9, P-A10, P-R1).

use super::{
    Bed, CHANNEL, Caller, LEASE, LOCK, Listener, Reply, Wide,
    fair::{
        A, ABANDON, ACQUIRE, B, C, FORCE_RELEASE, Fair, JAVA, PATIENCE, PLACE, PLACES, QUEUE,
        RELEASE, arguments,
    },
    owned,
};

#[tokio::test]
async fn without_the_right_to_publish_nothing_is_released() {
    let bed = Bed::new().await;
    let rights = ["~*", "+@all", "resetchannels"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let fair = Fair(&caller);
    assert_eq!(fair.acquire(A, 1, 0).await, Reply::Done);
    assert!(matches!(fair.acquire(B, 1, 0).await, Reply::Busy(_)));
    let before = bed.everything().await;
    for answer in [fair.release(A, 0).await, fair.force_release().await] {
        assert!(matches!(answer, Reply::Failed(_)), "{answer:?}");
        assert_eq!(bed.everything().await, before);
    }
}

/// An attempt that is reported as refused must leave no hold, because no owner would release it.
#[tokio::test]
async fn without_the_right_to_publish_a_refused_acquisition_leaves_no_hold() {
    let bed = Bed::new().await;
    let rights = ["~*", "+@all", "resetchannels"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let fair = Fair(&caller);
    // Another waiter must learn of a lease that is shorter than the rest of its entry.
    for lease in [1000, LEASE] {
        bed.enqueue(A, PLACE).await;
        bed.enqueue(B, PLACE).await;
        let answer = fair.acquire_for(lease, A, 1, 10, true).await;
        let held = bed.ask::<bool>(&["EXISTS", LOCK]).await;
        assert_eq!(
            held,
            answer == Reply::Done,
            "{answer:?} with a lease of {lease}"
        );
        bed.ask::<()>(&["DEL", LOCK, QUEUE, PLACES]).await;
    }
    // A notification that cannot be published does not keep the waiter from waiting.
    bed.enqueue(JAVA, PATIENCE).await;
    let answer = fair.acquire_for(LEASE, A, 1, 0, true).await;
    assert!(matches!(answer, Reply::Busy(_)), "{answer:?}");
}

#[tokio::test]
async fn without_the_right_to_set_a_lease_nothing_is_taken() {
    let bed = Bed::new().await;
    let rights = ["~*", "&*", "+@all", "-pexpire"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    bed.enqueue(A, PLACE).await;
    bed.enqueue(B, PLACE).await;
    let answer = Fair(&caller).acquire(A, 1, 10).await;
    assert!(matches!(answer, Reply::Failed(_)), "{answer:?}");
    assert!(!bed.ask::<bool>(&["EXISTS", LOCK]).await);
    assert_eq!(bed.queue().await, [A, B], "the waiter lost its entry");
}

/// Out of memory, held locks are released and announced, waiters wait or leave, and no lock is
/// acquired.
#[tokio::test]
async fn out_of_memory() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    for holds in 1..=2 {
        assert_eq!(fair.acquire(C, holds, 0).await, Reply::Done);
    }
    bed.enqueue(JAVA, -5).await;
    bed.enqueue(A, PLACE).await;
    bed.enqueue(B, PLACE).await;
    let mut head = Listener::on(&bed.server, &format!("{CHANNEL}:{JAVA}")).await;
    bed.out_of_memory().await;
    let places = [bed.score(A).await, bed.score(B).await];
    for owner in [A, B] {
        let answer = fair.acquire(owner, 1, 5000).await;
        assert!(
            matches!(answer, Reply::Busy(_)),
            "a waiter waits on: {answer:?}"
        );
    }
    assert!(bed.score(A).await >= places[0] && bed.score(B).await >= places[1]);
    assert_eq!(fair.abandon(B).await, Reply::Done);
    assert_eq!(bed.queue().await, [JAVA, A]);
    assert_eq!(fair.release(C, 1).await, Reply::Done);
    assert_eq!(fair.release(C, 0).await, Reply::Done);
    assert_eq!(head.messages().await, ["0"]);
    assert!(!bed.ask::<bool>(&["EXISTS", LOCK]).await);
    bed.ask::<()>(&["DEL", QUEUE, PLACES]).await;
    let refused = fair.acquire(A, 1, 0).await;
    assert!(refused.failed_with("OOM"), "{refused:?}");
    bed.is_free().await;
}

/// Another program overwrites the queue of a held lock, or the ends of its places. A release that failed
/// would leave the lock to its lease.
#[tokio::test]
async fn bad_keys_beside_a_held_lock_do_not_keep_it() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    for beside in [QUEUE, PLACES] {
        assert_eq!(fair.acquire(C, 1, 0).await, Reply::Done);
        assert_eq!(fair.acquire(C, 2, 0).await, Reply::Done);
        assert!(matches!(fair.acquire(A, 1, 0).await, Reply::Busy(_)));
        bed.ask::<()>(&["SET", beside, "x"]).await;
        let before = bed.ask::<Vec<u8>>(&["DUMP", beside]).await;
        assert_eq!(fair.release(C, 1).await, Reply::Done, "{beside}");
        assert_eq!(fair.release(C, 0).await, Reply::Done, "{beside}");
        assert!(!bed.ask::<bool>(&["EXISTS", LOCK]).await, "{beside}");
        assert_eq!(bed.ask::<Vec<u8>>(&["DUMP", beside]).await, before);
        bed.ask::<()>(&["DEL", QUEUE, PLACES]).await;
    }
}

fn on(lock: &str, keys: &[&str], arguments: Vec<String>) -> Wide {
    let beside = keys.iter().map(|key| format!("{key}:{{{lock}}}"));
    Wide {
        keys: std::iter::once(lock.to_owned()).chain(beside).collect(),
        arguments,
    }
}

const BESIDE: [&str; 2] = ["redisson_lock_queue", "redisson_lock_timeout"];
const OPERATIONS: usize = 50;
/// The locks with a fault.
const BAD: [usize; 4] = [0, 7, 31, 49];

fn locks() -> Vec<String> {
    (0..OPERATIONS)
        .map(|number| format!("lock:{number}"))
        .collect()
}

/// In a call with many operations, some find keys of another type, at the lock or its queue. They
/// affect no other operation.
#[tokio::test]
async fn bad_keys_touch_no_neighbour() {
    let bed = Bed::new().await;
    bed.ask::<()>(&["SET", "lock:0", "x"]).await;
    bed.ask::<()>(&["SET", "redisson_lock_queue:{lock:7}", "x"])
        .await;
    bed.ask::<()>(&["HSET", "lock:31", "mode", "read"]).await;
    bed.ask::<()>(&["SADD", "redisson_lock_queue:{lock:49}", "x"])
        .await;
    let before = bed.everything().await;
    let locks = locks();
    let each = |keys: &[&str], arguments: &[&str]| {
        let operations = locks.iter().map(|lock| on(lock, keys, owned(arguments)));
        operations.collect::<Vec<_>>()
    };
    let all = |replies: Vec<Reply>, good: &dyn Fn(&Reply) -> bool, what: &str| {
        for (number, reply) in replies.iter().enumerate() {
            let is_bad = BAD.contains(&number);
            let refused = matches!(reply, Reply::WrongKind(_) | Reply::Absent);
            assert!(
                if is_bad { refused } else { good(reply) },
                "{what} {number}: {reply:?}"
            );
        }
    };
    let acquire = |owner| {
        let arguments = arguments(LEASE, owner, 1, 0, true);
        let operations = locks
            .iter()
            .map(|lock| on(lock, &BESIDE, arguments.clone()));
        operations.collect::<Vec<_>>()
    };
    let done = |reply: &Reply| *reply == Reply::Done;
    let busy = |reply: &Reply| matches!(reply, Reply::Busy(1..));
    all(
        bed.admin.run_wide(ACQUIRE, &acquire(C)).await,
        &done,
        "granted",
    );
    all(
        bed.admin.run_wide(ACQUIRE, &acquire(A)).await,
        &busy,
        "queued",
    );
    let release = each(&BESIDE, &[C, "0", "0", "15000", "channel"]);
    all(
        bed.admin.run_wide(RELEASE, &release).await,
        &done,
        "released",
    );
    all(
        bed.admin.run_wide(ACQUIRE, &acquire(A)).await,
        &done,
        "granted",
    );
    all(
        bed.admin.run_wide(ACQUIRE, &acquire(B)).await,
        &busy,
        "queued",
    );
    // This operation uses only the queue's keys.
    let abandon = locks.iter().map(|lock| {
        let mut operation = on(lock, &BESIDE, owned(&[B, "channel"]));
        operation.keys.remove(0);
        operation
    });
    let left = bed
        .admin
        .run_wide(ABANDON, &abandon.collect::<Vec<_>>())
        .await;
    let failed = |number: &usize| matches!(left[*number], Reply::WrongKind(_));
    let failed: Vec<usize> = (0..OPERATIONS).filter(failed).collect();
    assert_eq!(failed, [7, 49]);
    let force = each(&BESIDE[..1], &["channel"]);
    all(
        bed.admin.run_wide(FORCE_RELEASE, &force).await,
        &done,
        "forced",
    );
    assert_eq!(bed.everything().await, before, "a key is left or changed");
}

#[tokio::test]
async fn a_read_write_lock_is_refused_and_left_alone() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    for mode in ["read", "write"] {
        bed.ask::<()>(&["HSET", LOCK, "mode", mode, A, "1"]).await;
        let before = bed.everything().await;
        for (waited, notify_head) in [(-1, false), (0, true), (10, true)] {
            let answer = fair.acquire_for(LEASE, A, 1, waited, notify_head).await;
            assert!(matches!(answer, Reply::WrongKind(_)), "{answer:?}");
        }
        assert!(matches!(fair.force_release().await, Reply::WrongKind(_)));
        assert_eq!(fair.release(A, 0).await, Reply::Absent);
        assert_eq!(bed.everything().await, before);
    }
}
