//! The scripts that give a lock from one owner to the next: all of it is done, or nothing.

use redis::Value;

use super::{Bed, Caller, LEASE, LOCK, Listener, Reply, THEM, US, Wide, owned};

const COUNTER: &str = "redisson_lock_token:{order:42}";

/// A kind of lock that is handed over.
struct Kind {
    hand_over: &'static str,
    keys: &'static [&'static str],
    channel: &'static str,
    /// How US holds it.
    held: &'static [&'static str],
    done: Reply,
}

const KINDS: [Kind; 3] = [
    Kind {
        hand_over: script!("reentrant_hand_over"),
        keys: &[LOCK],
        channel: super::CHANNEL,
        held: &["HSET", LOCK, US, "1"],
        done: Reply::Done,
    },
    Kind {
        hand_over: script!("fenced_hand_over"),
        keys: &[LOCK, COUNTER],
        channel: super::CHANNEL,
        held: &["HSET", LOCK, US, "1"],
        done: Reply::Counted(8),
    },
    Kind {
        hand_over: script!("simple_hand_over"),
        keys: &[LOCK],
        channel: "simple_lock__channel:{order:42}",
        held: &["SET", LOCK, US],
        done: Reply::Done,
    },
];

impl Kind {
    /// Held by US, with seven holds counted.
    async fn held(&self) -> Bed {
        let bed = Bed::new().await;
        bed.ask::<()>(&["SET", COUNTER, "7"]).await;
        bed.ask::<Value>(self.held).await;
        bed.ask::<()>(&["PEXPIRE", LOCK, "5000"]).await;
        bed
    }

    async fn hand_over(&self, caller: &Caller, from: &str, to: &str) -> Reply {
        let lease = LEASE.to_string();
        let arguments = [from, to, &lease];
        caller.run_on(self.hand_over, self.keys, &arguments).await
    }

    fn is_hash(&self) -> bool {
        self.held[0] == "HSET"
    }

    async fn is_theirs(&self, bed: &Bed) {
        match self.is_hash() {
            true => bed.is_held_by(THEM, 1).await,
            false => assert_eq!(bed.ask::<String>(&["GET", LOCK]).await, THEM),
        }
        bed.expires_in_about(LEASE).await;
    }
}

#[tokio::test]
async fn it_is_the_next_ones_and_nobody_is_told() {
    for kind in KINDS {
        let bed = kind.held().await;
        let mut listener = Listener::on(&bed.server, kind.channel).await;
        assert_eq!(kind.hand_over(&bed.admin, US, THEM).await, kind.done);
        kind.is_theirs(&bed).await;
        assert_eq!(listener.messages().await, [""; 0]);
        // Sent again, it is about a hold that is no more.
        let before = bed.everything().await;
        assert_eq!(kind.hand_over(&bed.admin, US, THEM).await, Reply::Absent);
        assert_eq!(bed.everything().await, before);
    }
}

/// A count that is too high, as a refused release leaves it, and what is left of an earlier hold of the next one.
#[tokio::test]
async fn counts_are_not_trusted() {
    for kind in KINDS.into_iter().filter(Kind::is_hash) {
        let bed = kind.held().await;
        bed.ask::<u32>(&["HSET", LOCK, US, "5", THEM, "3"]).await;
        assert_eq!(kind.hand_over(&bed.admin, US, THEM).await, kind.done);
        kind.is_theirs(&bed).await;
    }
}

#[tokio::test]
async fn who_does_not_hold_it_gives_nothing() {
    for kind in KINDS {
        let bed = kind.held().await;
        for (from, to) in [(THEM, US), (THEM, THEM)] {
            let before = bed.everything().await;
            assert_eq!(kind.hand_over(&bed.admin, from, to).await, Reply::Absent);
            assert_eq!(bed.everything().await, before);
        }
        bed.ask::<()>(&["DEL", LOCK]).await;
        let before = bed.everything().await;
        assert_eq!(kind.hand_over(&bed.admin, US, THEM).await, Reply::Absent);
        assert_eq!(bed.everything().await, before);
    }
}

#[tokio::test]
async fn foreign_keys_are_left_alone() {
    for kind in KINDS {
        let bed = kind.held().await;
        let foreign: &[&[&str]] = match kind.is_hash() {
            true => &[
                &["HSET", LOCK, "mode", "write", US, "1"],
                &["SET", LOCK, US],
            ],
            false => &[&["HSET", LOCK, US, "1"]],
        };
        for words in foreign {
            bed.ask::<()>(&["DEL", LOCK]).await;
            bed.ask::<Value>(words).await;
            let before = bed.everything().await;
            let answer = kind.hand_over(&bed.admin, US, THEM).await;
            let of_another_type = matches!(&answer, Reply::WrongKind(_));
            assert!(of_another_type || answer == Reply::Absent, "{answer:?}");
            assert_eq!(bed.everything().await, before);
        }
    }
}

/// Whatever the server refuses, there are never two owners, and never none.
#[tokio::test]
async fn what_is_refused_is_not_done() {
    for kind in KINDS {
        for command in ["hdel", "hset", "hmget", "pexpire", "get", "set", "incr"] {
            let bed = kind.held().await;
            let without = format!("-{command}");
            let rights = ["~*", "&*", "+@all", &without];
            let caller = Caller::with_rights(&bed.server, &rights).await;
            let holder = bed.ask::<Value>(&["DUMP", LOCK]).await;
            let answer = kind.hand_over(&caller, US, THEM).await;
            if answer == kind.done {
                kind.is_theirs(&bed).await;
                continue;
            }
            assert!(matches!(answer, Reply::Failed(_)), "{command}: {answer:?}");
            assert_eq!(bed.ask::<Value>(&["DUMP", LOCK]).await, holder, "{command}");
        }
    }
}

#[tokio::test]
async fn a_counter_that_cannot_count_keeps_the_lock_where_it_is() {
    let [_, kind, _] = KINDS;
    for counter in ["x", "9223372036854775807"] {
        let bed = kind.held().await;
        bed.ask::<()>(&["SET", COUNTER, counter]).await;
        let before = bed.everything().await;
        let answer = kind.hand_over(&bed.admin, US, THEM).await;
        assert!(matches!(answer, Reply::Failed(_)), "{answer:?}");
        assert_eq!(bed.everything().await, before);
    }
    let bed = kind.held().await;
    bed.ask::<()>(&["PEXPIRE", COUNTER, "60000"]).await;
    assert_eq!(kind.hand_over(&bed.admin, US, THEM).await, kind.done);
    assert_eq!(bed.ask::<i64>(&["PTTL", COUNTER]).await, -1);
}

#[tokio::test]
async fn out_of_memory_it_is_done_or_not_done() {
    for kind in KINDS {
        let bed = kind.held().await;
        let holder = bed.ask::<Value>(&["DUMP", LOCK]).await;
        bed.out_of_memory().await;
        let answer = kind.hand_over(&bed.admin, US, THEM).await;
        if answer == kind.done {
            kind.is_theirs(&bed).await;
        } else {
            assert!(answer.failed_with("OOM"), "{answer:?}");
            assert_eq!(bed.ask::<Value>(&["DUMP", LOCK]).await, holder);
        }
    }
}

#[tokio::test]
async fn many_in_one_call() {
    let [kind, ..] = KINDS;
    let bed = Bed::new().await;
    let operations: Vec<Wide> = (0..30)
        .map(|number| Wide {
            keys: vec![format!("lock:{number}")],
            arguments: owned(&[US, THEM, "60000"]),
        })
        .collect();
    for number in 0..30 {
        let lock = format!("lock:{number}");
        match number % 3 {
            0 => bed.ask::<Value>(&["HSET", &lock, US, "1"]).await,
            1 => bed.ask::<Value>(&["SET", &lock, "x"]).await,
            _ => Value::Nil,
        };
    }
    let replies = bed.admin.run_wide(kind.hand_over, &operations).await;
    for (number, reply) in replies.into_iter().enumerate() {
        match number % 3 {
            0 => assert_eq!(reply, Reply::Done),
            1 => assert_eq!(reply, Reply::WrongKind("string".into())),
            _ => assert_eq!(reply, Reply::Absent),
        }
    }
}
