//! The scripts that end a hold and keep its lock, because its job is done.

use std::collections::BTreeMap;

use super::{Bed, CHANNEL, Caller, LEASE, LOCK, Listener, Reply, THEM, US, Wide, owned};

const KEEP: &str = script!("reentrant_keep");
const FAIR_KEEP: &str = script!("fair_keep");
const SIMPLE_KEEP: &str = script!("simple_keep");
const WRITE_KEEP: &str = script!("write_keep");
const KEPT: &str = "run_at_least:done";
const QUEUE: &str = "redisson_lock_queue:{order:42}";
/// In milliseconds, less than the lease.
const REST: &str = "40000";

/// A script that keeps a lock, and a hold of an owner to begin with.
struct Case {
    script: &'static str,
    channel: &'static str,
    keys: &'static [&'static str],
    hold: fn(&str) -> Vec<String>,
    kept: &'static [&'static str],
    message: &'static str,
}

fn hash(owner: &str) -> Vec<String> {
    owned(&["HSET", LOCK, owner, "1"])
}

const CASES: [Case; 4] = [
    Case {
        script: KEEP,
        channel: CHANNEL,
        keys: &[LOCK],
        hold: hash,
        kept: &["HSET", LOCK, KEPT, "1"],
        message: "0",
    },
    Case {
        script: FAIR_KEEP,
        channel: CHANNEL,
        keys: &[LOCK, QUEUE],
        hold: hash,
        kept: &["HSET", LOCK, KEPT, "1"],
        message: "0",
    },
    Case {
        script: SIMPLE_KEEP,
        channel: "simple_lock__channel:{order:42}",
        keys: &[LOCK],
        hold: |owner| owned(&["SET", LOCK, owner]),
        kept: &["SET", LOCK, KEPT],
        message: "0",
    },
    Case {
        script: WRITE_KEEP,
        channel: "redisson_rwlock:{order:42}",
        keys: &[LOCK],
        hold: |owner| {
            owned(&[
                "HSET",
                LOCK,
                "mode",
                "write",
                &format!("{owner}:write"),
                "1",
            ])
        },
        kept: &[
            "HSET",
            LOCK,
            "mode",
            "write",
            "run_at_least:done:write",
            "1",
        ],
        message: "1",
    },
];

impl Case {
    async fn held_by(&self, bed: &Bed, owner: &str) {
        bed.ask::<redis::Value>(&["DEL", LOCK]).await;
        bed.ask::<redis::Value>(&(self.hold)(owner)).await;
        bed.ask::<u32>(&["PEXPIRE", LOCK, "60000"]).await;
    }

    async fn keep(&self, caller: &Caller, owner: &str) -> Reply {
        let arguments = [owner, KEPT, REST, self.channel];
        caller.run_on(self.script, self.keys, &arguments).await
    }

    /// The lock's data after the commands `words`.
    async fn data(bed: &Bed, words: &[&str]) -> Vec<u8> {
        bed.ask::<redis::Value>(&["DEL", "{order:42}:other"]).await;
        let mut words = owned(words);
        words[1] = "{order:42}:other".into();
        bed.ask::<redis::Value>(&words).await;
        let data = bed.ask(&["DUMP", "{order:42}:other"]).await;
        bed.ask::<u32>(&["DEL", "{order:42}:other"]).await;
        data
    }
}

#[tokio::test]
async fn a_lock_is_kept_once_for_its_owner_alone() {
    let bed = Bed::new().await;
    for case in &CASES {
        bed.ask::<u32>(&["RPUSH", QUEUE, THEM]).await;
        let heard = match case.script == FAIR_KEEP {
            true => &format!("{CHANNEL}:{THEM}"),
            false => case.channel,
        };
        let mut listener = Listener::on(&bed.server, heard).await;
        case.held_by(&bed, US).await;
        let before = bed.snapshot().await;
        assert_eq!(case.keep(&bed.admin, THEM).await, Reply::Absent);
        assert_eq!(bed.snapshot().await, before);
        assert_eq!(listener.messages().await, [""; 0]);
        assert_eq!(case.keep(&bed.admin, US).await, Reply::Done);
        assert_eq!(listener.messages().await, [case.message]);
        let left = bed.pttl().await;
        assert!((30_000..=40_000).contains(&left), "{left}");
        let kept: Vec<u8> = bed.ask(&["DUMP", LOCK]).await;
        assert_eq!(kept, Case::data(&bed, case.kept).await, "{}", case.channel);
        // A repetition, and the other operations of the former owner.
        let before = bed.snapshot().await;
        assert_eq!(case.keep(&bed.admin, US).await, Reply::Absent);
        assert_eq!(bed.snapshot().await, before);
        assert_eq!(listener.messages().await, [""; 0]);
        bed.ask::<u32>(&["DEL", LOCK, QUEUE]).await;
        assert_eq!(case.keep(&bed.admin, US).await, Reply::Absent);
        bed.is_free().await;
    }
}

#[tokio::test]
async fn the_former_owner_of_a_kept_lock_is_refused() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    assert_eq!(bed.admin.acquire(US, 2).await, Reply::Done);
    assert_eq!(CASES[0].keep(&bed.admin, US).await, Reply::Done);
    let before = bed.snapshot().await;
    assert!(matches!(
        bed.admin.acquire(US, 1).await,
        Reply::Busy(1..=40_000)
    ));
    assert_eq!(bed.admin.release(US, 0).await, Reply::Absent);
    assert_eq!(bed.admin.renew(US, LEASE).await, Reply::Absent);
    assert_eq!(bed.snapshot().await, before);
    assert!(matches!(
        &bed.admin.inspect(KEPT).await,
        Reply::Told(seen) if seen[0] > 0 && seen[1] == 1
    ));
    assert_eq!(bed.admin.force_release().await, Reply::Done);
    bed.is_free().await;
}

/// The owner of the write hold reads too: its read hold keeps its time.
#[tokio::test]
async fn a_kept_write_lock_leaves_the_owners_read_holds_their_time() {
    let bed = Bed::new().await;
    let case = &CASES[3];
    case.held_by(&bed, US).await;
    bed.ask::<u32>(&["HSET", LOCK, US, "1"]).await;
    assert_eq!(case.keep(&bed.admin, US).await, Reply::Done);
    bed.expires_in_about(LEASE).await;
    assert!(bed.pttl().await > 40_000);
    let fields = BTreeMap::from(
        [
            ("mode", "write"),
            (US, "1"),
            ("run_at_least:done:write", "1"),
        ]
        .map(|(field, value)| (field.to_owned(), value.to_owned())),
    );
    assert_eq!(bed.fields().await, fields);
}

#[tokio::test]
async fn a_server_without_memory_keeps_locks() {
    let bed = Bed::new().await;
    for case in &CASES {
        bed.ask::<()>(&["CONFIG", "SET", "maxmemory", "0"]).await;
        case.held_by(&bed, US).await;
        bed.out_of_memory().await;
        assert_eq!(
            case.keep(&bed.admin, US).await,
            Reply::Done,
            "{}",
            case.channel
        );
        assert!(bed.pttl().await <= 40_000);
    }
}

/// The lock of a user whose rights end meanwhile has an expiry, and keeps its owner until the mark is set.
#[tokio::test]
async fn a_refused_command_leaves_no_lock_without_expiry() {
    let bed = Bed::new().await;
    for case in &CASES {
        for lacks in ["-publish", "-pexpire", "-hset", "-set", "-hdel"] {
            bed.ask::<u32>(&["RPUSH", QUEUE, THEM]).await;
            case.held_by(&bed, US).await;
            let rights = ["~*", "&*", "+@all", lacks];
            let caller = Caller::with_rights(&bed.server, &rights).await;
            let answer = case.keep(&caller, US).await;
            let is_used = matches!(answer, Reply::Failed(_));
            assert!(is_used || answer == Reply::Done, "{lacks}: {answer:?}");
            assert!(bed.pttl().await > 0, "{}: {lacks}", case.channel);
            if is_used {
                let again = case.keep(&bed.admin, US).await;
                assert_eq!(again, Reply::Done, "{}: {lacks}", case.channel);
            }
        }
    }
}

#[tokio::test]
async fn other_data_is_refused_and_left_alone() {
    let bed = Bed::new().await;
    for case in &CASES {
        for words in [
            &["SET", LOCK, "1"] as &[_],
            &["RPUSH", LOCK, US],
            &["HSET", LOCK, "mode", "read", US, "1"],
            &["HSET", LOCK, "colour", "red"],
        ] {
            bed.ask::<redis::Value>(words).await;
            let before = bed.snapshot().await;
            let answer = case.keep(&bed.admin, US).await;
            let is_refused = matches!(answer, Reply::WrongKind(_) | Reply::Absent);
            assert!(is_refused, "{words:?}: {answer:?}");
            assert_eq!(bed.snapshot().await, before, "{words:?}");
            bed.ask::<u32>(&["DEL", LOCK]).await;
        }
    }
}

#[tokio::test]
async fn locks_are_kept_in_one_call() {
    let bed = Bed::new().await;
    let names = ["{order:42}:1", "{order:42}:2", "{order:42}:3"];
    for name in &names[..2] {
        bed.ask::<u32>(&["HSET", name, US, "1"]).await;
    }
    let operations = names.map(|name| Wide {
        keys: owned(&[name]),
        arguments: owned(&[US, KEPT, REST, CHANNEL]),
    });
    let replies = bed.admin.run_wide(KEEP, &operations).await;
    assert_eq!(replies, [Reply::Done, Reply::Done, Reply::Absent]);
    for name in &names[..2] {
        assert!(bed.ask::<i64>(&["PTTL", name]).await > 0);
    }
}
