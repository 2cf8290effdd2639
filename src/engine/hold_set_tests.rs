use proptest::prelude::*;

use super::*;

const WATCHDOG: u64 = 30_000;

fn one() -> Owner {
    Owner::of_thread()
}

fn two() -> Owner {
    Owner::new()
}

fn lease(millis: u64) -> Lease {
    Lease::new(Duration::from_millis(millis)).unwrap()
}

struct Clock(Instant);

impl Clock {
    fn new() -> Self {
        Self(Instant::now())
    }

    fn at(&self, millis: u64) -> Instant {
        self.0 + Duration::from_millis(millis)
    }
}

#[test]
fn validity_ends_before_the_servers_lease() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    hold_set.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    assert_eq!(hold_set.valid_until, clock.at(WATCHDOG - 302));
    assert_eq!(hold_set.lost_reason(clock.at(WATCHDOG - 303)), None);
    assert_eq!(
        hold_set.lost_reason(clock.at(WATCHDOG - 302)),
        Some(LostReason::Expired)
    );
}

#[test]
fn a_watched_hold_is_renewed_every_third_and_retried_within_it() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    hold_set.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    assert_eq!(hold_set.next_duty(), Some(clock.at(10_000)));
    assert_eq!(hold_set.duty(clock.at(9_000)), Duty::Wait);
    // A renewal that is nearly due joins a batch that is sent anyway.
    assert_eq!(hold_set.duty(clock.at(9_600)), Duty::Renew(lease(WATCHDOG)));
    let retries: Vec<Instant> = (0..9)
        .scan(clock.at(9_600), |now, _| {
            *now = hold_set.next_duty()?;
            assert!(matches!(hold_set.duty(*now), Duty::Renew(_)));
            Some(*now)
        })
        .collect();
    assert!(
        retries.is_sorted() && retries[8] < clock.at(20_000),
        "{retries:?}"
    );
    hold_set.record_renewal(clock.at(20_000), &lease(WATCHDOG), clock.at(20_005));
    assert_eq!(hold_set.next_duty(), Some(clock.at(30_000)));
    assert_eq!(hold_set.valid_until, clock.at(20_000 + WATCHDOG - 302));
}

#[test]
fn a_fixed_lease_is_not_renewed() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    hold_set.grant(one(), clock.at(0), &lease(1_000), false);
    assert_eq!(hold_set.next_duty(), Some(clock.at(988)));
    assert_eq!(hold_set.duty(clock.at(900)), Duty::Wait);
    assert_eq!(
        hold_set.duty(clock.at(988)),
        Duty::Lost(LostReason::Expired)
    );
}

#[test]
fn p_r8_a_short_inner_lease_shortens_nothing_and_leaves_the_watchdog_in_force() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    hold_set.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    let inner = hold_set.grant(one(), clock.at(10), &lease(1_000), false);
    assert_eq!(hold_set.valid_until, clock.at(WATCHDOG - 302));
    let left = hold_set.remaining_without(Some(inner), clock.at(20));
    assert_eq!(left, (1, Some(lease(WATCHDOG))));
    hold_set.remove(inner);
    assert!(matches!(hold_set.duty(clock.at(10_000)), Duty::Renew(_)));
}

#[test]
fn p_r8_a_renewal_never_shortens_the_lease_of_an_inner_hold() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    hold_set.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    hold_set.grant(one(), clock.at(0), &lease(600_000), false);
    let before = hold_set.valid_until;
    hold_set.record_renewal(clock.at(10_000), &lease(WATCHDOG), clock.at(10_001));
    assert_eq!(hold_set.valid_until, before);
}

#[test]
fn a_renewal_that_a_release_has_overtaken_promises_nothing() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    hold_set.grant(one(), clock.at(0), &lease(2_000), false);
    let inner = hold_set.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    hold_set.set_phase(inner, Phase::Ending);
    hold_set.begin_shortening(clock.at(1_000), &lease(2_000));
    hold_set.record_renewal(clock.at(999), &lease(WATCHDOG), clock.at(1_001));
    assert_eq!(hold_set.valid_until, clock.at(1_000 + 2_000 - 22));
}

#[test]
fn a_watched_hold_inside_a_fixed_one_is_renewed_only_while_it_lasts() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    hold_set.grant(one(), clock.at(0), &lease(2_000), false);
    let inner = hold_set.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    assert!(matches!(hold_set.duty(clock.at(10_000)), Duty::Renew(_)));
    hold_set.set_phase(inner, Phase::Ending);
    assert_eq!(
        hold_set.duty(clock.at(20_000)),
        Duty::Wait,
        "its release has begun"
    );
    let left = hold_set.remaining_without(Some(inner), clock.at(20_000));
    assert_eq!(left, (1, Some(lease(2_000))));
    hold_set.begin_shortening(clock.at(20_000), &lease(2_000));
    hold_set.remove(inner);
    assert_eq!(hold_set.next_duty(), Some(clock.at(20_000 + 2_000 - 22)));
}

#[test]
fn a_late_renewal_does_not_revive_a_hold_that_the_clock_has_ended() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    hold_set.grant(one(), clock.at(0), &lease(1_000), true);
    hold_set.record_renewal(clock.at(900), &lease(1_000), clock.at(990));
    assert_eq!(
        hold_set.lost_reason(clock.at(991)),
        Some(LostReason::Expired)
    );
}

#[test]
fn leaked_holds_are_released_the_latest_first_and_guarded_ones_not_at_all() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    let ids: Vec<_> = (0..3)
        .map(|_| hold_set.grant(one(), clock.at(0), &lease(WATCHDOG), true))
        .collect();
    assert_eq!(hold_set.take(Phase::Leaked, |_| true), None);
    hold_set.set_phase(ids[0], Phase::Leaked);
    hold_set.set_phase(ids[2], Phase::Leaked);
    assert_eq!(hold_set.take(Phase::Leaked, |_| true), Some(ids[2]));
    assert_eq!(hold_set.take(Phase::Leaked, |_| true), Some(ids[0]));
    assert_eq!(hold_set.take(Phase::Leaked, |_| true), None);
}

#[derive(Debug, Clone)]
enum Step {
    Grant {
        lease: u64,
        watched: bool,
    },
    Release(prop::sample::Index),
    Renew,
    Extend {
        index: prop::sample::Index,
        lease: u64,
    },
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let extension = (any::<prop::sample::Index>(), 10..100_000u64);
    let step = prop_oneof![
        3 => (10..100_000u64, any::<bool>()).prop_map(|(lease, watched)| Step::Grant { lease, watched }),
        2 => any::<prop::sample::Index>().prop_map(Step::Release),
        2 => Just(Step::Renew),
        1 => extension.prop_map(|(index, lease)| Step::Extend { index, lease }),
        4 => (0..20_000u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// A model of the server: the holder never relies on more than the server gives.
    #[test]
    fn validity_never_exceeds_the_servers(steps in steps()) {
        let clock = Clock::new();
        let mut hold_set = HoldSet::new(clock.at(0));
        let (mut now, mut server_until, mut ids) = (0, 0, Vec::new());
        for step in steps {
            if hold_set.lost_reason(clock.at(now)).is_some() && !ids.is_empty() {
                break;
            }
            match step {
                Step::Grant { lease: millis, watched } => {
                    ids.push(hold_set.grant(one(), clock.at(now), &lease(millis), watched));
                    server_until = server_until.max(now + millis);
                }
                Step::Release(index) if !ids.is_empty() => {
                    let id = ids.remove(index.index(ids.len()));
                    let (holds, left) = hold_set.remaining_without(Some(id), clock.at(now));
                    prop_assert_eq!(holds as usize, ids.len());
                    let Some(left) = left else { break };
                    hold_set.begin_shortening(clock.at(now), &left);
                    hold_set.remove(id);
                    let _ = hold_set.finish_shortening(clock.at(now), &left, clock.at(now));
                    server_until = now + left.duration.as_millis() as u64;
                }
                Step::Renew => if let Duty::Renew(renewal) = hold_set.duty(clock.at(now)) {
                    let before = hold_set.valid_until;
                    hold_set.record_renewal(clock.at(now), &renewal, clock.at(now));
                    prop_assert!(hold_set.valid_until >= before, "a renewal never shortens");
                    server_until = server_until.max(now + renewal.duration.as_millis() as u64);
                },
                Step::Extend { index, lease: millis } if !ids.is_empty() => {
                    let id = ids[index.index(ids.len())];
                    hold_set.extend(id, clock.at(now), &lease(millis), clock.at(now)).unwrap();
                    server_until = server_until.max(now + millis);
                }
                Step::Pass(millis) => now += millis,
                Step::Release(_) | Step::Extend { .. } => {}
            }
            let longest = ids.iter().map(|id| hold_set.hold_valid_until(*id).unwrap()).max();
            prop_assert!(longest < Some(clock.at(server_until)));
            prop_assert!(ids.is_empty() || hold_set.valid_until < clock.at(server_until));
            prop_assert_eq!(hold_set.next_duty().is_some(), !ids.is_empty());
        }
    }
}

#[test]
fn only_hold_of_the_watchdogs_lease_is_passed_on_while_more_than_half_is_left() {
    let clock = Clock::new();
    let granted = |watched| {
        let mut hold_set = HoldSet::new(clock.at(0));
        let id = hold_set.grant(one(), clock.at(0), &lease(WATCHDOG), watched);
        (hold_set, id)
    };
    let (mut hold_set, id) = granted(true);
    assert!(
        hold_set
            .hand_off(id, two(), clock.at(WATCHDOG / 2))
            .is_none(),
        "half is left"
    );
    let (mut next, passed) = hold_set
        .hand_off(id, two(), clock.at(14_000))
        .expect("enough is left");
    assert_eq!((hold_set.count(), next.live_count()), (0, 1));
    assert_eq!(next.valid_until, clock.at(WATCHDOG - 302));
    assert_eq!(
        next.next_duty(),
        Some(clock.at(10_000)),
        "it is renewed as before"
    );
    // The guard of the first hold says nothing about the second.
    assert_ne!(id, passed);
    next.set_phase(id, Phase::Ending);
    assert_eq!(next.live_count(), 1);
    let (mut hold_set, id) = granted(false);
    assert!(
        hold_set.hand_off(id, two(), clock.at(1)).is_none(),
        "its lease is its own"
    );
    let (mut hold_set, id) = granted(true);
    let (now, long) = (clock.at(1), lease(600_000));
    hold_set.extend(id, now, &long, now).unwrap();
    assert!(
        hold_set.hand_off(id, two(), clock.at(2)).is_none(),
        "the next one asked for no such lease"
    );
    let (mut hold_set, id) = granted(true);
    let inner = hold_set.grant(one(), clock.at(1), &lease(WATCHDOG), true);
    assert!(
        hold_set.hand_off(inner, two(), clock.at(2)).is_none(),
        "it is not the only one"
    );
    hold_set.remove(inner);
    hold_set.reported_loss = Some(LostReason::Gone);
    assert!(
        hold_set.hand_off(id, two(), clock.at(3)).is_none(),
        "it is lost"
    );
}

#[test]
fn readers_join_and_leave_while_the_server_counts_one() {
    let (clock, one, two, three) = (Clock::new(), one(), two(), two());
    let mut hold_set = HoldSet::new(clock.at(0));
    let first = hold_set.grant(one, clock.at(0), &lease(WATCHDOG), true);
    assert!(hold_set.join(two, clock.at(1)).is_none(), "it is not open");
    hold_set.open(clock.at(10));
    let (second, is_first) = hold_set.join(two, clock.at(1)).expect("it is open");
    assert!(!is_first, "another hold is renewed");
    let (again, _) = hold_set.join(two, clock.at(2)).unwrap();
    assert_eq!((hold_set.most_on_server, hold_set.count()), (1, 3));
    assert_eq!(hold_set.leave(first, clock.at(3)), Some((one, 0)));
    assert_eq!(hold_set.leave(again, clock.at(3)), Some((two, 1)));
    assert_eq!(
        hold_set.leave(second, clock.at(3)),
        None,
        "the server is to hear of it"
    );
    // Its guard is gone, and the release has not begun.
    hold_set.set_phase(second, Phase::Dropped);
    let (third, is_first) = hold_set.join(three, clock.at(4)).unwrap();
    assert!(is_first, "no other hold is renewed");
    assert_eq!(hold_set.leave(second, clock.at(5)), Some((two, 0)));
    let (holds, _) = hold_set.remaining_without(Some(third), clock.at(5));
    assert_eq!(holds, 0);
    assert_eq!(hold_set.most_on_server, 1, "the release may end unsent");
    hold_set.close();
    assert!(
        hold_set.join(one, clock.at(5)).is_none(),
        "its release has begun"
    );
}

#[test]
fn readers_do_not_join_a_fixed_old_closed_or_lost_hold() {
    let clock = Clock::new();
    let open = |millis, watched| {
        let mut hold_set = HoldSet::new(clock.at(0));
        hold_set.grant(one(), clock.at(0), &lease(millis), watched);
        hold_set.open(clock.at(WATCHDOG));
        hold_set
    };
    assert!(open(WATCHDOG, true).join(two(), clock.at(1)).is_some());
    assert!(
        open(WATCHDOG, false).join(two(), clock.at(1)).is_none(),
        "a fixed lease"
    );
    let half = clock.at(WATCHDOG / 2);
    assert!(
        open(WATCHDOG, true).join(two(), half).is_none(),
        "half is over"
    );
    let mut closed = open(WATCHDOG, true);
    closed.close();
    assert!(closed.join(two(), clock.at(1)).is_none());
    let mut lost = open(WATCHDOG, true);
    lost.reported_loss = Some(LostReason::Gone);
    assert!(lost.join(two(), clock.at(1)).is_none());
}

#[test]
fn server_hears_of_a_leave_that_shortens_a_lease() {
    let clock = Clock::new();
    let mut hold_set = HoldSet::new(clock.at(0));
    let first = hold_set.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    hold_set.open(clock.at(10));
    let fixed = hold_set.grant(one(), clock.at(1), &lease(600_000), false);
    let (joined, _) = hold_set.join(two(), clock.at(2)).unwrap();
    assert_eq!(
        hold_set.leave(fixed, clock.at(3)),
        None,
        "its lease is longer"
    );
    assert_eq!(
        hold_set.leave(joined, clock.at(3)).map(|(_, left)| left),
        Some(0)
    );
    assert_eq!(
        hold_set.leave(first, clock.at(3)),
        None,
        "the server counts both"
    );
    let (holds, left) = hold_set.remaining_without(Some(first), clock.at(3));
    assert_eq!(holds, 1);
    assert!(left.unwrap().duration > Duration::from_secs(500));
}
