use proptest::prelude::*;

use super::*;

#[test]
fn what_may_goes_alone_and_what_else_comes_goes_together() {
    let mut queue = Queue::<u32, ()>::default();
    for number in 0..=MOST_TOLD {
        let alone = matches!(queue.admit(0, MOST_TOLD), Admission::Alone(_));
        assert_eq!(alone, number < MOST_TOLD);
    }
    let mut carriers = 1;
    for _ in 1..2 * MOST_TOGETHER {
        if let Admission::Queued { carrier: true, .. } = queue.admit(0, 0) {
            carriers += 1;
        }
    }
    assert_eq!(carriers, 2, "as many as it takes");
    let lengths = [(); 2].map(|()| queue.depart().map(|batch| batch.len()));
    assert_eq!(lengths, [Some(MOST_TOGETHER); 2]);
    assert!(queue.come_back(), "somebody is here for what comes now");
    assert!(!queue.come_back(), "two are not needed");
    assert!(queue.depart().is_none());
    assert_eq!(queue.carriers, 0);
}

#[test]
fn no_more_calls_are_made_than_the_server_can_use() {
    let mut queue = Queue::<u32, ()>::default();
    for _ in 0..MOST_CARRIERS {
        assert!(matches!(
            queue.admit(0, 0),
            Admission::Queued { carrier: true, .. }
        ));
        assert_eq!(queue.depart().map(|batch| batch.len()), Some(1));
    }
    for _ in 0..3 {
        assert!(matches!(
            queue.admit(0, 0),
            Admission::Queued { carrier: false, .. }
        ));
    }
    assert!(queue.come_back());
    assert_eq!(queue.depart().map(|batch| batch.len()), Some(3));
}

/// What can happen to a lane, in any order.
#[derive(Debug, Clone)]
enum Step {
    Ask { most_alone: usize },
    AloneEnds,
    CarrierDeparts,
    CarrierComesBack,
}

proptest! {
    #[test]
    fn what_waits_always_has_a_carrier_and_keeps_its_order(
        steps in prop::collection::vec(
            prop_oneof![
                4 => (0..3usize).prop_map(|most_alone| Step::Ask { most_alone }),
                1 => Just(Step::AloneEnds),
                1 => Just(Step::CarrierDeparts),
                1 => Just(Step::CarrierComesBack),
            ],
            0..400,
        )
    ) {
        let mut queue = Queue::<u32, ()>::default();
        let numbers = |batch: Vec<(u32, _)>| batch.into_iter().map(|(number, _)| number);
        let (mut asked, mut carried, mut started) = (0, Vec::new(), 0);
        for step in steps {
            let away = queue.carriers - queue.here;
            match step {
                Step::Ask { most_alone } => {
                    if let Admission::Queued { carrier, .. } = queue.admit(asked, most_alone) {
                        asked += 1;
                        started += usize::from(carrier);
                    }
                }
                Step::AloneEnds => queue.alone = queue.alone.saturating_sub(1),
                Step::CarrierDeparts if queue.here > 0 => match queue.depart() {
                    Some(batch) => {
                        prop_assert!((1..=MOST_TOGETHER).contains(&batch.len()));
                        carried.extend(numbers(batch));
                    }
                    None => started -= 1,
                },
                Step::CarrierComesBack if away > 0 => started -= usize::from(!queue.come_back()),
                _ => {}
            }
            prop_assert!(queue.waiting.is_empty() || queue.carriers > 0, "somebody waits for nobody");
            prop_assert!(queue.here <= queue.carriers && queue.carriers <= MOST_CARRIERS);
            prop_assert_eq!(started, queue.carriers);
            prop_assert!(queue.alone <= 2);
        }
        while queue.carriers > 0 {
            if queue.here == 0 {
                queue.come_back();
            }
            carried.extend(numbers(queue.depart().unwrap_or_default()));
        }
        prop_assert_eq!(carried, (0..asked).collect::<Vec<_>>());
    }
}
