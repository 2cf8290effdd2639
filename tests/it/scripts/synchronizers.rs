//! The scripts of semaphores and latches: repetitions, late commands, refusals and foreign data.

use super::{Bed, Caller, LOCK, Listener, Reply};

const ATTEMPT: &str = "{order:42}:attempt:us/1";
const ENDS: &str = "{order:42}:timeout";
const CHANNEL: &str = "redisson_sc:{order:42}";
const LATCH: &str = "redisson_countdownlatch__channel__{order:42}";

const ACQUIRE: &str = script!("attempts", "number", "semaphore_acquire");
const RELEASE: &str = script!("attempts", "number", "semaphore_release");
const DRAIN: &str = script!("attempts", "number", "semaphore_drain");
const BEGIN: &str = script!("attempts", "number", "number_begin");
const COUNT_DOWN: &str = script!("attempts", "number", "latch_count_down");
const DELETE: &str = script!("attempts", "number", "latch_delete");
const LOOK: &str = script!("number", "latch_look");
const PERMIT: &str = script!("number", "clock", "permits", "permit_acquire");
const GIVE_BACK: &str = script!("attempts", "number", "clock", "permits", "permit_release");
const EXTEND: &str = script!("number", "clock", "permits", "permit_extend");
const SET: &str = script!("number", "permit_set");
const COUNT: &str = script!("number", "clock", "permits", "permit_count");

/// Sends the client's attempt `number` on a number.
async fn attempt(caller: &Caller, script: &str, arguments: &[&str], number: u32) -> Reply {
    let number = number.to_string();
    let arguments = [arguments, &[&number, "60000"]].concat();
    let keys: &[&str] = match script {
        ACQUIRE | BEGIN => &[LOCK, ATTEMPT, ENDS],
        _ => &[LOCK, ATTEMPT],
    };
    caller.run_on(script, keys, &arguments).await
}

#[tokio::test]
async fn an_attempt_is_executed_once_and_not_after_a_later_one() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    for _ in 0..2 {
        let begun = attempt(admin, BEGIN, &["0", "9", CHANNEL, "9"], 1).await;
        assert_eq!(begun, Reply::Done);
    }
    for _ in 0..2 {
        assert_eq!(attempt(admin, ACQUIRE, &["2"], 2).await, Reply::Counted(7));
    }
    for _ in 0..2 {
        let released = attempt(admin, RELEASE, &["1", CHANNEL], 3).await;
        assert_eq!(released, Reply::Counted(8));
    }
    assert_eq!(listener.messages().await, ["9", "8"]);
    for script in [ACQUIRE, RELEASE] {
        let arguments: &[&str] = if script == ACQUIRE {
            &["2"]
        } else {
            &["1", CHANNEL]
        };
        let late = attempt(admin, script, arguments, 2).await;
        assert!(late.failed_with("a later attempt"), "{late:?}");
    }
    for _ in 0..2 {
        assert_eq!(attempt(admin, DRAIN, &[], 4).await, Reply::Counted(8));
    }
    assert_eq!(bed.ask::<String>(&["GET", LOCK]).await, "0");
    assert_eq!(attempt(admin, ACQUIRE, &["1"], 5).await, Reply::Busy(0));
    let left: i64 = bed.ask(&["PTTL", ATTEMPT]).await;
    assert!((1..=60_000).contains(&left), "{left}");
    // Foreign data at the attempts' key is no attempt.
    bed.ask::<()>(&["SET", ATTEMPT, "odd"]).await;
    assert_eq!(
        attempt(admin, RELEASE, &["1", CHANNEL], 1).await,
        Reply::Counted(1)
    );
}

/// A number whose semaphore has acquired permits with ends.
#[tokio::test]
async fn the_name_of_an_expirable_semaphore_is_refused() {
    let bed = Bed::new().await;
    assert_eq!(attempt(&bed.admin, ACQUIRE, &["1"], 1).await, Reply::Absent);
    bed.ask::<i64>(&["ZADD", ENDS, "1000", &of("a")]).await;
    let theirs = Reply::WrongKind("an expirable semaphore".into());
    assert_eq!(attempt(&bed.admin, ACQUIRE, &["1"], 2).await, theirs);
    bed.ask::<()>(&["SET", LOCK, "1"]).await;
    assert_eq!(attempt(&bed.admin, ACQUIRE, &["2"], 3).await, theirs);
    for (expirable, reply) in [("0", &theirs), ("1", &Reply::Absent)] {
        let begun = attempt(&bed.admin, BEGIN, &[expirable, "5", CHANNEL, "5"], 4).await;
        assert_eq!(begun, *reply);
    }
    assert_eq!(bed.ask::<String>(&["GET", LOCK]).await, "1");
}

#[tokio::test]
async fn a_latch_counts_an_attempt_once() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    let mut listener = Listener::on(&bed.server, LATCH).await;
    assert_eq!(
        attempt(admin, BEGIN, &["0", "2", LATCH, "1"], 1).await,
        Reply::Done
    );
    assert_eq!(
        attempt(admin, BEGIN, &["0", "5", LATCH, "1"], 2).await,
        Reply::Absent
    );
    let look = async |mark: &str| admin.run(LOOK, &[LATCH, mark]).await;
    assert_eq!(look("77").await, Reply::Counted(2));
    for _ in 0..2 {
        assert_eq!(
            attempt(admin, COUNT_DOWN, &[LATCH], 3).await,
            Reply::Counted(1)
        );
    }
    assert_eq!(
        attempt(admin, COUNT_DOWN, &[LATCH], 4).await,
        Reply::Counted(0)
    );
    assert_eq!(
        attempt(admin, COUNT_DOWN, &[LATCH], 5).await,
        Reply::Counted(0)
    );
    assert_eq!(look("78").await, Reply::Counted(0));
    assert_eq!(listener.messages().await, ["1", "77", "0"]);
}

#[tokio::test]
async fn expired_permits_are_taken_back_and_announced() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    let take = async |ids: &str, lease: &str| {
        let arguments = [&of(ids), lease, CHANNEL];
        admin.run_on(PERMIT, &[LOCK, ENDS], &arguments).await
    };
    assert_eq!(take("a", "60000").await, Reply::Told(vec![0, 0, -1, -1]));
    bed.ask::<()>(&["SET", LOCK, "2"]).await;
    // A permit of Redisson's that expired long ago.
    bed.ask::<i64>(&["ZADD", ENDS, "1000", &of("d")]).await;
    for _ in 0..2 {
        let taken = take("a", "-1").await;
        assert_eq!(
            taken,
            Reply::Told(vec![1, 2, -1, 0]),
            "the first request or its repetition"
        );
    }
    let Reply::Told(counted) = take("b", "60000").await else {
        panic!("two more permits must be there");
    };
    assert!(
        counted[..2] == [1, 1] && (1..=60_000).contains(&counted[2]),
        "{counted:?}"
    );
    assert!(matches!(take("c", "90000").await, Reply::Told(of) if of[..2] == [1, 0]));
    let refused = take("d", "60000").await;
    assert!(
        matches!(&refused, Reply::Told(of) if of[..2] == [0, 0] && (1..=60_000).contains(&of[2]) && of[3] == 3),
        "{refused:?}"
    );
    let count = admin.run_on(COUNT, &[LOCK, ENDS], &[CHANNEL]).await;
    assert_eq!(count, Reply::Told(vec![1, 0, 3]));
    let give_back = async |ids: &str, number: &str| {
        let arguments = [&of(ids), CHANNEL, number, "60000"];
        admin
            .run_on(GIVE_BACK, &[LOCK, ATTEMPT, ENDS], &arguments)
            .await
    };
    for _ in 0..2 {
        assert_eq!(give_back("a", "1").await, Reply::Done);
    }
    assert_eq!(give_back("a", "2").await, Reply::Absent);
    assert_eq!(bed.ask::<String>(&["GET", LOCK]).await, "1");
    assert_eq!(listener.messages().await, ["3", "1"]);
}

/// An id for each letter.
fn of(letters: &str) -> String {
    let ids = letters.chars().map(|letter| letter.to_string().repeat(16));
    ids.collect()
}

#[tokio::test]
async fn permits_are_acquired_and_released_all_or_none() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    let take = async |ids: &str| {
        let arguments = [&of(ids), "-1", CHANNEL];
        admin.run_on(PERMIT, &[LOCK, ENDS], &arguments).await
    };
    let give_back = async |ids: &str, number: &str| {
        let arguments = [&of(ids), CHANNEL, number, "60000"];
        let keys = [LOCK, ATTEMPT, ENDS];
        admin.run_on(GIVE_BACK, &keys, &arguments).await
    };
    let left = async || bed.ask::<String>(&["GET", LOCK]).await;
    let ids = async || bed.ask::<Vec<String>>(&["ZRANGE", ENDS, "0", "-1"]).await;
    bed.ask::<()>(&["SET", LOCK, "4"]).await;
    for _ in 0..2 {
        assert_eq!(
            take("abc").await,
            Reply::Told(vec![1, 1, -1, 0]),
            "the first request or its repetition"
        );
    }
    assert_eq!(take("de").await, Reply::Told(vec![0, 1, -1, 4]));
    assert_eq!((left().await, ids().await.len()), ("1".to_owned(), 3));
    assert_eq!(give_back("axc", "1").await, Reply::Absent);
    assert_eq!((left().await, ids().await.len()), ("1".to_owned(), 3));
    assert!(listener.messages().await.is_empty());
    for _ in 0..2 {
        assert_eq!(
            give_back("ac", "2").await,
            Reply::Done,
            "the first request or its repetition"
        );
    }
    assert_eq!((left().await, ids().await), ("3".to_owned(), vec![of("b")]));
    // The expired permit returns to the pool, and the other one stays.
    bed.ask::<i64>(&["ZADD", ENDS, "1000", &of("e")]).await;
    for _ in 0..2 {
        assert_eq!(
            give_back("be", "3").await,
            Reply::Absent,
            "the first request or its repetition"
        );
    }
    assert_eq!((left().await, ids().await), ("4".to_owned(), vec![of("b")]));
    assert_eq!(listener.messages().await, ["3", "4"]);
}

#[tokio::test]
async fn a_permit_whose_end_has_come_is_not_prolonged() {
    let bed = Bed::new().await;
    let extend = async |id: &str| {
        let arguments = [&of(id), "60000"];
        bed.admin.run_on(EXTEND, &[ENDS], &arguments).await
    };
    bed.ask::<i64>(&["ZADD", ENDS, "1000", &of("a"), "922337203685477", &of("b")])
        .await;
    assert_eq!(extend("a").await, Reply::Absent);
    assert_eq!(extend("b").await, Reply::Done);
    let score = async |id: &str| bed.ask::<i64>(&["ZSCORE", ENDS, &of(id)]).await;
    assert_eq!(score("a").await, 1_000);
    assert!(score("b").await < 922_337_203_685_477);
}

#[tokio::test]
async fn a_refused_semaphore_request_changes_nothing() {
    let bed = Bed::new().await;
    bed.ask::<()>(&["SET", LOCK, "5"]).await;
    let rights = ["~*", "+@all", "resetchannels"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let release = attempt(&caller, RELEASE, &["1", CHANNEL], 1).await;
    assert!(release.failed_with("channel"), "{release:?}");
    assert_eq!(bed.ask::<String>(&["GET", LOCK]).await, "5");
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    let most = i64::MAX.to_string();
    let too_many = attempt(&bed.admin, RELEASE, &[&most, CHANNEL], 2).await;
    assert!(too_many.failed_with("too many"), "{too_many:?}");
    assert_eq!(listener.messages().await, [""; 0], "no message");
    bed.out_of_memory().await;
    let refused = attempt(&bed.admin, ACQUIRE, &["1"], 3).await;
    assert!(refused.failed_with("OOM"), "{refused:?}");
    assert_eq!(bed.ask::<String>(&["GET", LOCK]).await, "5");
}

/// An id without a subtracted permit adds one at its end; a subtracted permit without an id is lost.
#[tokio::test]
async fn without_a_right_no_permit_is_lost_or_gained() {
    let bed = Bed::new().await;
    let (keys, ids) = ([LOCK, ATTEMPT, ENDS], of("a"));
    for (attempts, right) in (1..).zip([
        "-get",
        "-set",
        "-zscore",
        "-zrange",
        "-pttl",
        "-zadd",
        "-pexpire",
        "-decrby",
        "-incrby",
        "-zrem",
        "-publish",
        "-zrangebyscore",
        "-time",
    ]) {
        let caller = Caller::with_rights(&bed.server, &["~*", "&*", "+@all", right]).await;
        bed.ask::<()>(&["SET", LOCK, "5", "EX", "1000"]).await;
        let sum = async || {
            let left: i64 = bed.ask(&["GET", LOCK]).await;
            left + bed.ask::<i64>(&["ZCARD", ENDS]).await
        };
        let arguments = [&*of("bc"), "60000", CHANNEL];
        caller.run_on(PERMIT, &[LOCK, ENDS], &arguments).await;
        assert_eq!(sum().await, 5, "acquired {right}");
        bed.ask::<i64>(&["ZADD", ENDS, "922337203685477", &ids])
            .await;
        let arguments = [&*ids, CHANNEL, &attempts.to_string(), "60000"];
        caller.run_on(GIVE_BACK, &keys, &arguments).await;
        assert_eq!(sum().await, 6, "released {right}");
        bed.ask::<i64>(&["ZADD", ENDS, "XX", "1000", &ids]).await;
        let before = sum().await;
        caller.run_on(COUNT, &[LOCK, ENDS], &[CHANNEL]).await;
        assert_eq!(sum().await, before, "taken back {right}");
        bed.ask::<()>(&["DEL", LOCK, ENDS]).await;
    }
    // The last id returns with the semaphore's expiry.
    let rights = ["~*", "&*", "+@all", "-incrby"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    bed.ask::<()>(&["SET", LOCK, "5", "EX", "1000"]).await;
    bed.ask::<i64>(&["ZADD", ENDS, "922337203685477", &ids])
        .await;
    let arguments = [&*ids, CHANNEL, "99", "60000"];
    let refused = caller.run_on(GIVE_BACK, &keys, &arguments).await;
    assert!(matches!(refused, Reply::Failed(_)), "{refused:?}");
    assert_eq!(bed.ask::<i64>(&["ZCARD", ENDS]).await, 1);
    let left: i64 = bed.ask(&["PTTL", ENDS]).await;
    assert!((1..=1_000_000).contains(&left), "{left}");
}

#[tokio::test]
async fn a_full_server_takes_permits_back_renews_them_and_counts_down() {
    let bed = Bed::new().await;
    bed.ask::<()>(&["SET", LOCK, "5"]).await;
    bed.ask::<i64>(&["ZADD", ENDS, "922337203685477", &of("a")])
        .await;
    bed.out_of_memory().await;
    let released = attempt(&bed.admin, RELEASE, &["1", CHANNEL], 1).await;
    assert_eq!(released, Reply::Counted(6));
    let renewed = bed
        .admin
        .run_on(EXTEND, &[ENDS], &[&of("a"), "60000"])
        .await;
    assert_eq!(renewed, Reply::Done);
    let (keys, ids) = ([LOCK, ATTEMPT, ENDS], of("a"));
    let given_back = [&*ids, CHANNEL, "2", "60000"];
    let given_back = bed.admin.run_on(GIVE_BACK, &keys, &given_back).await;
    assert_eq!(given_back, Reply::Done);
    let counted = attempt(&bed.admin, COUNT_DOWN, &[LATCH], 3).await;
    assert_eq!(counted, Reply::Counted(6));
}

/// A message about an operation that a server refuses would be untrue: a latch would open for its waiters alone.
#[tokio::test]
async fn a_master_without_its_replicas_publishes_nothing() {
    let bed = Bed::new().await;
    let admin = &bed.admin;
    bed.ask::<()>(&["SET", LOCK, "1"]).await;
    bed.ask::<i64>(&["ZADD", ENDS, "922337203685477", &of("a")])
        .await;
    bed.ask::<()>(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .await;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    let counted = attempt(admin, COUNT_DOWN, &[CHANNEL], 1).await;
    let deleted = attempt(admin, DELETE, &[CHANNEL], 2).await;
    let released = attempt(admin, RELEASE, &["1", CHANNEL], 3).await;
    let (keys, ids) = ([LOCK, ATTEMPT, ENDS], of("a"));
    let given_back = [&*ids, CHANNEL, "4", "60000"];
    let given_back = admin.run_on(GIVE_BACK, &keys, &given_back).await;
    for refused in [counted, deleted, released, given_back] {
        assert!(refused.failed_with("NOREPLICAS"), "{refused:?}");
    }
    assert_eq!(listener.messages().await, [""; 0]);
}

/// Redisson's listeners take a number below 0 for that many permits, and fail.
#[tokio::test]
async fn no_message_says_that_less_than_no_permits_are_left() {
    let bed = Bed::new().await;
    bed.ask::<()>(&["SET", LOCK, "5"]).await;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    let removed = attempt(&bed.admin, RELEASE, &["-7", CHANNEL], 1).await;
    assert_eq!(removed, Reply::Counted(-2));
    let set = bed.admin.run_on(SET, &[LOCK, ENDS], &["0", CHANNEL]).await;
    assert_eq!(set, Reply::Counted(0));
    assert_eq!(listener.messages().await, [""; 0]);
}
