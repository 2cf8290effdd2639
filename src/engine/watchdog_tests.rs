use uuid::Uuid;

use super::*;
use crate::{
    engine::{
        hold_set::{HoldId, HoldSet},
        owners::OwnerTable,
    },
    owner::{Owner, OwnerId},
    wire::sealed::Known,
};

/// A verification of an outer hold of 10 s and an inner one of 10 min, the latter with its number.
fn verification() -> (Renewal, HoldId) {
    let (owner, now) = (Owner::new(), Instant::now());
    let key = OwnerId::new(Uuid::nil(), owner);
    let spec = crate::Reentrant::PROTOCOL.spec("a".into(), &crate::Config::default());
    let entry = OwnerTable::default().enter(&"a".into(), key);
    let mut holds = HoldSet::new(now);
    let [_, inner] = [10, 600].map(|seconds| {
        let lease = Lease::new(Duration::from_secs(seconds)).unwrap();
        holds.grant(owner, now, &lease, false)
    });
    let durability = [Durability::Majority].into_iter().collect();
    let tenure = Tenure::new(&entry, key, &Arc::new(spec), holds, durability, 1);
    let renewal = Renewal {
        tenure: Arc::new(tenure),
        lease: None,
        verifies: Some(TRANSIENT_PAUSE),
    };
    (renewal, inner)
}

/// The lease that a request names.
fn named(request: &Request) -> Duration {
    let text = std::str::from_utf8(&request.parts[2]).unwrap();
    Duration::from_millis(text.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn verification_names_the_rest_of_its_turn() {
    let (renewal, inner) = verification();
    let request = renewal.request();
    assert_eq!(named(&request), Duration::from_secs(600));
    let (tenure, now) = (&renewal.tenure, Instant::now());
    let (holds, lease) = tenure.begin_release(Some(inner), now);
    tenure.finish_release(Some(inner), now, holds, lease.as_ref());
    let (_turn, request) = renewal.take_turn(request).unwrap();
    assert_eq!(named(&request), Duration::from_secs(10));
}

/// The operation under way may be a release over another connection.
#[tokio::test(start_paused = true)]
async fn verification_beside_an_operation_has_the_end_of_the_hold_released() {
    let (renewal, _) = verification();
    let tenure = &renewal.tenure;
    let _op_lock = tenure.entry().op_lock.try_lock().unwrap();
    assert!(renewal.take_turn(renewal.request()).is_none());
    let (turn, _) = renewal.take_turn(renewal.request()).unwrap();
    assert!(turn.1.is_none() && tenure.server_may_keep_it());
}
