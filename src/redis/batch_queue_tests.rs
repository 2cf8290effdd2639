use proptest::prelude::*;

use super::*;

/// Queues `count` operations. Returns their replies, and whether each starts a carrier.
fn queue_up(queue: &mut Queue<u32, ()>, count: usize) -> Vec<(oneshot::Receiver<()>, bool)> {
    let queued = (0..count).map(|_| match queue.admit(0, 0) {
        Admission::Queued { reply, carrier } => (reply, carrier),
        Admission::Alone(_) => panic!("it goes alone"),
    });
    queued.collect()
}

#[test]
fn operations_above_the_lone_ones_share_a_batch() {
    let mut queue = Queue::<u32, ()>::default();
    for _ in 0..3 {
        assert!(matches!(queue.admit(0, 3), Admission::Alone(_)));
    }
    let fourth = queue.admit(0, 3);
    assert!(matches!(fourth, Admission::Queued { carrier: true, .. }));
    let others = queue_up(&mut queue, 2 * MOST_TOGETHER - 1);
    let started = others.iter().filter(|(_, carrier)| *carrier).count();
    assert_eq!(started, 1, "as many as it takes");
    let lengths = [(); 2].map(|()| queue.flush().map(|batch| batch.len()));
    assert_eq!(lengths, [Some(MOST_TOGETHER); 2]);
    assert!(queue.come_back(), "one carrier stays for later operations");
    assert!(!queue.come_back(), "a second one is not needed");
    assert!(queue.flush().is_none());
    assert_eq!(queue.carriers, 0);
}

#[test]
fn lane_has_no_more_batches_under_way_than_carriers() {
    let mut queue = Queue::<u32, ()>::default();
    for _ in 0..MOST_CARRIERS {
        let asked = queue_up(&mut queue, 1);
        assert!(asked[0].1);
        assert_eq!(queue.flush().map(|batch| batch.len()), Some(1));
    }
    let asked = queue_up(&mut queue, 3);
    assert!(asked.iter().all(|(_, carrier)| !carrier));
    assert!(queue.come_back());
    assert_eq!(queue.flush().map(|batch| batch.len()), Some(3));
}

#[test]
fn operation_without_a_caller_is_not_sent() {
    let mut queue = Queue::<u32, ()>::default();
    drop(queue_up(&mut queue, MOST_TOGETHER - 1));
    let stays = queue_up(&mut queue, 1);
    assert_eq!(queue.flush().map(|batch| batch.len()), Some(1));
    drop((stays, queue_up(&mut queue, 1)));
    assert!(queue.flush().is_none());
}

/// What can happen to a queue, in any order.
#[derive(Debug, Clone)]
enum Step {
    Ask { most_alone: usize, times: usize },
    AloneEnds,
    CarrierDeparts,
    CarrierComesBack,
}

proptest! {
    #[test]
    fn waiting_operation_has_a_carrier_and_keeps_its_order(
        steps in prop::collection::vec(
            prop_oneof![
                4 => (0..3usize, 1..3 * MOST_TOGETHER / 2)
                    .prop_map(|(most_alone, times)| Step::Ask { most_alone, times }),
                1 => Just(Step::AloneEnds),
                1 => Just(Step::CarrierDeparts),
                1 => Just(Step::CarrierComesBack),
            ],
            0..100,
        )
    ) {
        let mut queue = Queue::<u32, ()>::default();
        let numbers = |batch: Vec<(u32, _)>| batch.into_iter().map(|(number, _)| number);
        let (mut asked, mut carried, mut started) = (0, Vec::new(), 0);
        let mut replies = Vec::new();
        for step in steps {
            let away = queue.carriers - queue.here;
            match step {
                Step::Ask { most_alone, times } => {
                    for _ in 0..times {
                        if let Admission::Queued { carrier, reply } = queue.admit(asked, most_alone) {
                            asked += 1;
                            started += usize::from(carrier);
                            replies.push(reply);
                        }
                    }
                }
                Step::AloneEnds if queue.alone > 0 => queue.alone_is_over(),
                Step::CarrierDeparts if queue.here > 0 => match queue.flush() {
                    Some(batch) => {
                        prop_assert!((1..=MOST_TOGETHER).contains(&batch.len()));
                        carried.extend(numbers(batch));
                    }
                    None => started -= 1,
                },
                Step::CarrierComesBack if away > 0 => started -= usize::from(!queue.come_back()),
                _ => {}
            }
            prop_assert!(
                queue.carriers == MOST_CARRIERS || queue.waiting.len() <= queue.here * MOST_TOGETHER,
                "an operation waits without a carrier"
            );
            prop_assert!(queue.here <= queue.carriers && queue.carriers <= MOST_CARRIERS);
            prop_assert_eq!(started, queue.carriers);
            prop_assert!(queue.alone <= 2);
        }
        while queue.carriers > 0 {
            if queue.here == 0 {
                queue.come_back();
            }
            carried.extend(numbers(queue.flush().unwrap_or_default()));
        }
        prop_assert_eq!(carried, (0..asked).collect::<Vec<_>>());
    }
}

#[test]
fn abandoned_operations_take_no_room_without_a_connection() {
    let mut queue = Queue::<u32, ()>::default();
    let live = queue_up(&mut queue, 100);
    for _ in 0..10_000 {
        drop(queue_up(&mut queue, 1));
        assert!(queue.waiting.len() <= 2 * (live.len() + FEW));
    }
    let waiting = queue
        .waiting
        .iter()
        .filter(|(_, answer)| !answer.is_closed());
    assert_eq!(waiting.count(), live.len());
}
