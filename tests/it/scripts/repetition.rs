//! A second sending is harmless: a request names the hold count that results, and its repetition
//! finds that count.

use super::{Bed, CHANNEL, LEASE, LOCK, Listener, Reply, THEM, US};

/// P-A1: a request with a lost reply and its repetition give one hold.
#[tokio::test]
async fn an_acquisition_counts_once_however_often_it_is_sent() {
    let bed = Bed::new().await;
    for holds in 1..=3 {
        for _ in 0..3 {
            assert_eq!(bed.admin.acquire(US, holds).await, Reply::Done);
            bed.is_held_by(US, holds).await;
        }
    }
    for holds in [2, 1, 0] {
        assert_eq!(bed.admin.release(US, holds).await, Reply::Done);
    }
    bed.is_free().await;
}

/// A hold that the client does not count is replaced: the count of the request is right.
#[tokio::test]
async fn an_uncounted_hold_of_the_owner_is_replaced() {
    let bed = Bed::new().await;
    bed.ask::<u32>(&["HSET", LOCK, US, "5"]).await;
    assert_eq!(bed.admin.acquire(US, 2).await, Reply::Done);
    bed.is_held_by(US, 2).await;
    bed.expires_in_about(LEASE).await;
    bed.ask::<u32>(&["HSET", LOCK, US, "12"]).await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    bed.is_held_by(US, 1).await;
}

/// P-A5: a repeated release does not decrement twice.
#[tokio::test]
async fn a_release_counts_once_however_often_it_is_sent() {
    let bed = Bed::new().await;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    for holds in 1..=3 {
        assert_eq!(bed.admin.acquire(US, holds).await, Reply::Done);
    }
    for holds in [2, 1] {
        for _ in 0..3 {
            assert_eq!(bed.admin.release(US, holds).await, Reply::Done);
            bed.is_held_by(US, holds).await;
        }
    }
    assert_eq!(bed.admin.release(US, 0).await, Reply::Counted(1));
    // The script finds no hold. Only the client knows that this is a repetition, and not an error.
    assert_eq!(bed.admin.release(US, 0).await, Reply::Absent);
    assert_eq!(listener.messages().await, ["0"], "one message");
    bed.is_free().await;
}

#[tokio::test]
async fn a_late_repetition_does_no_harm() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    assert_eq!(bed.admin.release(US, 0).await, Reply::Done);
    assert_eq!(bed.admin.acquire(THEM, 1).await, Reply::Done);
    let before = bed.snapshot().await;
    assert_eq!(bed.admin.release(US, 0).await, Reply::Absent);
    assert!(matches!(bed.admin.acquire(US, 1).await, Reply::Busy(_)));
    assert_eq!(bed.admin.renew(US, LEASE).await, Reply::Absent);
    assert_eq!(bed.snapshot().await, before);
}

/// The last release frees the lock whatever the count. A refused release may have left it too high.
#[tokio::test]
async fn the_last_release_does_not_trust_the_count() {
    let bed = Bed::new().await;
    bed.ask::<u32>(&["HSET", LOCK, US, "5"]).await;
    assert_eq!(bed.admin.release(US, 0).await, Reply::Done);
    bed.is_free().await;
}

#[tokio::test]
async fn a_forced_release_sent_twice_is_announced_once() {
    let bed = Bed::new().await;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    assert_eq!(bed.admin.acquire(THEM, 1).await, Reply::Done);
    assert_eq!(bed.admin.force_release().await, Reply::Done);
    assert_eq!(bed.admin.force_release().await, Reply::Absent);
    assert_eq!(listener.messages().await, ["0"]);
}
