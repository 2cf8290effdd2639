//! The read-write lock's scripts when the server refuses a command, and in calls with several
//! operations (P-A8 to P-A10).

use super::{
    Bed, Caller, LEASE, LOCK, Listener, Reply, THEM, US, Wide,
    read_write::{
        BASE, CHANNEL, READ_ACQUIRE, READ_FORCE_RELEASE, READ_INSPECT, READ_RELEASE, READ_RENEW,
        Sides, WRITE_ACQUIRE, WRITE_FORCE_RELEASE, WRITE_INSPECT, WRITE_RELEASE, WRITE_RENEW,
        marker,
    },
};

#[tokio::test]
async fn without_the_right_to_publish_nothing_is_released() {
    let bed = Bed::new().await;
    let rights = ["~*", "+@all", "resetchannels"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let (sides, all) = (Sides(&caller), Sides(&bed.admin));
    let refused = async |answer: Reply, before| {
        assert!(matches!(answer, Reply::Failed(_)), "{answer:?}");
        assert_eq!(bed.everything().await, before);
    };
    assert_eq!(sides.read(US, 1).await, Reply::Done);
    let before = bed.everything().await;
    refused(sides.read_end(US, 0).await, before.clone()).await;
    refused(caller.run(READ_FORCE_RELEASE, &[CHANNEL]).await, before).await;
    assert_eq!(all.read_end(US, 0).await, Reply::Done);
    assert_eq!(sides.write(US, 1).await, Reply::Done);
    for downgrade in [false, true] {
        if downgrade {
            assert_eq!(sides.read_inside(LEASE, US, 1).await, Reply::Done);
        }
        let before = bed.everything().await;
        refused(sides.write_end(US, 0).await, before.clone()).await;
        refused(caller.run(WRITE_FORCE_RELEASE, &[CHANNEL]).await, before).await;
    }
    // Without a message to publish, the release works: another owner reads on.
    assert_eq!(all.write_end(US, 0).await, Reply::Done);
    assert_eq!(sides.read(THEM, 1).await, Reply::Done);
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
}

#[tokio::test]
async fn without_the_right_to_set_a_lease_nothing_is_taken() {
    let bed = Bed::new().await;
    let rights = ["~*", "&*", "+@all", "-pexpire"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let sides = Sides(&caller);
    for answer in [sides.read(US, 1).await, sides.write(US, 1).await] {
        assert!(matches!(answer, Reply::Failed(_)), "{answer:?}");
        assert!(!bed.ask::<bool>(&["EXISTS", LOCK]).await);
    }
    for key in bed.ask::<Vec<String>>(&["KEYS", "*"]).await {
        let left: i64 = bed.ask(&["PTTL", &key]).await;
        assert!(left > 0, "{key} stays for ever");
    }
}

#[tokio::test]
async fn out_of_memory_releases_and_renewals_work() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    for holds in [1, 2] {
        assert_eq!(sides.write(US, holds).await, Reply::Done);
        assert_eq!(sides.read_inside(LEASE, US, holds).await, Reply::Done);
    }
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    bed.out_of_memory().await;
    assert_eq!(sides.write_renew(US, 5 * LEASE).await, Reply::Done);
    assert_eq!(sides.read_renew(US, 5 * LEASE).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    assert_eq!(sides.write_end(US, 1).await, Reply::Done);
    assert_eq!(sides.read_end(US, 1).await, Reply::Done);
    // The downgrade admits readers, once there is memory.
    assert_eq!(sides.write_end(US, 0).await, Reply::Done);
    assert_eq!(listener.messages().await, ["1"]);
    let fields = bed.fields().await;
    assert_eq!(
        fields.get("mode").map(String::as_str),
        Some("read"),
        "{fields:?}"
    );
    assert!(!fields.contains_key(&format!("{US}:write")), "{fields:?}");
    let refused = sides.read(THEM, 1).await;
    assert!(refused.failed_with("OOM"), "{refused:?}");
    assert!(matches!(sides.write(THEM, 1).await, Reply::Busy(_)));
    assert_eq!(sides.read_end(US, 0).await, Reply::Counted(1));
    assert_eq!(listener.messages().await, ["0"]);
    for answer in [sides.read(US, 1).await, sides.write(US, 1).await] {
        assert!(answer.failed_with("OOM"), "{answer:?}");
    }
    bed.is_free().await;
}

/// A client relies on the lease that a repeated release sets. The first sending may have been
/// executed before the server was full.
#[tokio::test]
async fn out_of_memory_a_repeated_read_release_sets_the_lease() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    assert_eq!(sides.read_for(LEASE / 10, US, 1).await, Reply::Done);
    bed.out_of_memory().await;
    assert_eq!(sides.read_end(US, 1).await, Reply::Done);
    bed.expires_in_about(LEASE).await;
    // An expired marker is made anew.
    bed.ask::<()>(&["DEL", &marker(US, 1)]).await;
    assert_eq!(sides.read_end(US, 1).await, Reply::Done);
    let left: i64 = bed.ask(&["PTTL", &marker(US, 1)]).await;
    assert!(left > LEASE / 2, "{left}");
}

/// P-A8: Redisson grants a write lock over a plain hold (measured).
#[tokio::test]
async fn a_plain_lock_and_other_types_are_refused_and_left_alone() {
    let bed = Bed::new().await;
    let (sides, admin) = (Sides(&bed.admin), &bed.admin);
    for words in [
        &["HSET", LOCK, US, "1"] as &[&str],
        &["HSET", LOCK, "colour", "red"],
        &["SET", LOCK, US],
        &["RPUSH", LOCK, US],
        &["ZADD", LOCK, "1", US],
    ] {
        bed.ask::<redis::Value>(words).await;
        let before = bed.everything().await;
        let answers = [
            sides.read(US, 1).await,
            sides.read(US, 2).await,
            sides.write(US, 1).await,
            sides.write(US, 2).await,
            admin.run(READ_FORCE_RELEASE, &[CHANNEL]).await,
            admin.run(WRITE_FORCE_RELEASE, &[CHANNEL]).await,
            admin.run(READ_INSPECT, &[US]).await,
            admin.run(WRITE_INSPECT, &[US]).await,
        ];
        for answer in answers {
            assert!(
                matches!(answer, Reply::WrongKind(_)),
                "{words:?}: {answer:?}"
            );
        }
        for answer in [
            sides.read_end(US, 0).await,
            sides.read_end(US, 1).await,
            sides.write_end(US, 0).await,
            sides.write_end(US, 1).await,
            sides.read_renew(US, LEASE).await,
            sides.write_renew(US, LEASE).await,
        ] {
            let none = matches!(answer, Reply::WrongKind(_) | Reply::Absent);
            assert!(none, "{words:?}: {answer:?}");
        }
        assert_eq!(bed.everything().await, before, "{words:?}");
        bed.ask::<()>(&["DEL", LOCK]).await;
    }
}

/// Each operation has its own markers. One lock has data of another type, which affects no other
/// operation.
#[tokio::test]
async fn many_operations_in_one_call() {
    const BAD: usize = 3;
    let bed = Bed::new().await;
    bed.ask::<()>(&["SET", "lock:3", "x"]).await;
    let before = bed.everything().await;
    let locks: Vec<String> = (0..20).map(|number| format!("lock:{number}")).collect();
    let run = async |script: &str, arguments: &[&str]| {
        // Each lock has its own markers.
        let needs_intent = [READ_ACQUIRE, WRITE_ACQUIRE].contains(&script);
        let operations = locks.iter().map(|lock| {
            let own = |word: &&str| word.replace(BASE, &format!("{{{lock}}}"));
            let keys = [lock.clone(), format!("{{{lock}}}:write_intent")];
            Wide {
                keys: keys[..1 + usize::from(needs_intent)].to_vec(),
                arguments: arguments.iter().map(own).collect(),
            }
        });
        let operations: Vec<Wide> = operations.collect();
        let mut replies = bed.admin.run_wide(script, &operations).await;
        let bad = replies.remove(BAD);
        assert!(matches!(bad, Reply::WrongKind(_)), "{bad:?}");
        replies
    };
    let done = vec![Reply::Done; 19];
    assert_eq!(run(WRITE_ACQUIRE, &[US, "60000", "1", "0"]).await, done);
    assert_eq!(
        run(READ_ACQUIRE, &[US, "60000", "1", "1", "0", "channel", BASE]).await,
        done
    );
    let busy = run(
        READ_ACQUIRE,
        &[THEM, "60000", "1", "0", "0", "channel", BASE],
    )
    .await;
    assert!(busy.iter().all(|reply| matches!(reply, Reply::Busy(1..))));
    assert_eq!(run(WRITE_RENEW, &[US, "70000"]).await, done);
    assert_eq!(run(READ_RENEW, &[US, "70000", BASE]).await, done);
    assert_eq!(
        run(WRITE_RELEASE, &[US, "0", "0", "channel", BASE]).await,
        done
    );
    assert_eq!(
        run(
            READ_ACQUIRE,
            &[THEM, "60000", "1", "0", "0", "channel", BASE]
        )
        .await,
        done
    );
    assert_eq!(
        run(READ_RELEASE, &[US, "0", "0", "channel", BASE]).await,
        done
    );
    assert_eq!(
        run(READ_RELEASE, &[THEM, "0", "0", "channel", BASE]).await,
        done
    );
    assert_eq!(bed.everything().await, before);
}

/// P-RW6: another owner's field may have any number.
#[tokio::test]
async fn another_readers_count_is_not_believed() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    assert_eq!(sides.read(US, 1).await, Reply::Done);
    for (reader, count) in [
        ("a", "1000000000"),
        ("b", "1e9"),
        ("c", "-1"),
        ("d", "x"),
        ("e", "nan"),
    ] {
        bed.ask::<()>(&["HSET", LOCK, reader, count]).await;
    }
    bed.server.reset_calls().await;
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    let looks = bed.inner_calls().await["pttl"];
    assert!(looks <= 2000 + 10, "{looks}");
    bed.is_free().await;
}
