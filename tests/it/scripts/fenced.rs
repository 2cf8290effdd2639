//! The fenced lock's script (docs/protocol.md, section 9). It shares release and renewal with the
//! plain lock.

use super::{Bed, Caller, LEASE, LOCK, Reply, THEM, US, Wide, owned};

const COUNTER: &str = "redisson_lock_token:{order:42}";
const ACQUIRE: &str = script!("expiry", "fenced_acquire");

async fn acquire(caller: &Caller, owner: &str, holds: u32) -> Reply {
    let (lease, holds) = (LEASE.to_string(), holds.to_string());
    let arguments = [owner, &lease, &holds];
    caller.run_on(ACQUIRE, &[LOCK, COUNTER], &arguments).await
}

impl Bed {
    async fn token(&self) -> Option<i64> {
        self.ask(&["GET", COUNTER]).await
    }
}

#[tokio::test]
async fn every_acquisition_is_counted() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    assert_eq!(acquire(admin, US, 1).await, Reply::Counted(1));
    bed.is_held_by(US, 1).await;
    bed.expires_in_about(LEASE).await;
    assert_eq!(acquire(admin, US, 2).await, Reply::Counted(2));
    assert!(matches!(acquire(admin, THEM, 1).await, Reply::Busy(1..)));
    assert_eq!(acquire(admin, THEM, 2).await, Reply::Absent);
    assert_eq!(
        bed.token().await,
        Some(2),
        "a refused attempt takes no token"
    );
    assert_eq!(admin.release(US, 0).await, Reply::Done);
    assert_eq!(acquire(admin, US, 2).await, Reply::Absent);
    assert_eq!(acquire(admin, THEM, 1).await, Reply::Counted(3));
    assert_eq!(bed.ask::<i64>(&["PTTL", COUNTER]).await, -1);
}

/// A repetition cannot be told from an acquisition that finds what is left of a lost hold. Both have a token of their own.
#[tokio::test]
async fn a_repeated_fenced_acquisition_has_a_later_token() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    for holds in 1..=3 {
        for sending in 0..2 {
            let token = i64::from(2 * holds - 1 + sending);
            assert_eq!(
                acquire(admin, US, holds as u32).await,
                Reply::Counted(token)
            );
        }
        bed.is_held_by(US, holds as u32).await;
    }
    bed.ask::<()>(&["HSET", LOCK, US, "7"]).await;
    assert_eq!(acquire(admin, US, 1).await, Reply::Counted(7));
    bed.is_held_by(US, 1).await;
}

#[tokio::test]
async fn a_refused_fenced_acquisition_takes_no_lock_and_no_token() {
    let bed = Bed::new().await;
    // Without a lease the hold would last for ever (P-A7). The script takes it back, and its token
    // is unused.
    let rights = ["~*", "&*", "+@all", "-pexpire"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let answer = acquire(&caller, US, 1).await;
    assert!(matches!(answer, Reply::Failed(_)), "{answer:?}");
    assert!(!bed.ask::<bool>(&["EXISTS", LOCK]).await);
    for counter in ["x", "9223372036854775807", ""] {
        bed.ask::<()>(&["SET", COUNTER, counter]).await;
        let answer = acquire(&bed.admin, US, 1).await;
        assert!(matches!(answer, Reply::Failed(_)), "{answer:?}");
        assert!(!bed.ask::<bool>(&["EXISTS", LOCK]).await);
    }
    bed.ask::<()>(&["DEL", COUNTER]).await;
    bed.ask::<()>(&["RPUSH", COUNTER, "x"]).await;
    let answer = acquire(&bed.admin, US, 1).await;
    assert!(matches!(&answer, Reply::WrongKind(_)), "{answer:?}");
    assert!(!bed.ask::<bool>(&["EXISTS", LOCK]).await);
    bed.ask::<()>(&["DEL", COUNTER]).await;
    for words in [
        &["HSET", LOCK, "mode", "read"] as &[&str],
        &["SET", LOCK, "x"],
    ] {
        bed.ask::<()>(&["DEL", LOCK]).await;
        bed.ask::<redis::Value>(words).await;
        let before = bed.everything().await;
        let answer = acquire(&bed.admin, US, 1).await;
        assert!(matches!(&answer, Reply::WrongKind(_)), "{answer:?}");
        assert_eq!(bed.everything().await, before);
    }
    bed.ask::<()>(&["DEL", LOCK]).await;
    bed.out_of_memory().await;
    let answer = acquire(&bed.admin, US, 1).await;
    assert!(answer.failed_with("OOM"), "{answer:?}");
    bed.is_free().await;
}

#[tokio::test]
async fn many_operations_in_one_call() {
    let bed = Bed::new().await;
    let counter = |lock: &str| format!("redisson_lock_token:{{{lock}}}");
    let operations: Vec<Wide> = (0..30)
        .map(|number| {
            let lock = format!("lock:{number}");
            let keys = owned(&[&lock, &counter(&lock)]);
            let arguments = owned(&[US, "60000", "1"]);
            Wide { keys, arguments }
        })
        .collect();
    bed.ask::<()>(&["SET", "lock:0", "x"]).await;
    bed.ask::<()>(&["SET", &counter("lock:5"), "x"]).await;
    bed.ask::<()>(&["SADD", &counter("lock:29"), "x"]).await;
    for round in 1..=2 {
        let replies = bed.admin.run_wide(ACQUIRE, &operations).await;
        for (number, reply) in replies.iter().enumerate() {
            let good = match number {
                0 | 29 => matches!(reply, Reply::WrongKind(_)),
                5 => matches!(reply, Reply::Failed(_)),
                _ => *reply == Reply::Counted(round),
            };
            assert!(good, "{number} in round {round}: {reply:?}");
        }
    }
}

/// The commands of each operation.
#[tokio::test]
async fn the_commands_of_each_operation() {
    let bed = Bed::new().await;
    bed.server.reset_calls().await;
    assert_eq!(acquire(&bed.admin, US, 1).await, Reply::Counted(1));
    let calls = bed.inner_calls().await;
    assert!(
        calls.values().sum::<u64>() <= 5,
        "pttl, incr, persist, hset, pexpire: {calls:?}"
    );
    bed.server.reset_calls().await;
    assert!(matches!(acquire(&bed.admin, THEM, 1).await, Reply::Busy(_)));
    let calls = bed.inner_calls().await;
    assert!(calls.values().sum::<u64>() <= 2, "pttl, hmget: {calls:?}");
}
