//! The fair lock's scripts (docs/protocol.md, section 7). The server's clock ends queue entries.

use super::{Bed, CHANNEL, Caller, LEASE, LOCK, Listener, Reply, Wide, owned};

pub const QUEUE: &str = "redisson_lock_queue:{order:42}";
pub const PLACES: &str = "redisson_lock_timeout:{order:42}";
pub const PLACE: i64 = 15_000;
pub const PATIENCE: i64 = 300_000;
/// Owners of this crate: the number has 19 digits.
pub const A: &str = "11111111-1111-4111-8111-111111111111:4611686018427387905";
pub const B: &str = "11111111-1111-4111-8111-111111111111:4611686018427387906";
pub const C: &str = "22222222-2222-4222-8222-222222222222:4611686018427387907";
/// An owner of Redisson.
pub const JAVA: &str = "33333333-3333-4333-8333-333333333333:47";

pub const ACQUIRE: &str = script!("expiry", "clock", "owners", "fair_acquire");
pub const RELEASE: &str = script!("shorten", "owners", "fair_release");
pub const ABANDON: &str = script!("fair_abandon");
pub const FORCE_RELEASE: &str = script!("fair_force_release");

/// A user of a fair lock's scripts.
pub struct Fair<'a>(pub &'a Caller);

impl Fair<'_> {
    /// Acquires with the usual lease, without a notification of the head. A negative `waited` stands for
    /// an attempt that does not wait.
    pub async fn acquire(&self, owner: &str, holds: u32, waited: i64) -> Reply {
        self.acquire_for(LEASE, owner, holds, waited, false).await
    }

    pub async fn acquire_for(
        &self,
        lease: i64,
        owner: &str,
        holds: u32,
        waited: i64,
        notify_head: bool,
    ) -> Reply {
        let operation = Wide {
            keys: owned(&[LOCK, QUEUE, PLACES]),
            arguments: arguments(lease, owner, holds, waited, notify_head),
        };
        self.0.run_wide(ACQUIRE, &[operation]).await.remove(0)
    }

    pub async fn release(&self, owner: &str, holds: u32) -> Reply {
        let (holds, lease, place) = (holds.to_string(), LEASE.to_string(), PLACE.to_string());
        let arguments = [owner, &holds, &lease, &place, CHANNEL];
        self.0
            .run_on(RELEASE, &[LOCK, QUEUE, PLACES], &arguments)
            .await
    }

    pub async fn abandon(&self, owner: &str) -> Reply {
        let keys = [QUEUE, PLACES];
        self.0.run_on(ABANDON, &keys, &[owner, CHANNEL]).await
    }

    pub async fn force_release(&self) -> Reply {
        self.0
            .run_on(FORCE_RELEASE, &[LOCK, QUEUE], &[CHANNEL])
            .await
    }
}

/// The arguments of one acquisition.
pub fn arguments(
    lease: i64,
    owner: &str,
    holds: u32,
    waited: i64,
    notify_head: bool,
) -> Vec<String> {
    let numbers = [waited, PLACE, PATIENCE].map(|number| number.to_string());
    let [waited, place, timeout] = numbers;
    let (lease, holds) = (lease.to_string(), holds.to_string());
    let notify_head = u8::from(notify_head).to_string();
    owned(&[
        owner,
        &lease,
        &holds,
        &waited,
        &place,
        &timeout,
        CHANNEL,
        &notify_head,
    ])
}

impl Bed {
    pub async fn queue(&self) -> Vec<String> {
        self.ask(&["LRANGE", QUEUE, "0", "-1"]).await
    }

    pub async fn score(&self, entry: &str) -> i64 {
        let score: Option<f64> = self.ask(&["ZSCORE", PLACES, entry]).await;
        score.unwrap_or_else(|| panic!("{entry} has no score")) as i64
    }

    /// The remaining time of an entry.
    pub async fn place_of(&self, entry: &str) -> i64 {
        let (seconds, micros): (i64, i64) = self.ask(&["TIME"]).await;
        self.score(entry).await - seconds * 1000 - micros / 1000
    }

    /// Appends an entry with this much time left.
    pub async fn enqueue(&self, entry: &str, left: i64) {
        let (seconds, micros): (i64, i64) = self.ask(&["TIME"]).await;
        let until = (seconds * 1000 + micros / 1000 + left).to_string();
        self.ask::<()>(&["ZADD", PLACES, &until, entry]).await;
        self.ask::<()>(&["RPUSH", QUEUE, entry]).await;
    }
}

/// Equal but for the time between two calls and a small correction of the server's clock.
fn is_about(left: i64, right: i64) -> bool {
    (right - 10_000..=right + 10).contains(&left)
}

#[tokio::test]
async fn a_free_lock_is_granted_and_nothing_queued() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    assert_eq!(fair.acquire(A, 1, 0).await, Reply::Done);
    bed.is_held_by(A, 1).await;
    bed.expires_in_about(LEASE).await;
    assert_eq!(bed.ask::<u32>(&["DBSIZE"]).await, 1);
    assert_eq!(fair.acquire(A, 2, 0).await, Reply::Done);
    bed.is_held_by(A, 2).await;
    assert_eq!(fair.acquire(A, 4, 0).await, Reply::Absent);
    assert_eq!(fair.acquire(B, 2, 0).await, Reply::Absent);
    assert_eq!(bed.ask::<u32>(&["DBSIZE"]).await, 1);
}

#[tokio::test]
async fn waiters_queue_in_order_and_only_the_first_learns_of_the_lease() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    assert_eq!(fair.acquire(C, 1, 0).await, Reply::Done);
    let first = fair.acquire(A, 1, 0).await;
    let Reply::Busy(left) = first else {
        panic!("{first:?}");
    };
    assert!(is_about(left, LEASE), "{left}");
    assert_eq!(fair.acquire(B, 1, 0).await, Reply::Busy(-1));
    assert_eq!(bed.queue().await, [A, B]);
    for owner in [A, B] {
        assert!(is_about(bed.place_of(owner).await, PLACE));
    }
    assert_eq!(fair.acquire(JAVA, 1, -1).await, Reply::Busy(-1));
    assert_eq!(bed.queue().await, [A, B], "the third owner does not wait");
    // The released lock goes to A, then to B. No owner overtakes.
    assert_eq!(fair.release(C, 0).await, Reply::Done);
    assert!(matches!(fair.acquire(B, 1, 10).await, Reply::Busy(_)));
    assert!(matches!(fair.acquire(JAVA, 1, -1).await, Reply::Busy(_)));
    assert_eq!(fair.acquire(A, 1, 10).await, Reply::Done);
    assert_eq!(bed.queue().await, [B]);
    assert_eq!(fair.release(A, 0).await, Reply::Done);
    assert_eq!(fair.acquire(B, 1, 10).await, Reply::Done);
    assert_eq!(fair.release(B, 0).await, Reply::Done);
    bed.is_free().await;
}

/// Each waiter of Redisson may lower the later scores by its timeout, so scores behind it are
/// higher.
#[tokio::test]
async fn places_behind_redissons_are_longer() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    assert_eq!(fair.acquire(C, 1, 0).await, Reply::Done);
    bed.enqueue(JAVA, 2 * PATIENCE).await;
    let java = bed.score(JAVA).await;
    assert_eq!(fair.acquire(A, 1, 0).await, Reply::Busy(-1));
    assert_eq!(bed.score(A).await, java + PLACE);
    assert_eq!(fair.acquire(B, 1, 0).await, Reply::Busy(-1));
    assert!(bed.score(B).await >= java + PLACE);
    assert_eq!(bed.score(JAVA).await, java, "Redisson's score is unchanged");
    // A waiter of Redisson lowers the later scores by its whole timeout, however long it has
    // waited.
    bed.ask::<()>(&["DEL", QUEUE, PLACES]).await;
    bed.enqueue(JAVA, 1000).await;
    assert_eq!(fair.acquire(A, 1, 0).await, Reply::Busy(-1));
    assert!(is_about(bed.place_of(A).await, PATIENCE + PLACE));
}

/// An entry's score rises with each poll of its owner. The head needs only its own time.
#[tokio::test]
async fn places_are_refreshed() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    assert_eq!(fair.acquire(C, 1, 0).await, Reply::Done);
    bed.enqueue(A, 1000).await;
    bed.enqueue(B, 100_000).await;
    let before = bed.score(B).await;
    assert!(matches!(fair.acquire(A, 1, 5000).await, Reply::Busy(1..)));
    assert!(is_about(bed.place_of(A).await, PLACE));
    assert_eq!(fair.acquire(B, 1, 5000).await, Reply::Busy(-1));
    assert_eq!(bed.score(B).await, before + 5000);
    bed.ask::<()>(&["ZADD", PLACES, "1", B]).await;
    assert_eq!(fair.acquire(B, 1, 5000).await, Reply::Busy(-1));
    assert!(is_about(bed.place_of(B).await, PLACE));
    bed.ask::<()>(&["ZADD", PLACES, "9e12", A]).await;
    assert!(matches!(fair.acquire(A, 1, 5000).await, Reply::Busy(1..)));
    assert!(is_about(bed.place_of(A).await, PLACE));
    assert_eq!(bed.queue().await, [A, B]);
}

/// The head of a free lock, by its client and the rest of its time.
#[tokio::test]
async fn only_expired_entries_at_the_head_of_a_free_lock_are_removed() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    let dead = "33333333-3333-4333-8333-333333333333:48";
    for (head, left, remains) in [
        (JAVA, 60_000, Some(60_000)),
        (A, 5000, Some(5000)),
        (A, 60_000, Some(PLACE)),
        (JAVA, -1, None),
        (A, -1, None),
    ] {
        bed.enqueue(head, left).await;
        bed.enqueue(dead, -5000).await;
        bed.enqueue(B, PLACE).await;
        let answer = fair.acquire(B, 1, 10).await;
        match remains {
            Some(remains) => {
                assert_eq!(answer, Reply::Busy(-1), "B is the third entry");
                assert!(is_about(bed.place_of(head).await, remains), "{head} {left}");
                assert_eq!(bed.queue().await, [head, dead, B]);
            }
            None => {
                assert_eq!(answer, Reply::Done, "{head} {left}");
                assert_eq!(fair.release(B, 0).await, Reply::Done);
                bed.is_free().await;
            }
        }
        bed.ask::<()>(&["DEL", LOCK, QUEUE, PLACES]).await;
    }
    // The second entry learns when it becomes the head.
    bed.enqueue(JAVA, 8000).await;
    bed.enqueue(B, PLACE).await;
    let second = fair.acquire(B, 1, 10).await;
    assert!(matches!(second, Reply::Busy(1..=8000)), "{second:?}");
    // While the lock is held no entry is removed.
    bed.ask::<()>(&["HSET", LOCK, "another", "1"]).await;
    bed.ask::<()>(&["ZADD", PLACES, "1", JAVA]).await;
    assert!(matches!(fair.acquire(C, 1, 0).await, Reply::Busy(_)));
    assert_eq!(bed.queue().await, [JAVA, B, C]);
}

/// Its place has ended, but the head that asks is alive.
#[tokio::test]
async fn a_head_that_asks_late_is_granted() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    bed.enqueue(A, -100).await;
    bed.enqueue(B, PLACE).await;
    assert_eq!(fair.acquire(A, 1, 700).await, Reply::Done);
    assert_eq!(bed.queue().await, [B]);
}

/// Redisson's asynchronous calls take an id that the program makes up.
#[tokio::test]
async fn java_waiters_with_long_ids_keep_their_places() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    let java = "33333333-3333-4333-8333-333333333333:8420985312345678901";
    assert_eq!(java.len(), A.len());
    bed.enqueue(java, PATIENCE).await;
    for waited in [0, 10] {
        let answer = fair.acquire_for(LEASE, A, 1, waited, true).await;
        assert!(matches!(answer, Reply::Busy(_)), "{answer:?}");
    }
    assert!(is_about(bed.place_of(java).await, PATIENCE));
    assert!(bed.place_of(A).await > PATIENCE);
    bed.ask::<()>(&["DEL", QUEUE, PLACES]).await;
    assert_eq!(fair.acquire(A, 1, 0).await, Reply::Done);
    bed.enqueue(java, -100).await;
    assert_eq!(fair.release(A, 0).await, Reply::Done);
    assert_eq!(bed.queue().await, [java], "a release does not remove it");
}

#[tokio::test]
async fn without_the_right_to_leave_the_queue_a_waiter_acquires_nothing() {
    let bed = Bed::new().await;
    for right in ["-lpop", "-zrem"] {
        let caller = Caller::with_rights(&bed.server, &["~*", "&*", "+@all", right]).await;
        bed.enqueue(A, PLACE).await;
        let answer = Fair(&caller).acquire(A, 1, 10).await;
        assert!(matches!(answer, Reply::Failed(_)), "{answer:?}");
        assert!(!bed.ask::<bool>(&["EXISTS", LOCK]).await, "{right}");
        bed.ask::<()>(&["DEL", QUEUE, PLACES]).await;
    }
}

#[tokio::test]
async fn only_the_head_of_the_queue_is_notified_of_a_release() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    let mut all = Listener::on(&bed.server, CHANNEL).await;
    let mut head = Listener::on(&bed.server, &format!("{CHANNEL}:{A}")).await;
    let mut second = Listener::on(&bed.server, &format!("{CHANNEL}:{B}")).await;
    for forced in [false, true] {
        for (owner, holds) in [(C, 1), (C, 2), (A, 1), (B, 1)] {
            let answer = fair.acquire(owner, holds, 0).await;
            assert_eq!(answer == Reply::Done, owner == C);
        }
        assert_eq!(fair.release(C, 1).await, Reply::Done);
        bed.is_held_by(C, 1).await;
        assert_eq!(head.messages().await, [""; 0]);
        let freed = match forced {
            true => fair.force_release().await,
            false => fair.release(C, 0).await,
        };
        assert_eq!(freed, Reply::Done);
        assert_eq!(head.messages().await, ["0"]);
        // A leaves, so B is the head.
        assert_eq!(fair.abandon(A).await, Reply::Done);
        assert_eq!(second.messages().await, ["0"]);
        assert_eq!(fair.abandon(B).await, Reply::Done);
        bed.is_free().await;
    }
    assert_eq!(fair.force_release().await, Reply::Absent);
    assert_eq!(
        all.messages().await,
        [""; 0],
        "Redisson's fair lock does not listen to this channel"
    );
}

#[tokio::test]
async fn a_free_lock_notifies_the_head_when_asked_to() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    bed.enqueue(JAVA, 60_000).await;
    let mut sleeper = Listener::on(&bed.server, &format!("{CHANNEL}:{JAVA}")).await;
    for (notify_head, waited, told) in [(false, 0, 0), (true, 10, 1), (true, -1, 1), (false, -1, 0)]
    {
        let answer = fair.acquire_for(LEASE, A, 1, waited, notify_head).await;
        assert!(matches!(answer, Reply::Busy(_)), "{answer:?}");
        assert_eq!(sleeper.messages().await.len(), told);
    }
    bed.ask::<()>(&["HSET", LOCK, "another", "1"]).await;
    assert!(matches!(
        fair.acquire_for(LEASE, A, 1, 10, true).await,
        Reply::Busy(_)
    ));
    assert_eq!(sleeper.messages().await, [""; 0], "the lock is held");
}

/// A request with a lost reply and its repetition give one hold, one entry and one message.
#[tokio::test]
async fn a_repeated_fair_request_is_executed_once() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    let mut head = Listener::on(&bed.server, &format!("{CHANNEL}:{A}")).await;
    for _ in 0..2 {
        assert_eq!(fair.acquire(C, 1, 0).await, Reply::Done);
        bed.is_held_by(C, 1).await;
    }
    for _ in 0..3 {
        assert!(matches!(fair.acquire(A, 1, 0).await, Reply::Busy(1..)));
        assert_eq!(fair.acquire(B, 1, 0).await, Reply::Busy(-1));
    }
    assert_eq!(bed.queue().await, [A, B]);
    assert_eq!(fair.release(C, 0).await, Reply::Done);
    assert_eq!(fair.release(C, 0).await, Reply::Absent);
    assert_eq!(head.messages().await, ["0"]);
    for _ in 0..2 {
        assert_eq!(fair.acquire(A, 1, 10).await, Reply::Done);
        assert_eq!(
            bed.queue().await,
            [B],
            "a grant removes its owner and no other waiter"
        );
    }
    for _ in 0..2 {
        assert_eq!(fair.abandon(B).await, Reply::Done);
    }
    assert_eq!(bed.queue().await, [""; 0]);
    // A late repetition of a release changes neither holds nor entries.
    assert!(matches!(fair.acquire(B, 1, 0).await, Reply::Busy(1..)));
    let before = bed.everything().await;
    assert_eq!(fair.release(C, 0).await, Reply::Absent);
    assert_eq!(fair.abandon(C).await, Reply::Done);
    assert_eq!(bed.everything().await, before);
}

/// The commands of each operation. Operations without a queue run fewer.
#[tokio::test]
async fn the_commands_of_each_operation() {
    let bed = Bed::new().await;
    let fair = Fair(&bed.admin);
    let inner = async || {
        let calls = bed.inner_calls().await;
        bed.server.reset_calls().await;
        calls.values().sum::<u64>()
    };
    bed.server.reset_calls().await;
    assert_eq!(fair.acquire(A, 1, 0).await, Reply::Done);
    assert!(inner().await <= 5, "pttl, time, lindex, hset, pexpire");
    assert_eq!(fair.acquire(A, 2, 0).await, Reply::Done);
    assert!(inner().await <= 4, "pttl, hmget, pexpire, hset");
    assert_eq!(fair.release(A, 1).await, Reply::Done);
    assert!(inner().await <= 5, "hmget, lindex, pttl, pexpire, hset");
    assert_eq!(fair.release(A, 0).await, Reply::Done);
    assert!(inner().await <= 4, "hmget, time, lindex, del");
    bed.ask::<()>(&["HSET", LOCK, "another", "1"]).await;
    for number in 0..100 {
        let owner = format!(
            "11111111-1111-4111-8111-111111111111:{}",
            (1_u64 << 62) + number
        );
        assert!(matches!(fair.acquire(&owner, 1, 0).await, Reply::Busy(_)));
    }
    bed.server.reset_calls().await;
    assert_eq!(fair.acquire(C, 1, 0).await, Reply::Busy(-1));
    assert!(inner().await <= 9, "a new waiter, however many wait");
    assert_eq!(fair.acquire(C, 1, 5000).await, Reply::Busy(-1));
    assert!(inner().await <= 9, "a poll, however many wait");
    assert_eq!(fair.abandon(C).await, Reply::Done);
    assert!(inner().await <= 4, "lindex, zrem, lrem");
}
