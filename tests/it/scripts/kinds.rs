//! Data that is not a lock of this kind is refused and left alone (P-A7, P-A8).

use super::{Bed, LEASE, LOCK, Reply, THEM, US};

#[tokio::test]
async fn a_lock_without_expiry_is_busy_for_ever() {
    let bed = Bed::new().await;
    bed.ask::<u32>(&["HSET", LOCK, THEM, "1"]).await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Busy(-1));
    bed.is_held_by(THEM, 1).await;
    assert_eq!(bed.pttl().await, -1);
}

/// A foreign hash counts as a hold of its field, whatever the field is.
#[tokio::test]
async fn a_strangers_hash_is_busy() {
    let bed = Bed::new().await;
    bed.ask::<u32>(&["HSET", LOCK, "colour", "red", US, "not a count"])
        .await;
    let before = bed.snapshot().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Busy(-1));
    assert_eq!(bed.admin.acquire(THEM, 1).await, Reply::Busy(-1));
    assert_eq!(bed.admin.release(THEM, 0).await, Reply::Absent);
    assert_eq!(bed.admin.release(US, 1).await, Reply::Absent);
    assert_eq!(bed.admin.renew(THEM, LEASE).await, Reply::Absent);
    assert_eq!(bed.admin.inspect(US).await, Reply::Told(vec![-1, 0]));
    assert_eq!(bed.snapshot().await, before);
}

#[tokio::test]
async fn other_types_are_refused_by_name_and_left_alone() {
    let bed = Bed::new().await;
    for (kind, words) in [
        ("string", &["SET", LOCK, "1"] as &[_]),
        ("list", &["RPUSH", LOCK, US]),
        ("set", &["SADD", LOCK, US]),
        ("zset", &["ZADD", LOCK, "1", US]),
        ("stream", &["XADD", LOCK, "1-1", US, "1"]),
    ] {
        bed.ask::<redis::Value>(words).await;
        let before = bed.snapshot().await;
        let refused = Reply::WrongKind(kind.to_owned());
        assert_eq!(bed.admin.acquire(US, 1).await, refused);
        assert_eq!(bed.admin.acquire(US, 2).await, refused);
        assert_eq!(bed.admin.release(US, 1).await, refused);
        assert_eq!(bed.admin.release(US, 0).await, refused);
        assert_eq!(bed.admin.renew(US, LEASE).await, refused);
        assert_eq!(bed.admin.renew(US, 0).await, refused);
        assert_eq!(bed.admin.force_release().await, refused);
        assert_eq!(bed.admin.inspect(US).await, refused);
        assert_eq!(bed.snapshot().await, before, "the {kind} was changed");
        bed.ask::<u32>(&["DEL", LOCK]).await;
    }
}

/// A read hold has the same field as a plain one.
#[tokio::test]
async fn a_read_write_lock_is_refused_and_left_alone() {
    let bed = Bed::new().await;
    for mode in ["read", "write"] {
        let write = format!("{US}:write");
        let fields = ["HSET", LOCK, "mode", mode, US, "1", &write, "1", THEM, "1"];
        bed.ask::<u32>(&fields).await;
        bed.ask::<u32>(&["PEXPIRE", LOCK, "60000"]).await;
        let before = bed.snapshot().await;
        for holds in [1, 2] {
            let acquired = bed.admin.acquire(US, holds).await;
            assert!(
                matches!(&acquired, Reply::WrongKind(kind) if kind.contains("read-write")),
                "{acquired:?}"
            );
        }
        assert!(matches!(
            bed.admin.force_release().await,
            Reply::WrongKind(_)
        ));
        assert!(matches!(bed.admin.inspect(US).await, Reply::WrongKind(_)));
        // This owner has no plain hold, although the field exists.
        for holds in [1, 0] {
            let released = bed.admin.release(US, holds).await;
            assert!(
                matches!(released, Reply::WrongKind(_) | Reply::Absent),
                "{mode}: {released:?}"
            );
            assert_eq!(bed.snapshot().await, before, "{mode}: a release changed it");
        }
        let renewed = bed.admin.renew(US, 10 * LEASE).await;
        assert!(
            matches!(renewed, Reply::WrongKind(_) | Reply::Absent),
            "{mode}: {renewed:?}"
        );
        bed.expires_in_about(LEASE).await;
        bed.ask::<u32>(&["DEL", LOCK]).await;
    }
}
