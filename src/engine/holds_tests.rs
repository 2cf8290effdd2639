use std::time::Duration;

use uuid::Uuid;

use super::*;
use crate::{owner::Owner, wire::sealed::Sealed};

fn lease() -> Lease {
    Lease::new(Duration::from_secs(30)).unwrap()
}

fn place() -> Arc<Place> {
    let wire = crate::Reentrant::WIRE;
    Arc::new(wire.place("a".into(), &crate::Config::default()))
}

fn grant(slots: &Slots, slot: &SlotRef, tenure: Option<Arc<Tenure>>) -> (Arc<Tenure>, HoldId) {
    let grant = Grant {
        place: &place(),
        sent: Instant::now(),
        lease: &lease(),
        watched: true,
        durability: Durability::default(),
        token: None,
    };
    slots.grant(slot, tenure, grant).unwrap()
}

#[test]
fn slots_last_as_long_as_they_are_used() {
    let slots = Slots::default();
    let owner = OwnerId::new(Uuid::nil(), Owner::new());
    let slot = slots.enter(&"a".into(), owner);
    let again = slots.enter(&"a".into(), owner);
    assert!(std::ptr::eq::<Slot>(&*slot, &*again));
    drop(slot);
    let (tenure, id) = grant(&slots, &again, None);
    drop(again);
    assert!(!slots.is_empty(), "a tenure uses its slot");
    tenure.released(Some(id), Instant::now(), None);
    drop(tenure);
    assert!(slots.is_empty());
}

#[test]
fn p_a4_the_end_of_one_tenure_does_not_touch_the_next() {
    let slots = Slots::default();
    let slot = slots.enter(&"a".into(), OwnerId::new(Uuid::nil(), Owner::new()));
    let (first, first_id) = grant(&slots, &slot, None);
    first.lose(LostReason::Gone);
    assert!(slot.tenure(Count::Owner).is_none());
    let (second, _) = grant(&slots, &slot, None);
    first.released(Some(first_id), Instant::now(), None);
    first.lose(LostReason::Expired);
    assert_eq!(
        first.lost(Instant::now()),
        Some(LostReason::Gone),
        "the first reason stays"
    );
    assert!(
        slot.tenure(Count::Owner)
            .is_some_and(|tenure| tenure.number == second.number)
    );
    assert_eq!(second.lost(Instant::now()), None);
}

#[test]
fn a_token_is_cancelled_by_a_loss_before_or_after_it_is_asked_for() {
    let slots = Slots::default();
    let slot = slots.enter(&"a".into(), OwnerId::new(Uuid::nil(), Owner::new()));
    let (tenure, _) = grant(&slots, &slot, None);
    let early = tenure.token();
    assert!(!early.is_cancelled());
    tenure.lose(LostReason::Gone);
    assert!(early.is_cancelled() && tenure.token().is_cancelled());
}
