//! What a step does to the expiry of a key. Nothing is estimated: a step has set an expiry between the reading before it and the first
//! one that shows the expiry, so the lease lies between the expiry less each of their times.

use super::state::{At, Expiry, Snapshot};

/// The shortest time of an attempt of Redisson's group, which has 1.5 s for each of its four members.
const ATTEMPT: At = 6_000;

/// The expiry of a key before a step and after it, and the times of the readings then.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    before: Option<Expiry>,
    after: Option<Expiry>,
    from: At,
    to: At,
}

impl Change {
    pub fn of(name: &str, before: &Snapshot, after: &Snapshot) -> Self {
        let expiry = |snapshot: &Snapshot| snapshot.keys.get(name)?.expires;
        Self {
            before: expiry(before),
            after: expiry(after),
            from: before.at,
            to: after.at,
        }
    }

    pub fn is_kept(&self) -> bool {
        self.before.map(|expiry| expiry.at) == self.after.map(|expiry| expiry.at)
    }

    /// Whether the expiry is kept, or its rest was set again: it is later by the time of that request at most.
    pub fn is_kept_or_sent_again(&self) -> bool {
        let is_later = |(before, after): (Expiry, Expiry)| {
            (0..=after.by - self.from).contains(&(after.at - before.at))
        };
        self.is_kept() || self.before.zip(self.after).is_some_and(is_later)
    }

    /// The shortest and the longest lease that the step may have set. An expiry that looks unchanged may have been set again, to the
    /// same time.
    fn leases(&self) -> Option<(i64, i64)> {
        let after = self.after?;
        let by = if self.is_kept() { self.to } else { after.by };
        // The server's clock is read in whole ms, and the expiry is computed from such a time.
        Some((after.at - by - 1, after.at - self.from + 1))
    }

    pub fn is_set(&self, lease: i64) -> bool {
        let contains = |(shortest, longest)| shortest <= lease && lease <= longest;
        self.leases().is_some_and(contains)
    }

    /// Whether the step has extended the expiry to a lease, or left a longer one.
    pub fn is_at_least(&self, lease: i64) -> bool {
        let is_longer = |expiry: Expiry| expiry.at + 1 >= self.from + lease;
        self.is_set(lease) || self.is_kept_or_sent_again() && self.after.is_some_and(is_longer)
    }

    /// Whether the step has added a lease to the rest of the last one. A group whose attempt ends without all members releases them and
    /// repeats it: each attempt adds the lease, to the rest or to the lease that the release has set.
    pub fn is_added(&self, lease: i64) -> bool {
        let Some((before, after)) = self.before.zip(self.after) else {
            return false;
        };
        let attempts = 1 + (after.by - self.from) / ATTEMPT;
        let added = |times: i64| (after.at - before.at - times * lease).abs() <= times;
        (1..=attempts).any(added) || attempts > 1 && self.is_set(2 * lease)
    }

    /// Whether the key ends at a time, which a rest in whole ms moves.
    pub fn ends_at(&self, at: At) -> bool {
        let is_near = |expiry: Expiry| (expiry.at - at).abs() <= 1;
        self.after.is_some_and(is_near)
    }

    /// Whether the expiry stays, and a time is after two thirds of the rest.
    pub fn is_about(&self, at: At) -> bool {
        let is_long = |expiry: Expiry| (at - self.from) * 3 >= (expiry.at - self.from) * 2;
        self.is_kept() && self.after.is_some_and(is_long)
    }

    /// Whether the step has extended the expiry, to another one at most.
    pub fn is_extended_up_to(&self, other: Option<Expiry>) -> bool {
        let ends = [self.before, self.after, other].map(|expiry| expiry.map(|expiry| expiry.at));
        ends.is_sorted() && ends[0].is_some()
    }

    /// Whether more than a lease is left.
    pub fn outlasts(&self, lease: i64) -> bool {
        self.after.is_some_and(|expiry| expiry.at > self.to + lease)
    }

    /// Whether both steps have left the expiry, or may have set it for one lease.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self.leases(), other.leases()) {
            (Some(one), Some(two)) => {
                self.is_kept() && other.is_kept() || one.0 <= two.1 && two.0 <= one.1
            }
            (one, two) => one == two,
        }
    }

    /// Whether a renewal alone explains the difference of two plays: in one, the watchdog has set its lease during the step, and in the
    /// other it has set nothing, or the rest of a longer lease again.
    pub fn differs_by_a_renewal(&self, other: &Self, watchdog: i64) -> bool {
        let differs = |one: &Self, two: &Self| one.is_set(watchdog) && two.is_kept_or_sent_again();
        differs(self, other) || differs(other, self)
    }
}

#[test]
fn a_cut_of_a_renewed_lease_is_no_renewal() {
    // From an expiry at 30,000, by a step that begins at 5,000.
    let seen = |at, by| {
        let key = |at| [("lock".to_owned(), String::new(), Some(at))].into_iter();
        let before = Snapshot::default().followed_by(5_000, key(30_000));
        let seen = before.followed_by(by, key(at));
        Change::of("lock", &before, &seen.followed_by(by + 10, key(at)))
    };
    let change = |at| seen(at, 5_010);
    let (kept, renewed) = (change(30_000), change(35_005));
    assert!(kept.is_like(&change(30_000)) && renewed.is_like(&change(35_000)));
    assert!(!kept.is_like(&renewed) && kept.differs_by_a_renewal(&renewed, 30_000));
    for cut in [34_900, 25_005, 15_005].map(change) {
        assert!(!kept.is_like(&cut) && !renewed.is_like(&cut), "{cut:?}");
        assert!(!kept.differs_by_a_renewal(&cut, 30_000), "{cut:?}");
        assert!(!renewed.differs_by_a_renewal(&cut, 30_000), "{cut:?}");
        assert!(!cut.is_set(30_000) && !cut.is_at_least(30_000), "{cut:?}");
    }
    assert!(kept.is_at_least(20_000) && !kept.is_at_least(29_000));
    assert!(change(30_004).is_kept_or_sent_again());
    // A second attempt adds two leases to the rest, or one to the lease that a release has set.
    let added = |at, by| seen(at, by).is_added(60_000);
    assert!(added(90_001, 5_010) && !added(90_003, 5_020));
    for twice in [150_000, 125_005] {
        assert!(!added(twice, 5_010) && added(twice, 5_000 + ATTEMPT));
    }
    assert!(!added(150_005, 5_000 + ATTEMPT));
}
