//! Tests of the oracle with histories made by hand: good histories pass, and for each rule one history breaks it.

use std::time::Duration;

use redisson_lock::{LostReason, Released};

use super::{
    log::{HoldId, Side, Trouble, What},
    story::{A, B, C, LEASE, RULES, Story, spot},
    verdict::Rules,
};

#[test]
fn tenures_without_an_overlap_are_good() {
    let mut story = Story::default();
    for spot in [A, B, A] {
        let hold = story.enters(spot);
        story.valid(spot, hold).leaves(spot, hold);
    }
    let tally = story.is_good();
    assert_eq!((tally.entered, tally.nested, tally.counted), (3, 0, 3));
}

#[test]
fn two_inside_are_seen_by_their_guards() {
    let mut story = Story::default();
    let hold = story.enters(A);
    story.enters(B);
    story.is_good();
    story.valid(A, hold).breaks("1 and 2 were inside together");
}

#[test]
fn two_inside_are_seen_by_a_release() {
    let mut story = Story::default();
    let hold = story.enters(A);
    story.enters(B);
    story.leaves(A, hold).breaks("inside together");
}

#[test]
fn two_inside_are_seen_by_a_count() {
    let mut story = Story::default();
    story.enters(A);
    story.enters(B);
    story.counts(A, 1).breaks("inside together");
}

#[test]
fn an_owner_that_has_lost_is_not_inside() {
    let mut story = Story::default();
    let hold = story.enters(A);
    story.pass(1000);
    story.enters(B);
    story.lost(A, hold).is_good();
}

#[test]
fn a_release_that_was_not_answered_proves_nothing() {
    let mut story = Story::default();
    let hold = story.enters(A);
    story.enters(B);
    story.ends(A, hold, Err(Trouble::Unavailable));
    let disturbed = Rules {
        disturbed: true,
        ..RULES
    };
    assert!(story.judged(disturbed).is_ok());
    story.breaks("failed: Unavailable");
}

#[test]
fn readers_are_inside_together_and_writers_alone() {
    let reader = |owner| spot(owner, 1, Side::Shared);
    let mut story = Story::default();
    let (one, other) = (story.enters(reader(1)), story.enters(reader(2)));
    story.valid(reader(1), one).valid(reader(2), other);
    story.is_good();
    story.enters(C);
    story.is_good();
    story.leaves(reader(1), one).breaks("1 and 3 were inside");
}

#[test]
fn a_group_of_locks_excludes_each_of_them() {
    let mut story = Story::default();
    let hold = story.enters(spot(1, 0b110, Side::Alone));
    story.enters(spot(2, 0b001, Side::Alone));
    story.valid(spot(1, 0b110, Side::Alone), hold).is_good();
    story.enters(spot(3, 0b010, Side::Alone));
    story
        .valid(spot(1, 0b110, Side::Alone), hold)
        .breaks("1 and 3 were inside");
}

#[test]
fn counts_are_exact() {
    let mut story = Story::default();
    let (outer, inner) = (story.enters(A), story.enters(A));
    story.counts(A, 2).still(A, inner, 1).counts(A, 1);
    story.leaves(A, outer).counts(A, 0);
    let tally = story.is_good();
    assert_eq!((tally.nested, tally.counted), (1, 5));

    for wrong in [Released::Fully, Released::StillHeld { holds: 2 }] {
        let mut story = Story::default();
        let (_outer, inner) = (story.enters(A), story.enters(A));
        story.ends(A, inner, Ok(wrong)).breaks("holds are left");
    }
    let mut story = Story::default();
    let hold = story.enters(A);
    story.still(A, hold, 1).breaks("1 holds are left");
    let mut story = Story::default();
    story.enters(A);
    story.counts(A, 2).breaks("has 1 holds, and counts 2");
    let mut story = Story::default();
    let (outer, _inner) = (story.enters(A), story.enters(A));
    story.counts(A, 1).is_good();
    story.valid(A, outer).is_good();
    let inner = HoldId(2);
    story.valid(A, inner).breaks("counts 1 while it had 2 good");
}

/// With members on different locks, only exclusion is judged.
#[test]
fn holds_on_different_locks_are_not_counted() {
    let rules = Rules {
        exact: false,
        ..RULES
    };
    let mut story = Story::default();
    let (outer, inner) = (story.enters(A), story.enters(A));
    story.asks(A).tell(A, What::Refused).valid(A, outer);
    story.leaves(A, inner).lost(A, outer);
    assert!(story.judged(rules).is_ok());
    story.breaks("holds are left");
    let hold = story.enters(A);
    story.enters(B);
    story.valid(A, hold).breaks_under(rules, "inside together");
}

#[test]
fn dropped_holds_may_still_count() {
    for left in [Released::Fully, Released::StillHeld { holds: 1 }] {
        let mut story = Story::default();
        let (outer, inner) = (story.enters(A), story.enters(A));
        story.tell(A, What::Drops { hold: inner });
        story.ends(A, outer, Ok(left)).is_good();
    }
    let mut story = Story::default();
    let outer = story.enters(A);
    story.asks(A).tell(A, What::Abandons);
    story.still(A, outer, 1).is_good();
    let mut story = Story::default();
    let (outer, inner) = (story.enters(A), story.enters(A));
    story.tell(A, What::Drops { hold: inner });
    story.still(A, outer, 2).breaks("2 holds are left");
}

#[test]
fn leaked_holds_count_until_they_are_lost() {
    let mut story = Story::default();
    let (leaked, outer) = (story.enters(A), story.enters(A));
    story.tell(A, What::Leaks { hold: leaked });
    story.still(A, outer, 1).leaves(A, leaked).is_good();

    let mut story = Story::default();
    let leaked = story.enters(A);
    story.tell(A, What::Leaks { hold: leaked }).pass(1000);
    let hold = story.enters(A);
    story.leaves(A, hold).is_good();

    // Other holds of the owner prolong the lease of the leaked one.
    let short = Duration::from_millis(100);
    let mut story = Story::default();
    let leaked = story.asks(A).had(A, short, true, None);
    story.tell(A, What::Leaks { hold: leaked });
    let outer = story.enters(A);
    story.pass(500);
    let inner = story.enters(A);
    story.still(A, inner, 2).still(A, leaked, 1);
    story.leaves(A, outer).is_good();

    let mut story = Story::default();
    let leaked = story.enters(A);
    story.tell(A, What::Leaks { hold: leaked });
    story
        .ends(A, leaked, Err(Trouble::NotHeld))
        .breaks("although it was good");
}

#[test]
fn an_owner_inside_is_not_refused() {
    let mut story = Story::default();
    let hold = story.enters(A);
    story.asks(A).tell(A, What::Refused).is_good();
    story.valid(A, hold).breaks("its owner was refused");
}

#[test]
fn an_owner_that_reads_does_not_write() {
    let reads = spot(1, 1, Side::Shared);
    let deadlock = What::Failed(Trouble::WouldDeadlock);
    let mut story = Story::default();
    let reading = story.enters(reads);
    story
        .asks(A)
        .tell(A, deadlock.clone())
        .valid(reads, reading);
    story.is_good();
    story.asks(A).tell(A, What::Refused).is_good();
    story.valid(reads, reading).breaks("its owner was refused");

    let mut story = Story::default();
    let reading = story.enters(reads);
    story.enters(A);
    story.valid(reads, reading).breaks("entered alone");
    // A writer may read, and write again.
    let mut story = Story::default();
    let (outer, reading) = (story.enters(A), story.enters(reads));
    let inner = story.enters(A);
    story.still(A, inner, 1).leaves(A, outer);
    story.leaves(reads, reading).is_good();
    story.asks(A).tell(A, deadlock);
    story.breaks("without a hold in the way");
}

#[test]
fn without_reentry_an_owner_enters_once() {
    let rules = Rules {
        reentrant: false,
        ..RULES
    };
    let held = What::Failed(Trouble::AlreadyHeld);
    let mut story = Story::default();
    let outer = story.enters(A);
    story.asks(A).tell(A, held.clone()).leaves(A, outer);
    assert!(story.judged(rules).is_ok());
    story.breaks("without a hold in the way");
    story.asks(A).tell(A, held);
    story.breaks_under(rules, "without a hold in the way");
    let mut story = Story::default();
    let outer = story.enters(A);
    story.enters(A);
    story.valid(A, outer).is_good();
    story.breaks_under(rules, "entered once more");
}

#[test]
fn nothing_is_lost_before_its_time() {
    let mut story = Story::default();
    let hold = story.enters(A);
    story.pass(900).lost(A, hold).breaks("lost (Expired)");

    let mut story = Story::default();
    let hold = story.enters(A);
    story.pass(900).valid(A, hold);
    story.pass(900).lost(A, hold).breaks("lost (Expired)");

    let gone = Err(Trouble::Lost(LostReason::Gone));
    let mut story = Story::default();
    let hold = story.enters(A);
    story.ends(A, hold, gone.clone()).breaks("lost (Gone)");
    let mut story = Story::default();
    let hold = story.enters(A);
    story.pass(1000).ends(A, hold, gone).is_good();
}

#[test]
fn a_hold_that_is_lost_at_once_has_run_out() {
    let lost = What::Failed(Trouble::Lost(LostReason::Expired));
    let mut story = Story::default();
    story.asks(A).pass(1000).tell(A, lost.clone()).is_good();
    story.asks(A).tell(A, lost).breaks("failed: Lost");
}

#[test]
fn a_loss_is_reported_although_its_owner_has_acquired_again() {
    let mut story = Story::default();
    let old = story.enters(A);
    story.asks(A).pass(1000);
    let new = story.had(A, LEASE, true, None);
    story.lost(A, old).is_good();
    story.lost(A, new).breaks("although it was good");
}

#[test]
fn an_inner_hold_does_not_shorten_the_validity_of_a_guard() {
    let short = Duration::from_millis(100);
    let mut story = Story::default();
    let outer = story.asks(A).had(A, short, true, None);
    let inner = story.enters(A);
    story.still(A, inner, 1).pass(50);
    story.lost(A, outer).breaks("lost (Expired)");

    let mut story = Story::default();
    let hold = story.enters(A);
    story.valid(A, hold).pass(1);
    let back = What::Valid {
        hold,
        until: Duration::ZERO,
    };
    story.tell(A, back);
    story.breaks("it would last longer");
}

#[test]
fn a_forced_release_ends_exclusion_and_excuses_losses() {
    let mut story = Story::default();
    let hold = story.enters(A);
    story.tell(C, What::Forces);
    story.enters(B);
    story.tell(C, What::Forced(Ok(true)));
    story.valid(A, hold).counts(A, 0).lost(A, hold).is_good();

    let mut story = Story::default();
    let hold = story.enters(A);
    story.enters(B);
    story.valid(A, hold).tell(C, What::Forces);
    story.breaks("inside together");

    let mut story = Story::default();
    story.tell(C, What::Forces);
    story.tell(C, What::Forced(Ok(false)));
    let hold = story.enters(A);
    story.enters(B);
    story.valid(A, hold).breaks("inside together");
}

/// The client that hands the lock off does not know of the forced release yet.
#[test]
fn client_may_hand_off_for_a_moment_after_a_forced_release() {
    let handed_off = |millis: u64| {
        let mut story = Story::default();
        story.tell(C, What::Forces);
        story.tell(C, What::Forced(Ok(true)));
        let hold = story.enters(A);
        story.lost(A, hold);
        let forced_hand_off = Duration::from_millis(millis);
        let rules = Rules {
            forced_hand_off,
            ..RULES
        };
        story.judged(rules).is_ok()
    };
    assert!(handed_off(100) && !handed_off(0));
}

#[test]
fn tokens_rise() {
    let mut story = Story::default();
    for (spot, token) in [(A, 1), (B, 2), (A, 5)] {
        let hold = story.enters_with(spot, token);
        story.leaves(spot, hold);
    }
    story.is_good();
    let again = story.enters_with(B, 5);
    story.leaves(B, again).breaks("token 5 after 5");

    // The next tenure of the same owner has a new token.
    let mut story = Story::default();
    for token in [1, 1] {
        let hold = story.enters_with(A, token);
        story.leaves(A, hold);
    }
    story.breaks("token 1 after 1");

    let mut story = Story::default();
    let outer = story.enters_with(A, 3);
    let inner = story.enters_with(A, 3);
    story.still(A, inner, 1).leaves(A, outer).is_good();
    let mut story = Story::default();
    let outer = story.enters_with(A, 3);
    story.enters_with(A, 4);
    story
        .valid(A, outer)
        .breaks("token 4 inside a hold with token 3");

    // A hold that ended before its owner learned of it proves nothing.
    let mut story = Story::default();
    story.asks(A);
    let hold = story.enters_with(B, 7);
    story.leaves(B, hold);
    story.had(A, LEASE, false, Some(6));
    story.is_good();
}

#[test]
fn the_queue_is_kept() {
    let mut story = Story::default();
    let inside = story.enters(C);
    story.asks(A).asks(B).queue(&[1, 2]).leaves(C, inside);
    let hold = story.had(A, LEASE, true, None);
    story.leaves(A, hold).had(B, LEASE, true, None);
    assert_eq!(story.is_good().ordered, 1);

    let mut story = Story::default();
    story.asks(A).asks(B).queue(&[1, 2]);
    let hold = story.had(B, LEASE, true, None);
    story.leaves(B, hold).had(A, LEASE, true, None);
    story.breaks("2 is inside before 1");
    let unfair = Rules {
        fair: false,
        ..RULES
    };
    assert!(story.judged(unfair).is_ok());
}

#[test]
fn a_waiter_that_was_seen_in_the_queue_is_not_overtaken() {
    let mut story = Story::default();
    story.asks(A).queue(&[1]);
    let hold = story.enters(B);
    story.leaves(B, hold).had(A, LEASE, true, None);
    story.breaks("2 is inside before 1");

    // Allowed: the overtaking owner already has a hold.
    let mut story = Story::default();
    let outer = story.enters(B);
    story.asks(A).queue(&[1]);
    let inner = story.enters(B);
    story.still(B, inner, 1).leaves(B, outer);
    story.had(A, LEASE, true, None);
    story.is_good();

    // Allowed: the server still counts the overtaking owner as the holder.
    let mut story = Story::default();
    let hold = story.enters(B);
    story.asks(A).queue(&[1]).pass(1000);
    story.lost(B, hold).enters(B);
    story.pass(1000).had(A, LEASE, true, None);
    story.is_good();

    // Allowed: a forced release may have ended an earlier grant of the waiter.
    let mut story = Story::default();
    story.asks(A).asks(B).queue(&[1, 2]);
    story.tell(C, What::Forces);
    story.had(B, LEASE, true, None);
    story.tell(C, What::Forced(Ok(true)));
    story.pass(1000).had(A, LEASE, true, None);
    story.is_good();

    // Allowed: the waiter abandons its attempt.
    let mut story = Story::default();
    story.asks(A).asks(B).queue(&[1, 2]);
    let hold = story.had(B, LEASE, true, None);
    story.leaves(B, hold).tell(A, What::Abandons);
    story.is_good();

    // Allowed: the lease may have ended before the grant arrived.
    let rules = Rules {
        slow_answer: LEASE + Duration::from_millis(1),
        ..RULES
    };
    for begins_queued in [false, true] {
        let mut story = Story::default();
        story.asks(A);
        if begins_queued {
            story.queue(&[1]);
        }
        story.asks(B).queue(&[1, 2]);
        let hold = story.had(B, LEASE, true, None);
        story.leaves(B, hold).had(A, LEASE, true, None);
        assert!(story.judged(rules).is_ok());
        story.breaks("2 is inside before 1");
    }
}

#[test]
fn an_acquisition_that_hangs_or_fails_without_a_limit_is_found() {
    let mut story = Story::default();
    story.asks(A).tell(A, What::Failed(Trouble::Hung));
    story.breaks("failed: Hung");
    let mut story = Story::default();
    story.asks(A).tell(A, What::Failed(Trouble::Unavailable));
    story.breaks("failed: Unavailable");
    let mut story = Story::default();
    story.tell(
        A,
        What::Asks {
            limited: true,
            lease: LEASE,
        },
    );
    story.tell(A, What::Failed(Trouble::Unavailable)).is_good();
}
