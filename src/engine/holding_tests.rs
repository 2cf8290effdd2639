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
    let mut holding = Holding::new(clock.at(0));
    holding.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    assert_eq!(holding.valid_until, clock.at(WATCHDOG - 302));
    assert_eq!(holding.lost(clock.at(WATCHDOG - 303)), None);
    assert_eq!(
        holding.lost(clock.at(WATCHDOG - 302)),
        Some(LostReason::Expired)
    );
}

#[test]
fn a_watched_hold_is_renewed_every_third_and_retried_within_it() {
    let clock = Clock::new();
    let mut holding = Holding::new(clock.at(0));
    holding.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    assert_eq!(holding.next_duty(), Some(clock.at(10_000)));
    assert_eq!(holding.duty(clock.at(9_000)), Duty::Wait);
    // A renewal that is nearly due joins a batch that is sent anyway.
    assert_eq!(holding.duty(clock.at(9_600)), Duty::Renew(lease(WATCHDOG)));
    let retries: Vec<Instant> = (0..9)
        .scan(clock.at(9_600), |now, _| {
            *now = holding.next_duty()?;
            assert!(matches!(holding.duty(*now), Duty::Renew(_)));
            Some(*now)
        })
        .collect();
    assert!(
        retries.is_sorted() && retries[8] < clock.at(20_000),
        "{retries:?}"
    );
    holding.renewed(clock.at(20_000), &lease(WATCHDOG), clock.at(20_005));
    assert_eq!(holding.next_duty(), Some(clock.at(30_000)));
    assert_eq!(holding.valid_until, clock.at(20_000 + WATCHDOG - 302));
}

#[test]
fn a_fixed_lease_is_not_renewed() {
    let clock = Clock::new();
    let mut holding = Holding::new(clock.at(0));
    holding.grant(one(), clock.at(0), &lease(1_000), false);
    assert_eq!(holding.next_duty(), Some(clock.at(988)));
    assert_eq!(holding.duty(clock.at(900)), Duty::Wait);
    assert_eq!(holding.duty(clock.at(988)), Duty::Lost(LostReason::Expired));
}

#[test]
fn p_r8_a_short_inner_lease_shortens_nothing_and_leaves_the_watchdog_in_force() {
    let clock = Clock::new();
    let mut holding = Holding::new(clock.at(0));
    holding.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    let inner = holding.grant(one(), clock.at(10), &lease(1_000), false);
    assert_eq!(holding.valid_until, clock.at(WATCHDOG - 302));
    let left = holding.remaining_without(Some(inner), clock.at(20));
    assert_eq!(left, (1, Some(lease(WATCHDOG))));
    holding.remove(inner);
    assert!(matches!(holding.duty(clock.at(10_000)), Duty::Renew(_)));
}

#[test]
fn p_r8_a_renewal_never_shortens_the_lease_of_an_inner_hold() {
    let clock = Clock::new();
    let mut holding = Holding::new(clock.at(0));
    holding.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    holding.grant(one(), clock.at(0), &lease(600_000), false);
    let before = holding.valid_until;
    holding.renewed(clock.at(10_000), &lease(WATCHDOG), clock.at(10_001));
    assert_eq!(holding.valid_until, before);
}

#[test]
fn a_renewal_that_a_release_has_overtaken_promises_nothing() {
    let clock = Clock::new();
    let mut holding = Holding::new(clock.at(0));
    holding.grant(one(), clock.at(0), &lease(2_000), false);
    let inner = holding.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    holding.set_phase(inner, Phase::Ending);
    holding.begin_shortening(clock.at(1_000), &lease(2_000));
    holding.renewed(clock.at(999), &lease(WATCHDOG), clock.at(1_001));
    assert_eq!(holding.valid_until, clock.at(1_000 + 2_000 - 22));
}

#[test]
fn a_watched_hold_inside_a_fixed_one_is_renewed_only_while_it_lasts() {
    let clock = Clock::new();
    let mut holding = Holding::new(clock.at(0));
    holding.grant(one(), clock.at(0), &lease(2_000), false);
    let inner = holding.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    assert!(matches!(holding.duty(clock.at(10_000)), Duty::Renew(_)));
    holding.set_phase(inner, Phase::Ending);
    assert_eq!(
        holding.duty(clock.at(20_000)),
        Duty::Wait,
        "its release has begun"
    );
    let left = holding.remaining_without(Some(inner), clock.at(20_000));
    assert_eq!(left, (1, Some(lease(2_000))));
    holding.begin_shortening(clock.at(20_000), &lease(2_000));
    holding.remove(inner);
    assert_eq!(holding.next_duty(), Some(clock.at(20_000 + 2_000 - 22)));
}

#[test]
fn a_late_renewal_does_not_revive_a_hold_that_the_clock_has_ended() {
    let clock = Clock::new();
    let mut holding = Holding::new(clock.at(0));
    holding.grant(one(), clock.at(0), &lease(1_000), true);
    holding.renewed(clock.at(900), &lease(1_000), clock.at(990));
    assert_eq!(holding.lost(clock.at(991)), Some(LostReason::Expired));
}

#[test]
fn leaked_holds_are_released_the_latest_first_and_guarded_ones_not_at_all() {
    let clock = Clock::new();
    let mut holding = Holding::new(clock.at(0));
    let ids: Vec<_> = (0..3)
        .map(|_| holding.grant(one(), clock.at(0), &lease(WATCHDOG), true))
        .collect();
    assert_eq!(holding.take(Phase::Leaked, None), None);
    holding.set_phase(ids[0], Phase::Leaked);
    holding.set_phase(ids[2], Phase::Leaked);
    assert_eq!(holding.take(Phase::Leaked, None), Some(ids[2]));
    assert_eq!(holding.take(Phase::Leaked, None), Some(ids[0]));
    assert_eq!(holding.take(Phase::Leaked, None), None);
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
        then: Then,
    },
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let then = prop_oneof![Just(Then::Renewed), Just(Then::Fixed)];
    let extension = (any::<prop::sample::Index>(), 10..100_000u64, then);
    let step = prop_oneof![
        3 => (10..100_000u64, any::<bool>()).prop_map(|(lease, watched)| Step::Grant { lease, watched }),
        2 => any::<prop::sample::Index>().prop_map(Step::Release),
        2 => Just(Step::Renew),
        1 => extension.prop_map(|(index, lease, then)| Step::Extend { index, lease, then }),
        4 => (0..20_000u64).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    /// Against a model of the server: the holder never counts on more than the server gives.
    #[test]
    fn validity_never_exceeds_the_servers(steps in steps()) {
        let clock = Clock::new();
        let mut holding = Holding::new(clock.at(0));
        let (mut now, mut server_until, mut ids) = (0, 0, Vec::new());
        for step in steps {
            if holding.lost(clock.at(now)).is_some() && !ids.is_empty() {
                break;
            }
            match step {
                Step::Grant { lease: millis, watched } => {
                    ids.push(holding.grant(one(), clock.at(now), &lease(millis), watched));
                    server_until = server_until.max(now + millis);
                }
                Step::Release(index) if !ids.is_empty() => {
                    let id = ids.remove(index.index(ids.len()));
                    let (holds, left) = holding.remaining_without(Some(id), clock.at(now));
                    prop_assert_eq!(holds as usize, ids.len());
                    let Some(left) = left else { break };
                    holding.begin_shortening(clock.at(now), &left);
                    holding.remove(id);
                    let _ = holding.finish_shortening(clock.at(now), &left, clock.at(now));
                    server_until = now + left.duration.as_millis() as u64;
                }
                Step::Renew => if let Duty::Renew(renewal) = holding.duty(clock.at(now)) {
                    let before = holding.valid_until;
                    holding.renewed(clock.at(now), &renewal, clock.at(now));
                    prop_assert!(holding.valid_until >= before, "a renewal never shortens");
                    server_until = server_until.max(now + renewal.duration.as_millis() as u64);
                },
                Step::Extend { index, lease: millis, then } if !ids.is_empty() => {
                    let id = ids[index.index(ids.len())];
                    holding.extend(id, clock.at(now), &lease(millis), then, clock.at(now)).unwrap();
                    server_until = server_until.max(now + millis);
                }
                Step::Pass(millis) => now += millis,
                Step::Release(_) | Step::Extend { .. } => {}
            }
            let longest = ids.iter().map(|id| holding.lasts_until(*id).unwrap()).max();
            prop_assert!(longest < Some(clock.at(server_until)));
            prop_assert!(ids.is_empty() || holding.valid_until < clock.at(server_until));
            prop_assert_eq!(holding.next_duty().is_some(), !ids.is_empty());
        }
    }
}

#[test]
fn only_hold_of_the_watchdogs_lease_is_passed_on_while_more_than_half_is_left() {
    let clock = Clock::new();
    let granted = |watched| {
        let mut holding = Holding::new(clock.at(0));
        let id = holding.grant(one(), clock.at(0), &lease(WATCHDOG), watched);
        (holding, id)
    };
    let (mut holding, id) = granted(true);
    assert!(
        holding.pass(id, two(), clock.at(WATCHDOG / 2)).is_none(),
        "half is left"
    );
    let (mut next, passed) = holding
        .pass(id, two(), clock.at(14_000))
        .expect("enough is left");
    assert_eq!((holding.count(), next.live_count()), (0, 1));
    assert_eq!(next.valid_until, clock.at(WATCHDOG - 302));
    assert_eq!(
        next.next_duty(),
        Some(clock.at(10_000)),
        "it is renewed as before"
    );
    // The guard of the first says nothing about the second.
    assert_ne!(id, passed);
    next.set_phase(id, Phase::Ending);
    assert_eq!(next.live_count(), 1);
    let (mut holding, id) = granted(false);
    assert!(
        holding.pass(id, two(), clock.at(1)).is_none(),
        "its lease is its own"
    );
    let (mut holding, id) = granted(true);
    let (now, long) = (clock.at(1), lease(600_000));
    holding.extend(id, now, &long, Then::Renewed, now).unwrap();
    assert!(
        holding.pass(id, two(), clock.at(2)).is_none(),
        "the next one asked for no such lease"
    );
    let (mut holding, id) = granted(true);
    let inner = holding.grant(one(), clock.at(1), &lease(WATCHDOG), true);
    assert!(
        holding.pass(inner, two(), clock.at(2)).is_none(),
        "it is not the only one"
    );
    holding.remove(inner);
    holding.reported_loss = Some(LostReason::Gone);
    assert!(holding.pass(id, two(), clock.at(3)).is_none(), "it is lost");
}

#[test]
fn readers_join_and_leave_while_the_server_counts_one() {
    let (clock, one, two, three) = (Clock::new(), one(), two(), two());
    let mut holding = Holding::new(clock.at(0));
    let first = holding.grant(one, clock.at(0), &lease(WATCHDOG), true);
    assert!(holding.join(two, clock.at(1)).is_none(), "it is not open");
    holding.opens(clock.at(10));
    let (second, is_first) = holding.join(two, clock.at(1)).expect("it is open");
    assert!(!is_first, "another hold is renewed");
    let (again, _) = holding.join(two, clock.at(2)).unwrap();
    assert_eq!((holding.on_server(), holding.count()), (1, 3));
    assert_eq!(holding.leave(first, clock.at(3)), Some((one, 0)));
    assert_eq!(holding.leave(again, clock.at(3)), Some((two, 1)));
    assert_eq!(
        holding.leave(second, clock.at(3)),
        None,
        "the server is to hear of it"
    );
    // Its guard is gone, and the release has not begun.
    holding.set_phase(second, Phase::Dropped);
    let (third, is_first) = holding.join(three, clock.at(4)).unwrap();
    assert!(is_first, "no other hold is renewed");
    assert_eq!(holding.leave(second, clock.at(5)), Some((two, 0)));
    let (holds, _) = holding.remaining_without(Some(third), clock.at(5));
    assert_eq!(holds, 0);
    assert_eq!(holding.on_server(), 1, "the release may end unsent");
    holding.closes();
    assert!(
        holding.join(one, clock.at(5)).is_none(),
        "its release has begun"
    );
}

#[test]
fn readers_do_not_join_a_fixed_old_closed_or_lost_hold() {
    let clock = Clock::new();
    let open = |millis, watched| {
        let mut holding = Holding::new(clock.at(0));
        holding.grant(one(), clock.at(0), &lease(millis), watched);
        holding.opens(clock.at(WATCHDOG));
        holding
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
    closed.closes();
    assert!(closed.join(two(), clock.at(1)).is_none());
    let mut lost = open(WATCHDOG, true);
    lost.reported_loss = Some(LostReason::Gone);
    assert!(lost.join(two(), clock.at(1)).is_none());
}

#[test]
fn server_hears_of_a_leave_that_shortens_a_lease() {
    let clock = Clock::new();
    let mut holding = Holding::new(clock.at(0));
    let first = holding.grant(one(), clock.at(0), &lease(WATCHDOG), true);
    holding.opens(clock.at(10));
    let fixed = holding.grant(one(), clock.at(1), &lease(600_000), false);
    let (joined, _) = holding.join(two(), clock.at(2)).unwrap();
    assert_eq!(
        holding.leave(fixed, clock.at(3)),
        None,
        "its lease is longer"
    );
    assert_eq!(
        holding.leave(joined, clock.at(3)).map(|(_, left)| left),
        Some(0)
    );
    assert_eq!(
        holding.leave(first, clock.at(3)),
        None,
        "the server counts both"
    );
    let (holds, left) = holding.remaining_without(Some(first), clock.at(3));
    assert_eq!(holds, 1);
    assert!(left.unwrap().duration > Duration::from_secs(500));
}
