use super::*;

struct Bed {
    waiters: Waiters,
    spec: Arc<SyncSpec>,
    now: Instant,
}

impl Bed {
    fn new() -> Self {
        Self {
            waiters: Waiters::new(Duration::from_secs(5)),
            spec: Arc::new(SyncSpec::semaphore("pool".into(), "pool")),
            now: Instant::now(),
        }
    }

    /// A waiter that was refused.
    fn parked(&mut self, permits: u32) -> WaiterId {
        self.waits_for(Wanted::Permits(permits))
    }

    fn waits_for(&mut self, wanted: Wanted) -> WaiterId {
        let signal = Arc::new(Notify::new());
        self.waiters
            .join(&self.spec, wanted, true, signal, self.now)
    }

    /// A waiter for the opening of a latch, whose mark is 42.
    fn waits_for_an_opening(&mut self) -> WaiterId {
        self.waits_for(Wanted::Opening {
            mark: 42,
            is_marked: false,
        })
    }

    fn message(&mut self, number: i64) {
        self.waiters
            .handle_message(&self.spec.channel, number, self.now);
    }

    fn notified(&mut self, all: &[WaiterId]) -> Vec<bool> {
        let notified = all.iter().map(|id| {
            let state = self.waiters.state(&self.spec, *id);
            matches!(state, State::Notified(_) | State::Stalled)
        });
        notified.collect()
    }
}

#[test]
fn a_message_wakes_waiters_up_to_its_permits_and_passes_over_a_larger_request() {
    let mut bed = Bed::new();
    let all = [3, 1, 1, 1].map(|permits| bed.parked(permits));
    bed.message(2);
    assert_eq!(bed.notified(&all), [false, true, true, false]);
    // Two waiters were notified of their share, which is not counted again.
    bed.message(3);
    assert_eq!(bed.notified(&all), [false, true, true, true]);
    bed.message(6);
    assert_eq!(bed.notified(&all), [true; 4]);
}

/// Redisson announces the release of several ids, and an addition of permits, by their number.
#[test]
fn a_waiter_asks_when_a_message_announces_fewer_ids_than_it_wants() {
    let mut bed = Bed::new();
    let [big, bigger] = [3, 4].map(|permits| bed.waits_for(Wanted::Ids(permits)));
    bed.message(0);
    assert_eq!(bed.notified(&[big, bigger]), [false, false]);
    bed.message(2);
    assert_eq!(bed.notified(&[big, bigger]), [true, false]);
    bed.waiters.begin_attempt(&bed.spec, big);
    bed.message(1);
    bed.waiters.record_refusal(&bed.spec, big, None, bed.now);
    assert_eq!(
        bed.notified(&[big, bigger]),
        [true, false],
        "it was too soon"
    );
    bed.waiters.begin_attempt(&bed.spec, big);
    bed.waiters.mark_served(&bed.spec, big);
    bed.waiters.record_left(&bed.spec, 4, None, bed.now);
    assert_eq!(bed.notified(&[bigger]), [true]);
}

#[test]
fn a_share_without_a_taker_is_passed_on() {
    let mut bed = Bed::new();
    let all = [2, 1, 1].map(|permits| bed.parked(permits));
    bed.message(2);
    assert_eq!(bed.notified(&all), [true, false, false]);
    bed.waiters.leave(&bed.spec, all[0], bed.now);
    assert_eq!(bed.notified(&all[1..]), [true, true]);
    // A notified waiter that is not polled does not count for long either.
    let last = bed.parked(1);
    bed.now += PICK_UP;
    bed.message(1);
    assert_eq!(bed.notified(&[last]), [true]);
}

#[test]
fn a_message_during_an_attempt_is_not_missed() {
    let mut bed = Bed::new();
    let one = bed.parked(1);
    bed.message(1);
    bed.waiters.begin_attempt(&bed.spec, one);
    bed.message(1);
    bed.waiters.record_refusal(&bed.spec, one, None, bed.now);
    assert_eq!(bed.notified(&[one]), [true]);
    bed.waiters.begin_attempt(&bed.spec, one);
    bed.message(0);
    bed.waiters.record_refusal(&bed.spec, one, None, bed.now);
    assert_eq!(bed.notified(&[one]), [false]);
}

#[test]
fn permits_are_given_to_the_first_that_wants_no_more() {
    let mut bed = Bed::new();
    let all = [2, 1, 1].map(|permits| bed.parked(permits));
    let given = |bed: &mut Bed| {
        let given = all.map(|id| {
            let state = bed.waiters.state(&bed.spec, id);
            matches!(state, State::Given { .. })
        });
        given.to_vec()
    };
    let now = bed.now;
    assert_eq!(bed.waiters.give(&bed.spec, 1, now, now), 0);
    assert_eq!(given(&mut bed), [false, true, false]);
    assert_eq!(bed.waiters.give(&bed.spec, 4, now, now), 1);
    assert_eq!(given(&mut bed), [true; 3]);
    let left = bed.waiters.leave(&bed.spec, all[0], bed.now);
    assert_eq!(left.given, Some((2, bed.now)));
    assert!(!left.is_last);
}

#[test]
fn permits_that_a_task_does_not_come_for_are_taken_back() {
    let mut bed = Bed::new();
    let (kept, other) = (bed.parked(2), bed.parked(1));
    let (given, hand_off_until) = (bed.now, bed.now + Duration::from_millis(2));
    assert_eq!(bed.waiters.give(&bed.spec, 2, hand_off_until, given), 0);
    assert_eq!(bed.waiters.next_poll(), Some(given + PERMITS_PICK_UP));
    let since = given + PERMITS_PICK_UP / 2;
    assert_eq!(bed.waiters.give(&bed.spec, 1, hand_off_until, since), 0);
    let untaken_permits = bed.waiters.notify_due(given + PERMITS_PICK_UP);
    assert_eq!(untaken_permits.len(), 1);
    assert_eq!(
        (untaken_permits[0].1, untaken_permits[0].2),
        (2, hand_off_until)
    );
    assert_eq!(bed.waiters.take(&bed.spec, kept), State::Parked);
    // The other comes in time.
    let came = bed.waiters.take(&bed.spec, other);
    assert_eq!(
        came,
        State::Given {
            since,
            hand_off_until
        }
    );
    assert_eq!(bed.waiters.take(&bed.spec, other), State::Over);
    assert!(bed.waiters.notify_due(since + PERMITS_PICK_UP).is_empty());
    let left = bed.waiters.leave(&bed.spec, kept, since);
    assert_eq!(left.given, None);
}

#[test]
fn a_wake_up_whose_task_does_not_come_is_passed_on() {
    let mut bed = Bed::new();
    let all = [1, 1].map(|permits| bed.parked(permits));
    bed.message(1);
    assert_eq!(bed.notified(&all), [true, false]);
    bed.now += PERMITS_PICK_UP;
    assert_eq!(bed.waiters.next_poll(), Some(bed.now));
    assert!(bed.waiters.notify_due(bed.now).is_empty());
    assert_eq!(bed.notified(&all), [true, true]);
    // The stalled waiter is the last one now.
    bed.waiters.begin_attempt(&bed.spec, all[1]);
    bed.waiters.record_refusal(&bed.spec, all[1], None, bed.now);
    bed.waiters.begin_attempt(&bed.spec, all[0]);
    bed.waiters.record_refusal(&bed.spec, all[0], None, bed.now);
    bed.message(1);
    assert_eq!(bed.notified(&all), [false, true]);
}

/// The permit that the stalled waiter was notified of goes to one waiter, once.
#[test]
fn a_late_waiter_has_its_wake_up_passed_on_once() {
    let mut bed = Bed::new();
    let all = [1, 1, 1].map(|permits| bed.parked(permits));
    bed.message(1);
    bed.now += PERMITS_PICK_UP;
    bed.waiters.notify_due(bed.now);
    assert_eq!(bed.notified(&all), [true, true, false]);
    bed.waiters.begin_attempt(&bed.spec, all[1]);
    bed.waiters.record_refusal(&bed.spec, all[1], None, bed.now);
    bed.now += PERMITS_PICK_UP;
    bed.waiters.notify_due(bed.now);
    assert_eq!(bed.notified(&all), [true, false, false]);
    assert!(bed.waiters.next_poll() > Some(bed.now + PERMITS_PICK_UP));
    // The stalled waiter asks when it is polled.
    assert_eq!(bed.waiters.take(&bed.spec, all[0]), State::Stalled);
}

#[test]
fn a_poll_whose_task_does_not_come_is_passed_on() {
    let mut bed = Bed::new();
    let all = [1, 1].map(|permits| bed.parked(permits));
    bed.now += Duration::from_secs(5);
    bed.waiters.notify_due(bed.now);
    assert_eq!(bed.notified(&all), [true, false]);
    bed.now += PERMITS_PICK_UP;
    bed.waiters.notify_due(bed.now);
    assert_eq!(bed.notified(&all), [true, true]);
}

/// The smallest number is a message that no client of Redisson sends, and no reason to end.
#[test]
fn the_smallest_number_wakes_no_waiter() {
    let mut bed = Bed::new();
    let all = [1, 1].map(|permits| bed.parked(permits));
    bed.message(1);
    bed.message(i64::MIN);
    assert_eq!(bed.notified(&all), [true, false]);
}

#[test]
fn an_opening_before_the_mark_is_looked_at_and_one_after_it_counts() {
    let mut bed = Bed::new();
    let (one, spec) = (bed.waits_for_an_opening(), bed.spec.clone());
    for odd in [7, -1] {
        bed.message(odd);
        assert_eq!(bed.waiters.state(&spec, one), State::Parked);
    }
    bed.message(OPENED);
    assert_eq!(bed.notified(&[one]), [true]);
    bed.message(42);
    assert_eq!(bed.notified(&[one]), [true], "a mark opens nothing");
    bed.message(OPENED);
    assert_eq!(bed.waiters.state(&spec, one), State::Over);
}

#[test]
fn a_count_set_after_the_mark_proves_that_the_latch_opened() {
    let mut bed = Bed::new();
    let (one, spec) = (bed.waits_for_an_opening(), bed.spec.clone());
    bed.message(BEGUN);
    assert_eq!(bed.notified(&[one]), [true], "it has not looked yet");
    bed.message(42);
    bed.message(BEGUN);
    assert_eq!(bed.waiters.state(&spec, one), State::Over);
}
