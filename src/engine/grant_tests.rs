use std::{sync::LazyLock, time::Duration};

use uuid::Uuid;

use super::*;
use crate::{
    engine::{AcquireOptions, Subject},
    error::LostReason,
    wire::{HoldMode, sealed::Known},
};

fn lease() -> Lease {
    Lease::new(Duration::from_secs(30)).unwrap()
}

fn spec() -> Arc<LockSpec> {
    let wire = crate::Reentrant::PROTOCOL;
    Arc::new(wire.spec("a".into(), &crate::Config::default()))
}

fn grant(
    owners: &OwnerTable,
    entry: &OwnerEntryRef,
    tenure: Option<Arc<Tenure>>,
) -> (Arc<Tenure>, HoldId) {
    let granted = try_grant(owners, entry, tenure, Instant::now());
    let (tenure, id, _) = granted.unwrap_or_else(|_| panic!("nothing is in the way"));
    (tenure, id)
}

fn try_grant(
    owners: &OwnerTable,
    entry: &OwnerEntryRef,
    tenure: Option<Arc<Tenure>>,
    sent: Instant,
) -> Result<Granted, Option<Arc<Tenure>>> {
    let (spec, local) = (spec(), owners.local(&spec()));
    let grant = Grant {
        local: local.as_ref(),
        sent,
        ..grant_to(entry.key().1, &spec)
    };
    owners.grant(entry, tenure, grant)
}

/// A grant that was sent now. Its hand-off window is the next hour.
fn grant_to(owner: OwnerId, spec: &Arc<LockSpec>) -> Grant<'_> {
    static LEASE: LazyLock<Lease> = LazyLock::new(lease);
    Grant {
        spec,
        owner: owner.owner(),
        local: None,
        readers: None,
        hand_off_until: Instant::now() + Duration::from_secs(3_600),
        sent: Instant::now(),
        answered: Instant::now(),
        lease: &LEASE,
        watched: true,
        durability: Durability::default(),
        acknowledged: None,
        token: None,
    }
}

fn read_spec() -> Arc<LockSpec> {
    Arc::new(crate::Read::PROTOCOL.spec("a".into(), &crate::Config::default()))
}

#[test]
fn entries_last_as_long_as_they_are_used() {
    let owners = OwnerTable::default();
    let owner = OwnerId::new(Uuid::nil(), Owner::new());
    let entry = owners.enter(&"a".into(), owner);
    let again = owners.enter(&"a".into(), owner);
    assert!(std::ptr::eq::<OwnerEntry>(&*entry, &*again));
    drop(entry);
    let (tenure, id) = grant(&owners, &again, None);
    drop(again);
    assert!(!owners.is_empty(), "a tenure uses its entry");
    tenure.finish_release(Some(id), Instant::now(), 0, None);
    drop(tenure);
    assert!(owners.is_empty());
}

#[test]
fn p_a4_the_end_of_one_tenure_does_not_touch_the_next() {
    let owners = OwnerTable::default();
    let entry = owners.enter(&"a".into(), OwnerId::new(Uuid::nil(), Owner::new()));
    let (first, first_id) = grant(&owners, &entry, None);
    first.lose(LostReason::Gone);
    assert!(owners.tenure_under_field(HoldMode::Owner, &entry).is_none());
    let (second, _) = grant(&owners, &entry, None);
    first.finish_release(Some(first_id), Instant::now(), 0, None);
    first.lose(LostReason::Expired);
    assert_eq!(
        first.lost_reason(Instant::now()),
        Some(LostReason::Gone),
        "the first reason stays"
    );
    let present = owners.tenure_under_field(HoldMode::Owner, &entry);
    assert!(present.is_some_and(|tenure| tenure.number == second.number));
    assert_eq!(second.lost_reason(Instant::now()), None);
}

#[test]
fn a_token_is_cancelled_whether_made_before_or_after_the_loss() {
    let owners = OwnerTable::default();
    let entry = owners.enter(&"a".into(), OwnerId::new(Uuid::nil(), Owner::new()));
    let (tenure, _) = grant(&owners, &entry, None);
    let early = tenure.token();
    assert!(!early.is_cancelled());
    tenure.lose(LostReason::Gone);
    assert!(early.is_cancelled() && tenure.token().is_cancelled());
}

#[test]
fn a_grant_for_one_more_hold_of_a_lost_tenure_is_refused() {
    let owners = OwnerTable::default();
    let entry = owners.enter(&"a".into(), OwnerId::new(Uuid::nil(), Owner::new()));
    let (outer, _) = grant(&owners, &entry, None);
    outer.lose(LostReason::Expired);
    let refused = try_grant(&owners, &entry, Some(outer), Instant::now());
    assert!(matches!(refused, Err(None)));
    assert!(owners.tenure_under_field(HoldMode::Owner, &entry).is_none());
}

/// The owner of a lent field re-enters the tenure that other readers have under it.
#[test]
fn a_reader_that_leaves_a_lent_tenure_does_not_return_to_it() {
    let (spec, owners) = (read_spec(), OwnerTable::default());
    let [one, two] = [(); 2].map(|()| OwnerId::new(Uuid::nil(), Owner::new()));
    let (entry, readers) = (owners.enter(&spec.name, one), owners.readers(&spec.name));
    let grant = |tenure| {
        let grant = Grant {
            readers: Some(&readers),
            ..grant_to(one, &spec)
        };
        let granted = owners.grant(&entry, tenure, grant);
        let (tenure, id, _) = granted.unwrap_or_else(|_| panic!("nothing is in the way"));
        (tenure, id)
    };
    let (lent, outer) = grant(None);
    let (_, of_two, _) = owners
        .join(&readers, two, |_| true, || None)
        .expect("it is open");
    assert_eq!(lent.leave(outer), Some(0));
    assert!(lent.is_lent());
    let (_, inner) = grant(Some(lent.clone()));
    lent.finish_release(Some(inner), Instant::now(), 1, None);
    assert!(entry.reading().is_none(), "the owner would re-enter it");
    lent.finish_release(Some(of_two), Instant::now(), 0, None);
    drop((lent, entry, readers));
    assert!(owners.is_empty());
}

fn ask(owner: Owner) -> AcquireRequest {
    let options = AcquireOptions {
        lease: lease(),
        watched: true,
        back_off: None,
        durability: Durability::default(),
        ends_when_done: false,
        refused: None,
    };
    let (spec, options) = (spec(), Arc::new(options));
    AcquireRequest::new(Subject { spec, options }, owner).unwrap()
}

/// The field is lent: the next owner has the lock under the first owner's field, and nothing under
/// its own.
#[test]
fn a_lock_that_is_handed_off_keeps_the_field_of_its_first_owner() {
    let owners = OwnerTable::default();
    let [one, two] = [(); 2].map(|()| OwnerId::new(Uuid::nil(), Owner::new()));
    let [entry, of_two] = [one, two].map(|owner| owners.enter(&"a".into(), owner));
    let (first, id) = grant(&owners, &entry, None);
    let next = owners.make_successor(&first, id, &ask(two.owner()), Instant::now());
    let (second, _) = next.expect("the watchdog's lease, and all of it is left");
    assert!(
        owners
            .make_successor(&first, id, &ask(two.owner()), Instant::now())
            .is_none()
    );
    assert_eq!(first.owners(), []);
    assert_eq!(second.owners(), [(two.owner(), 1)]);
    assert_eq!(second.entry().field, one.field());
    // The state of the table after a hand-off.
    let local = owners.local(&spec()).unwrap();
    let replaced = local.record_grant(second.current(), Instant::now(), |first| {
        first.live_count() == 0
    });
    assert!(replaced.is_ok());
    assert!(owners.tenure(&spec(), HoldMode::Owner, one).is_none());
    assert!(owners.tenure(&spec(), HoldMode::Owner, two).is_some());
    assert!(
        owners.tenure_under_field(HoldMode::Owner, &entry).is_some()
            && owners
                .tenure_under_field(HoldMode::Owner, &of_two)
                .is_none()
    );
    // The end of the first tenure does not end the second.
    first.lose(LostReason::Gone);
    assert!(second.is_current() && second.lost_reason(Instant::now()).is_none());
    assert_eq!(
        first.end_hand_off().number,
        second.number,
        "of the same current"
    );
}

/// Two owners of a client cannot both have the lock. Where it is unknown which of two grants is
/// later, neither is relied upon.
#[test]
fn grant_beside_a_hold_of_another_owner_is_refused_unless_it_is_later() {
    let owners = OwnerTable::default();
    let early = Instant::now();
    let [one, two] = [(); 2].map(|()| OwnerId::new(Uuid::nil(), Owner::new()));
    let [one, two] = [one, two].map(|owner| owners.enter(&"a".into(), owner));
    let (first, id) = grant(&owners, &one, None);
    let refused = try_grant(&owners, &two, None, early).map(drop);
    assert!(refused.is_err_and(|other| other.is_some_and(|other| other.number == first.number)));
    // The second grant was requested after the first was recorded, so the first was forced open.
    let later = Instant::now() + Duration::from_millis(1);
    let Ok((second, _, Some(old))) = try_grant(&owners, &two, None, later) else {
        panic!("it is later");
    };
    assert!(old.number == first.number && second.is_current());
    // The second is being released, and another grant has overtaken the answer.
    first.lose(LostReason::Gone);
    second.mark_ending(id);
    let Ok((third, ..)) = try_grant(&owners, &one, None, early) else {
        panic!("the second is over");
    };
    second.finish_release(Some(id), Instant::now(), 0, None);
    assert!(third.is_current());
}

#[test]
fn readers_of_one_client_share_a_tenure() {
    let owners = OwnerTable::default();
    let [one, two, three] = [(); 3].map(|()| OwnerId::new(Uuid::nil(), Owner::new()));
    let spec = read_spec();
    let (entry, readers) = (owners.enter(&spec.name, one), owners.readers(&spec.name));
    let grant = Grant {
        readers: Some(&readers),
        ..grant_to(one, &spec)
    };
    let Ok((tenure, first, None)) = owners.grant(&entry, None, grant) else {
        panic!("nothing is in the way");
    };
    let join = |owner| owners.join(&readers, owner, |_| true, || None);
    let (shared, second, _) = join(two).expect("it is open");
    assert!(Arc::ptr_eq(&tenure, &shared));
    let held_by = |owner| owners.tenure(&spec, HoldMode::Read, owner).is_some();
    assert!(held_by(one) && held_by(two) && !held_by(three));
    assert_eq!(owners.tenures(None).len(), 1, "and not one for each");
    assert_eq!(tenure.leave(first), Some(0));
    // The owner holds nothing, and its field is lent.
    assert!(!held_by(one) && owners.tenure_under_field(HoldMode::Read, &entry).is_some());
    assert!(join(one).is_some_and(|(shared, id, _)| shared.leave(id) == Some(0)));
    // The reader's own attempt is under way.
    let busy = owners.enter(&spec.name, three);
    let op_lock = busy.op_lock.try_lock().unwrap();
    assert!(join(three).is_none());
    drop(op_lock);
    assert!(join(three).is_some());
    assert!(shared.lose(LostReason::Gone));
    assert!(!held_by(two) && !held_by(three) && join(three).is_none());
    assert_eq!(shared.leave(second), None, "it is lost");
    drop((entry, readers, busy, tenure, shared));
    assert!(owners.is_empty());
}
