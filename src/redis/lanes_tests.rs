use proptest::prelude::*;

use super::*;

#[test]
fn few_go_alone_and_many_go_together() {
    let mut queue = Queue::<u32, ()>::default();
    for number in 0..MOST_ALONE as u32 {
        assert!(matches!(
            queue.admit(number, MOST_ALONE),
            Admission::Alone(_)
        ));
    }
    for number in 0..100 {
        let admission = queue.admit(number, MOST_ALONE);
        let starts = matches!(admission, Admission::Queued { carrier: true, .. });
        assert_eq!(starts, number < MOST_CARRIERS as u32);
    }
    for number in MOST_ALONE..=MOST_TOLD {
        let told = matches!(queue.admit(0, MOST_TOLD), Admission::Alone(_));
        assert_eq!(told, number < MOST_TOLD);
    }
    let lengths = [(); 4].map(|()| queue.next_batch().map(|batch| batch.len()));
    assert_eq!(
        lengths,
        [Some(MOST_TOGETHER), Some(101 - MOST_TOGETHER), None, None]
    );
}

/// What can happen to a lane, in any order.
#[derive(Debug, Clone)]
enum Step {
    Ask,
    AloneEnds,
    CarrierTurns,
}

proptest! {
    #[test]
    fn what_waits_always_has_a_carrier_and_keeps_its_order(
        steps in prop::collection::vec(
            prop_oneof![3 => Just(Step::Ask), 1 => Just(Step::AloneEnds), 1 => Just(Step::CarrierTurns)],
            0..400,
        )
    ) {
        let mut queue = Queue::<u32, ()>::default();
        let numbers = |batch: Vec<(u32, _)>| batch.into_iter().map(|(number, _)| number);
        let (mut asked, mut carried) = (0, Vec::new());
        for step in steps {
            match step {
                Step::Ask => {
                    if let Admission::Queued { .. } = queue.admit(asked, MOST_ALONE) {
                        asked += 1;
                    }
                }
                Step::AloneEnds => queue.alone = queue.alone.saturating_sub(1),
                Step::CarrierTurns if queue.carriers > 0 => {
                    let batch = queue.next_batch().unwrap_or_default();
                    prop_assert!(batch.len() <= MOST_TOGETHER);
                    carried.extend(numbers(batch));
                }
                Step::CarrierTurns => {}
            }
            prop_assert!(queue.waiting.is_empty() || queue.carriers > 0, "somebody waits for nobody");
            prop_assert!(queue.alone <= MOST_ALONE && queue.carriers <= MOST_CARRIERS);
        }
        while queue.carriers > 0 {
            carried.extend(numbers(queue.next_batch().unwrap_or_default()));
        }
        prop_assert_eq!(carried, (0..asked).collect::<Vec<_>>());
    }
}
