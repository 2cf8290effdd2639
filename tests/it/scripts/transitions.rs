//! Every transition of the reentrant lock (docs/protocol.md, section 4).

use super::{Bed, LEASE, LOCK, Listener, Reply, THEM, US};
use super::{CHANNEL, FORCE_RELEASE};

#[tokio::test]
async fn a_free_lock_is_granted() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    bed.is_held_by(US, 1).await;
    bed.expires_in_about(LEASE).await;
    assert_eq!(bed.ask::<String>(&["TYPE", LOCK]).await, "hash");
}

#[tokio::test]
async fn a_held_lock_is_busy_for_other_owners() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    let before = bed.snapshot().await;
    let Reply::Busy(left) = bed.admin.acquire(THEM, 1).await else {
        panic!("two owners hold the lock");
    };
    assert!(left > LEASE / 2 && left <= LEASE, "{left}");
    assert_eq!(bed.snapshot().await, before);
    assert_eq!(bed.admin.acquire(THEM, 2).await, Reply::Absent);
    assert_eq!(bed.snapshot().await, before);
}

#[tokio::test]
async fn a_holder_enters_again() {
    let bed = Bed::new().await;
    for holds in 1..=12 {
        assert_eq!(bed.admin.acquire(US, holds).await, Reply::Done);
        bed.is_held_by(US, holds).await;
    }
}

/// P-R8: a re-entry never shortens the lease, and may lengthen it.
#[tokio::test]
async fn entering_again_may_lengthen_the_lease() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    assert_eq!(bed.admin.acquire_for(US, 1000, 2).await, Reply::Done);
    bed.expires_in_about(LEASE).await;
    assert_eq!(bed.admin.acquire_for(US, 5 * LEASE, 3).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    // The leases are compared as numbers: as text, "9000" would be the longest.
    assert_eq!(bed.admin.acquire_for(US, 9000, 4).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    // A lock without expiry gets one.
    bed.ask::<u32>(&["PERSIST", LOCK]).await;
    assert_eq!(bed.admin.acquire(US, 5).await, Reply::Done);
    bed.expires_in_about(LEASE).await;
}

#[tokio::test]
async fn nested_holds_on_a_lock_that_is_gone_are_not_granted() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.acquire(US, 2).await, Reply::Absent);
    assert_eq!(bed.admin.acquire(US, 11).await, Reply::Absent);
    bed.is_free().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    assert_eq!(
        bed.admin.acquire(US, 3).await,
        Reply::Absent,
        "one of two holds is missing"
    );
    bed.is_held_by(US, 1).await;
}

#[tokio::test]
async fn the_longest_lease_is_set() {
    let bed = Bed::new().await;
    let century = 100 * 365 * 24 * 3600 * 1000;
    assert_eq!(bed.admin.acquire_for(US, century, 1).await, Reply::Done);
    bed.expires_in_about(century).await;
}

#[tokio::test]
async fn releases_count_down_and_the_last_one_frees_and_announces() {
    let bed = Bed::new().await;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    for holds in 1..=3 {
        assert_eq!(
            bed.admin.acquire_for(US, 10 * LEASE, holds).await,
            Reply::Done
        );
    }
    for holds in [2, 1] {
        assert_eq!(bed.admin.release(US, holds).await, Reply::Done);
        bed.is_held_by(US, holds).await;
        bed.expires_in_about(LEASE).await;
    }
    assert_eq!(
        listener.messages().await,
        ["0"],
        "one message for the shorter lease: waiters rely on the longer one"
    );
    assert_eq!(bed.admin.release(US, 0).await, Reply::Counted(1));
    bed.is_free().await;
    assert_eq!(listener.messages().await, ["0"]);
}

#[tokio::test]
async fn a_release_needs_a_hold() {
    let bed = Bed::new().await;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    assert_eq!(bed.admin.release(US, 0).await, Reply::Absent);
    assert_eq!(bed.admin.release(US, 1).await, Reply::Absent);
    bed.is_free().await;
    assert_eq!(bed.admin.acquire(THEM, 1).await, Reply::Done);
    let before = bed.snapshot().await;
    assert_eq!(bed.admin.release(US, 0).await, Reply::Absent);
    assert_eq!(bed.admin.release(US, 1).await, Reply::Absent);
    assert_eq!(bed.snapshot().await, before);
    assert_eq!(bed.admin.acquire(THEM, 2).await, Reply::Done);
    assert_eq!(
        bed.admin.release(THEM, 3).await,
        Reply::Absent,
        "the lock has fewer holds"
    );
    bed.is_held_by(THEM, 2).await;
    assert_eq!(listener.messages().await, [""; 0]);
}

#[tokio::test]
async fn a_renewal_sets_the_lease_of_its_owner() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.renew(US, LEASE).await, Reply::Absent);
    bed.is_free().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    assert_eq!(bed.admin.renew(US, 5 * LEASE).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    assert_eq!(
        bed.admin.renew(US, 0).await,
        Reply::Done,
        "a lease of 0 changes nothing"
    );
    bed.expires_in_about(5 * LEASE).await;
    assert_eq!(bed.admin.renew(THEM, 10 * LEASE).await, Reply::Absent);
    assert_eq!(bed.admin.renew(THEM, 0).await, Reply::Absent);
    bed.expires_in_about(5 * LEASE).await;
    bed.is_held_by(US, 1).await;
}

#[tokio::test]
async fn a_forced_release_frees_the_lock_and_is_announced() {
    let bed = Bed::new().await;
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    assert_eq!(bed.admin.force_release().await, Reply::Absent);
    assert_eq!(listener.messages().await, [""; 0]);
    assert_eq!(bed.admin.acquire(THEM, 1).await, Reply::Done);
    assert_eq!(bed.admin.acquire(THEM, 2).await, Reply::Done);
    assert_eq!(bed.admin.run(FORCE_RELEASE, &[CHANNEL]).await, Reply::Done);
    bed.is_free().await;
    assert_eq!(listener.messages().await, ["0"]);
}

#[tokio::test]
async fn inspect_returns_the_lease_and_the_count() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.inspect(US).await, Reply::Told(vec![-2, 0]));
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    assert_eq!(bed.admin.acquire(US, 2).await, Reply::Done);
    for (owner, count) in [(US, 2), (THEM, 0)] {
        let Reply::Told(told) = bed.admin.inspect(owner).await else {
            panic!("the reply has the lease and the count");
        };
        assert!(told[0] > LEASE / 2 && told[0] <= LEASE, "{told:?}");
        assert_eq!(told[1..], [count]);
    }
    bed.ask::<u32>(&["PERSIST", LOCK]).await;
    assert_eq!(bed.admin.inspect(THEM).await, Reply::Told(vec![-1, 0]));
}
