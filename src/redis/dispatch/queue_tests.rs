use proptest::prelude::*;

use super::*;
use crate::{
    redis::{Answered, CallError},
    wire::script::Operation,
};

/// The number of an operation, and whether it is still wanted.
#[derive(Debug)]
struct Numbered(usize, bool);

impl Complete for Numbered {
    fn is_wanted(&self) -> bool {
        self.1
    }

    fn build(&mut self) -> Option<Operation> {
        None
    }

    fn complete(self, _answer: Result<Answered, CallError>) {}
}

/// Queues `count` operations. Returns how many carriers they start.
fn queue_up(queue: &mut Queue<Numbered>, count: usize) -> usize {
    let started = (0..count).map(|number| queue.push(Numbered(number, true)).carriers);
    started.sum()
}

/// Queues a group of `count` operations. Returns how many carriers it starts.
fn queue_group(queue: &mut Queue<Numbered>, count: usize) -> usize {
    let group = (0..count).map(|number| Numbered(number, true));
    queue.push_group(group.collect()).carriers
}

/// The length of the next batch.
fn take(queue: &mut Queue<Numbered>) -> Option<usize> {
    queue.take().map(|(batch, _)| batch.len())
}

#[test]
fn operations_above_the_lone_ones_share_a_batch() {
    let mut queue = Queue::default();
    let lone = [(); 4].map(|()| queue.begin_lone(3));
    assert_eq!(lone, [true, true, true, false]);
    let started = queue_up(&mut queue, 2 * MOST_TOGETHER);
    assert_eq!(started, 2, "as many as it takes");
    assert_eq!([(); 2].map(|()| take(&mut queue)), [Some(MOST_TOGETHER); 2]);
    assert!(queue.come_back(), "one carrier stays for later operations");
    assert!(!queue.come_back(), "a second one is not needed");
    assert!(take(&mut queue).is_none());
    assert_eq!(queue.carriers, 0);
}

#[test]
fn lane_has_no_more_batches_under_way_than_carriers() {
    let mut queue = Queue::default();
    for _ in 0..MOST_CARRIERS {
        assert_eq!(queue_up(&mut queue, 1), 1);
        assert_eq!(take(&mut queue), Some(1));
    }
    assert_eq!(queue_up(&mut queue, 3), 0);
    assert!(queue.come_back());
    assert_eq!(take(&mut queue), Some(3));
}

#[test]
fn operations_of_a_group_leave_in_one_batch() {
    let mut queue = Queue::default();
    assert_eq!(queue_group(&mut queue, MOST_OF_GROUPS), 1);
    assert_eq!(take(&mut queue), Some(MOST_OF_GROUPS));
    let started = queue_up(&mut queue, 2 * MOST_TOGETHER);
    assert_eq!(started, 2, "later operations leave in small batches");
}

#[test]
fn operations_behind_a_group_leave_in_small_batches() {
    let mut queue = Queue::default();
    queue_group(&mut queue, MOST_OF_GROUPS);
    queue_up(&mut queue, 3 * MOST_TOGETHER);
    let (batch, started) = queue.take().unwrap();
    assert_eq!((batch.len(), started), (MOST_OF_GROUPS, 2));
    assert_eq!([(); 3].map(|()| take(&mut queue)), [Some(MOST_TOGETHER); 3]);
}

#[test]
fn a_group_leaves_whole_under_load() {
    let mut queue = Queue::default();
    queue_up(&mut queue, MOST_OF_GROUPS);
    queue_group(&mut queue, MOST_OF_GROUPS);
    assert_eq!(
        [(); 2].map(|()| take(&mut queue)),
        [Some(MOST_OF_GROUPS); 2]
    );
}

#[test]
fn a_group_that_is_not_wanted_any_more_leaves_small_batches() {
    let mut queue = Queue::default();
    let group = (0..FEW).map(|number| Numbered(number, false));
    queue.push_group(group.collect());
    queue_up(&mut queue, MOST_OF_GROUPS);
    assert_eq!(take(&mut queue), Some(MOST_TOGETHER));
}

#[test]
fn closed_lane_gives_all_operations_back() {
    let mut queue = Queue::default();
    queue_up(&mut queue, 3);
    assert_eq!(queue.close().len(), 3);
    let pushed = queue.push(Numbered(0, true));
    assert_eq!((pushed.carriers, pushed.unwanted.len()), (0, 1));
    let pushed = queue.push_group(vec![Numbered(0, true)]);
    assert_eq!((pushed.carriers, pushed.unwanted.len()), (0, 1));
}

#[test]
fn unwanted_operations_take_no_room_without_a_connection() {
    let mut queue = Queue::default();
    queue_up(&mut queue, 100);
    for number in 0..10_000 {
        queue.push(Numbered(number, false));
        assert!(queue.waiting.len() <= 2 * (100 + FEW));
    }
    let wanted = queue.waiting.iter().filter(|numbered| numbered.is_wanted());
    let wanted: Vec<_> = wanted.map(|numbered| numbered.0).collect();
    assert_eq!(wanted, Vec::from_iter(0..100), "in their order");
}

/// What can happen to a queue, in any order.
#[derive(Debug, Clone)]
enum Step {
    BeginLone { most: usize },
    Ask { times: usize },
    AskTogether { times: usize },
    EndLone,
    CarrierDeparts,
    CarrierComesBack,
}

proptest! {
    #[test]
    fn waiting_operation_has_a_carrier_and_keeps_its_order(
        steps in prop::collection::vec(
            prop_oneof![
                1 => (0..3usize).prop_map(|most| Step::BeginLone { most }),
                4 => (1..3 * MOST_TOGETHER / 2).prop_map(|times| Step::Ask { times }),
                1 => (1..2 * MOST_OF_GROUPS).prop_map(|times| Step::AskTogether { times }),
                1 => Just(Step::EndLone),
                1 => Just(Step::CarrierDeparts),
                1 => Just(Step::CarrierComesBack),
            ],
            0..100,
        )
    ) {
        let mut queue = Queue::default();
        let numbers = |batch: Vec<Numbered>| batch.into_iter().map(|numbered| numbered.0);
        let (mut asked, mut carried, mut started) = (0, Vec::new(), 0);
        for step in steps {
            let away = queue.carriers - queue.here;
            match step {
                Step::BeginLone { most } => {
                    queue.begin_lone(most);
                }
                Step::Ask { times } => {
                    for _ in 0..times {
                        started += queue.push(Numbered(asked, true)).carriers;
                        asked += 1;
                    }
                }
                Step::AskTogether { times } => {
                    let group = (asked..asked + times).map(|number| Numbered(number, true));
                    started += queue.push_group(group.collect()).carriers;
                    asked += times;
                }
                Step::EndLone if queue.lone > 0 => queue.end_lone(),
                Step::CarrierDeparts if queue.here > 0 => match queue.take() {
                    Some((batch, beside)) => {
                        prop_assert!((1..=MOST_OF_GROUPS).contains(&batch.len()));
                        carried.extend(numbers(batch));
                        started += beside;
                    }
                    None => started -= 1,
                },
                Step::CarrierComesBack if away > 0 => started -= usize::from(!queue.come_back()),
                _ => {}
            }
            prop_assert!(
                queue.carriers == MOST_CARRIERS || queue.waiting.len() <= queue.here * queue.most_together(),
                "an operation waits without a carrier"
            );
            prop_assert!(queue.here <= queue.carriers && queue.carriers <= MOST_CARRIERS);
            prop_assert_eq!(started, queue.carriers);
            prop_assert!(queue.lone <= 2);
        }
        while queue.carriers > 0 {
            if queue.here == 0 {
                queue.come_back();
            }
            let taken = queue.take().map(|(batch, _)| batch);
            carried.extend(numbers(taken.unwrap_or_default()));
        }
        prop_assert_eq!(carried, (0..asked).collect::<Vec<_>>());
    }
}
