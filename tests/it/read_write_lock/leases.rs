//! The lease of each hold: neither side shortens or stops the other's.

use std::time::Duration;

use redisson_lock::{Error, LostReason, Owner, Released};
use testbed::eventually;

use super::{Shelf, me};
use crate::witness::{SOON, always, done, let_pass, only_messages, watched};

const MINUTE: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_secs(5);

/// The rest of a minute, shortly after.
fn is_about_a_minute(left: i64) -> bool {
    left > 30_000 && left <= 60_000
}

/// Redisson cuts a 60 s write hold to the 4.9 s of the inner read hold (measured).
#[tokio::test]
async fn p_rw1_a_nested_read_release_leaves_the_write_hold_its_time() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let writing = lock.write().with_lease(MINUTE).lock().await.unwrap();
    let reading = lock.read().with_lease(SHORT).lock().await.unwrap();
    let again = lock.read().with_lease(SHORT).lock().await.unwrap();
    assert!(is_about_a_minute(shelf.pttl().await));
    assert_eq!(again.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert!(
        is_about_a_minute(shelf.pttl().await),
        "{}",
        shelf.pttl().await
    );
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    assert!(
        is_about_a_minute(shelf.pttl().await),
        "{}",
        shelf.pttl().await
    );
    assert_eq!(shelf.mode().await.as_deref(), Some("write"));
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    shelf.witness.nothing_left().await;
}

/// The reverse: an inner write release does not cut the lease of the owner's read hold.
#[tokio::test]
async fn p_rw1_a_write_release_leaves_the_read_hold_its_time() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let writing = lock.write().with_lease(SHORT).lock().await.unwrap();
    let again = lock.write().with_lease(SHORT).lock().await.unwrap();
    let reading = lock.read().with_lease(MINUTE).lock().await.unwrap();
    for _ in 0..2 {
        let left = shelf.pttl().await;
        let relied_upon = reading.valid_until() - std::time::Instant::now();
        assert!(left >= relied_upon.as_millis() as i64);
        assert!(
            is_about_a_minute(shelf.pttl().await),
            "{}",
            shelf.pttl().await
        );
    }
    assert_eq!(again.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert!(
        is_about_a_minute(shelf.pttl().await),
        "{}",
        shelf.pttl().await
    );
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    assert!(
        is_about_a_minute(shelf.pttl().await),
        "{}",
        shelf.pttl().await
    );
    assert_eq!(shelf.mode().await.as_deref(), Some("read"));
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    shelf.witness.nothing_left().await;
}

/// Redisson adds each lease to the rest: 30, 60, 90 s (measured).
#[tokio::test]
async fn p_rw2_entering_again_to_write_adds_nothing_up() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let mut guards = Vec::new();
    for holds in 1..=4 {
        guards.push(lock.write().with_lease(MINUTE).lock().await.unwrap());
        let left = shelf.pttl().await;
        assert!(is_about_a_minute(left), "{left} with {holds} holds");
    }
    let longer = lock.write().with_lease(2 * MINUTE).lock().await.unwrap();
    assert!(shelf.pttl().await > 90_000, "a longer lease counts in full");
    assert_eq!(longer.unlock().await, Ok(Released::StillHeld { holds: 4 }));
    assert!(is_about_a_minute(shelf.pttl().await));
    for guard in guards {
        let _ = guard.unlock().await.unwrap();
    }
    shelf.witness.nothing_left().await;
}

/// Since 3.44.0 Redisson stops to renew the write hold here, which ends after one lease (measured).
#[tokio::test]
async fn p_r3_a_nested_read_release_does_not_stop_the_write_holds_renewal() {
    let shelf = Shelf::new().await;
    let lease = Duration::from_secs(2);
    let lock = shelf.lock(&shelf.witness.client(watched(lease)).await);
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    always("the lock is held", 3 * lease, async || {
        shelf.mode().await.as_deref() == Some("write") && !writing.is_lost()
    })
    .await;
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    shelf.witness.nothing_left().await;
}

/// Each side is renewed on its own: with both held, after either's release, and after a downgrade.
#[tokio::test]
async fn p_r3_both_sides_are_renewed_by_themselves() {
    let shelf = Shelf::new().await;
    let lease = Duration::from_secs(2);
    let client = shelf.witness.client(watched(lease)).await;
    let lock = shelf.lock(&client);
    let writing = lock.write().lock().await.unwrap();
    let reading = lock.read().lock().await.unwrap();
    let marker = shelf.marker(&me(&client), 1);
    always("both are held", 2 * lease, async || {
        !writing.is_lost() && !reading.is_lost() && shelf.witness.exists(&marker).await
    })
    .await;
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    always("the read hold goes on", 2 * lease, async || {
        !reading.is_lost() && shelf.witness.exists(&marker).await && !shelf.is_free().await
    })
    .await;
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    shelf.witness.server.reset_calls().await;
    let_pass(lease).await;
    assert_eq!(shelf.witness.scripts().await, 0, "a hold is still renewed");
    shelf.witness.nothing_left().await;
}

/// Redisson 3.8.1 to 4.3.1 renews every reader's marker, also that of a dead reader.
#[tokio::test]
async fn p_r7_a_renewal_keeps_no_other_reader_alive() {
    let shelf = Shelf::new().await;
    let lease = Duration::from_secs(2);
    let client = shelf.witness.client(watched(lease)).await;
    let reading = shelf.lock(&client).read().lock().await.unwrap();
    let dead = shelf.java_reads(1, 1500).await;
    let marker = shelf.marker(&dead, 1);
    assert!(shelf.witness.exists(&marker).await);
    eventually("the dead reader's marker has expired", SOON, async || {
        !shelf.witness.exists(&marker).await
    })
    .await;
    assert!(!reading.is_lost());
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    assert!(shelf.is_free().await, "a dead reader keeps the lock");
    shelf.witness.nothing_left().await;
}

/// A dead reader among live ones keeps a writer out until its lease ends, and no longer.
#[tokio::test]
async fn p_rw5_a_dead_reader_keeps_a_writer_out_for_its_lease_at_most() {
    let shelf = Shelf::new().await;
    let client = shelf.witness.client(watched(Duration::from_secs(1))).await;
    let reading = shelf.lock(&client).read().lock().await.unwrap();
    let writer = shelf.lock(&shelf.witness.a_client().await);
    let dead = shelf.java_reads(1, 3000).await;
    let until = shelf.witness.now().await + shelf.witness.pttl(&shelf.marker(&dead, 1)).await;
    // The live reader's renewals do not lengthen the dead reader's lease.
    let_pass(Duration::from_millis(1500)).await;
    assert!(!reading.is_lost());
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    let left = shelf.pttl().await;
    assert!((1..=1500).contains(&left), "{left} ms are left");
    let writing = tokio::time::timeout(SOON, writer.write().lock()).await;
    let writing = writing.expect("the dead reader's lease has ended").unwrap();
    let now = shelf.witness.now().await;
    assert!(now >= until - 5, "{} ms too early", until - now);
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    shelf.witness.nothing_left().await;
}

/// Readers of two clients, with and without a fixed lease: a release neither cuts nor lengthens
/// another reader's lease.
#[tokio::test]
async fn a_reader_that_leaves_cuts_no_other_lease() {
    let shelf = Shelf::new().await;
    let [one, two] = [
        shelf.lock(&shelf.witness.a_client().await),
        shelf.lock(&shelf.witness.a_client().await),
    ];
    let short = one.read().with_lease(SHORT).lock().await.unwrap();
    let long = two.read().with_lease(MINUTE).lock().await.unwrap();
    assert_eq!(short.unlock().await, Ok(Released::Fully));
    assert!(is_about_a_minute(shelf.pttl().await));
    let short = one.read().with_lease(SHORT).lock().await.unwrap();
    assert_eq!(long.unlock().await, Ok(Released::Fully));
    let left = shelf.pttl().await;
    assert!(left > 0 && left <= 5000, "{left} ms are left of 5000");
    assert_eq!(short.unlock().await, Ok(Released::Fully));
    shelf.witness.nothing_left().await;
}

/// No message follows a lease that expires. A waiter relies on the lease that its refusal reported,
/// so a release that leaves only shorter leases is published.
#[tokio::test]
async fn a_waiter_is_notified_when_only_shorter_leases_are_left() {
    let shelf = Shelf::new().await;
    let client = shelf.witness.client(only_messages()).await;
    let lock = shelf.lock(&client);
    let [short, long] = [SHORT, MINUTE].map(|lease| lock.read().with_lease(lease));
    let short = short.owned_by(&Owner::new()).lock().await.unwrap();
    let long = long.owned_by(&Owner::new()).lock().await.unwrap();
    shelf.witness.server.reset_calls().await;
    let write = lock.write().owned_by(&Owner::new());
    let writer = tokio::spawn(async move { write.lock().await });
    shelf.witness.have_run(2).await;
    shelf.witness.has_a_subscriber(&shelf.channel()).await;
    assert_eq!(long.unlock().await, Ok(Released::Fully));
    let writing = done("the shorter lease ends", writer).await.unwrap();
    assert!(short.is_lost());
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    shelf.witness.nothing_left().await;
}

/// A fixed read lease inside a write hold expires alone, and the write hold goes on.
#[tokio::test]
async fn a_read_lease_that_runs_out_inside_a_write_hold_ends_alone() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let writing = lock.write().lock().await.unwrap();
    let lease = Duration::from_millis(300);
    let reading = lock.read().with_lease(lease).lock().await.unwrap();
    assert_eq!(reading.lost().await, LostReason::Expired);
    assert!(!writing.is_lost());
    let late = reading.unlock().await;
    assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
    let reading = lock.read().lock().await.unwrap();
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    assert_eq!(shelf.mode().await.as_deref(), Some("read"));
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    shelf.witness.nothing_left().await;
}

/// A downgrade does not continue an expired read lease: no reader is left.
#[tokio::test]
async fn a_read_lease_that_ran_out_does_not_outlive_the_write_hold() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let writing = lock.write().lock().await.unwrap();
    let lease = Duration::from_millis(300);
    let reading = lock.read().with_lease(lease).lock().await.unwrap();
    let marker = async || {
        shelf
            .witness
            .ask::<Vec<String>>(&["KEYS", "*:rwlock_timeout:*"])
            .await
    };
    eventually("the read lease has expired", SOON, async || {
        marker().await.is_empty()
    })
    .await;
    assert!(reading.is_lost());
    assert_eq!(writing.unlock().await, Ok(Released::Fully));
    assert!(shelf.is_free().await, "an expired hold keeps the lock");
    shelf.witness.nothing_left().await;
}

/// The key of both sides lives as long as the longer lease, so an expired hold must be removed by a
/// script. The histories found a lock that no owner had and none could acquire.
#[tokio::test]
async fn a_write_hold_that_ran_out_does_not_live_on_by_a_read_hold() {
    let shelf = Shelf::new().await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    let other = shelf.lock(&shelf.witness.a_client().await);
    let brief = Duration::from_millis(300);
    // The read hold may end before the write hold's lease, or after it.
    for reads_on in [false, true] {
        let writing = lock.write().with_lease(brief).lock().await.unwrap();
        let reading = lock.read().with_lease(MINUTE).lock().await.unwrap();
        let kept = match reads_on {
            true => Some(reading),
            false => {
                assert_eq!(reading.unlock().await, Ok(Released::Fully));
                None
            }
        };
        assert_eq!(writing.lost().await, LostReason::Expired);
        let entered = other.read().try_lock_for(SOON).await.unwrap();
        let entered = entered.expect("the write hold has ended");
        assert_eq!(entered.unlock().await, Ok(Released::Fully));
        if let Some(reading) = kept {
            assert_eq!(reading.unlock().await, Ok(Released::Fully));
        }
        shelf.witness.nothing_left().await;
    }
}
