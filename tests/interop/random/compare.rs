//! What two plays must share after each step, and the differences that docs/from-redisson.md names. Pure.
//!
//! A named difference is not a permission to differ: each side does exactly what the page says of it.

use std::collections::BTreeSet;

use super::leases::Change;
use super::rest::{is_gone, leased};
use super::situation::{Family, OWNERS, SHORT, Situation, Step};
use super::state::Snapshot;

const LOST_MEMBER: &str = "group with a lost member";
pub const STOPPED_RENEWAL: &str = "renewal beside another hold";
const SECOND_HOLD: &str = "second hold after a forced release";
/// Those after which a schedule ends, because the plays differ from then on.
pub const ENDS: [&str; 2] = [STOPPED_RENEWAL, SECOND_HOLD];
const REFUSED: &str = "refused: not held";

/// A play before and after a step.
#[derive(Debug, Default)]
pub struct Seen {
    /// Of the step's owner, and of owners that waited.
    pub answers: Vec<(usize, String)>,
    pub before: Snapshot,
    pub after: Snapshot,
}

impl Seen {
    pub fn change(&self, key: &str) -> Change {
        Change::of(key, &self.before, &self.after)
    }

    /// The answer to an owner, and those to the other ones.
    fn answers(&self, owner: usize) -> (&str, Vec<&(usize, String)>) {
        let all = self.answers.iter();
        let (own, rest): (Vec<_>, _) = all.partition(|(answered, _)| *answered == owner);
        (own.first().map_or("", |(_, answer)| answer), rest)
    }
}

/// Compares a step in both plays, by the situation before it. Returns the named differences, or what differs.
#[rustfmt::skip]
pub fn compare(situation: &Situation, step: &Step, java: &Seen, mixed: &Seen) -> Result<BTreeSet<&'static str>, String> {
    Both { situation, step, java, mixed }.differences()
}

struct Both<'a> {
    situation: &'a Situation,
    step: &'a Step,
    java: &'a Seen,
    mixed: &'a Seen,
}

type Named = Result<Option<&'static str>, String>;

impl Both<'_> {
    fn differences(&self) -> Result<BTreeSet<&'static str>, String> {
        if self.has_stopped_renewal() {
            return Ok([STOPPED_RENEWAL].into());
        }
        let mut named: BTreeSet<_> = self.answers()?.into_iter().collect();
        let waits = self.java.answers.is_empty() || !self.situation.waiting.is_empty();
        // A group that waits holds members now and then.
        if self.is_group() && waits || named.contains(SECOND_HOLD) {
            return Ok(named);
        }
        named.extend(self.keys()?);
        if !named.contains(LOST_MEMBER) {
            for name in self.mixed.after.keys.keys() {
                named.extend(self.expiry(name)?);
            }
        }
        Ok(named)
    }

    /// Whether the step's owner is a task of this crate in the mixed play.
    fn is_ours(&self) -> bool {
        self.step.owner < 2
    }

    fn is_group(&self) -> bool {
        self.situation.game.family == Family::Group
    }

    fn answers(&self) -> Named {
        if self.java.answers == self.mixed.answers {
            return Ok(None);
        }
        let (situation, owner) = (self.situation, self.step.owner);
        let ((java, to_others), (ours, equal)) =
            (self.java.answers(owner), self.mixed.answers(owner));
        let is_free = !self.java.before.keys.contains_key("NAME");
        let [reads, writes] = ["read", "write"].map(|side| situation.count(owner, side) > 0);
        let upgrades = self.step.side() == "write" && reads && !writes;
        // The client believes that it has a hold, and does not ask.
        let mut forced = situation.forced[..2].iter();
        let believes = self.step.acquires() && forced.any(|holds| !holds.is_empty());
        let token = |answer: &str| answer.strip_prefix("true ")?.parse::<i64>().ok();
        let outer = situation.holds[owner].first().and_then(|hold| hold.token);
        let named = match (situation.game.family, self.step.verb(), java, ours) {
            _ if !self.is_ours() || to_others != equal => None,
            (Family::Lock { queues: true, .. }, "unlock", "ok", REFUSED) => {
                is_free.then_some("release of a free fair lock")
            }
            (_, _, _, "refused: held already" | "refused: would deadlock") if believes => {
                Some(SECOND_HOLD)
            }
            (_, _, _, "false") if believes && java.starts_with("true") => Some(SECOND_HOLD),
            (Family::ReadWrite, _, "false", "refused: would deadlock") => {
                upgrades.then_some("upgrade")
            }
            _ if outer.is_some() && token(ours) == outer && token(java) > outer => {
                Some("inner token")
            }
            _ => None,
        };
        named.map(Some).ok_or("the answers differ".to_owned())
    }

    fn keys(&self) -> Named {
        let (java, ours) = (self.java, self.mixed);
        let differs = |name: &&String| {
            java.after.content(name) != ours.after.content(name) && !self.is_counter(name)
        };
        let all = java.after.keys.keys().chain(ours.after.keys.keys());
        let differing: Vec<_> = all.filter(differs).collect();
        // Redisson's release of a group stops at the first lost member.
        let is_release = self.is_group() && self.is_ours() && self.step.words == ["unlock"];
        let is_refused = java.answers(self.step.owner).0 == REFUSED;
        let is_left_by =
            |seen: &Seen, name: &str| seen.after.content(name) == seen.before.content(name);
        let is_left = |name: &&String| is_left_by(java, name) && !is_left_by(ours, name);
        match differing.is_empty() {
            true => Ok(None),
            _ if is_release && is_refused && differing.iter().all(is_left) => Ok(Some(LOST_MEMBER)),
            _ => Err(format!("the keys differ: {differing:?}")),
        }
    }

    /// Whether a key counts the tokens of a group's member. A waiting group acquires members, and gives them back, as often as it likes.
    fn is_counter(&self, name: &str) -> bool {
        self.is_group() && name.starts_with("redisson_lock_token")
    }

    /// Whether Redisson renews an owner's hold no longer, after another hold of it with a lease or of the other side.
    fn has_stopped_renewal(&self) -> bool {
        let change = self.mixed.change(&leased(self.step));
        let is_renewed = change.is_set(SHORT) || change.outlasts(SHORT);
        self.step.verb() == "renewed"
            && self.situation.mixed[self.step.owner]
            && is_gone(self.step, &self.java.after)
            && self.is_ours() == (is_renewed && !is_gone(self.step, &self.mixed.after))
    }

    fn expiry(&self, name: &str) -> Named {
        let (java, ours) = (self.java.change(name), self.mixed.change(name));
        let (situation, verb) = (self.situation, self.step.verb());
        let watchdog = situation.game.watchdog;
        if java.is_like(&ours) {
            return Ok(None);
        }
        if self.is_counter(name) {
            return Ok(Some("group counter expiry"));
        }
        let is_longer = ours.is_kept_or_sent_again() && ours.outlasts(watchdog);
        if situation.renews() && java.is_set(watchdog) && is_longer {
            return Ok(Some("renewal lease"));
        }
        let awaits_renewal = verb == "renewed" && name == leased(self.step);
        let may_renew = situation.renews() && !awaits_renewal;
        if may_renew && java.differs_by_a_renewal(&ours, watchdog) {
            return Ok(None);
        }
        // A client of this crate asks for a hold of its own a little after a task has waited for it, and so renews the hold: a reader's
        // holds all for the rest of its longest lease.
        let has_ours = situation.holds[..2].iter().any(|holds| !holds.is_empty());
        let is_renewed = !(self.is_ours() && verb == "unlock") && ours.is_set(watchdog);
        let (reader, _) = name.split_once(":rwlock_timeout:").unwrap_or(("-", ""));
        let markers = self.mixed.after.keys.iter();
        let mut others = markers.filter(|(other, _)| other.starts_with(reader) && *other != name);
        let is_shared = others.any(|(_, key)| ours.is_extended_up_to(key.expires));
        let is_verified = is_renewed || is_shared || ours.is_kept_or_sent_again();
        if has_ours && java.is_kept() && is_verified {
            return Ok(Some("verified hold"));
        }
        let rules = self.rules(name);
        if let Some((difference, by_java, by_rust)) = &rules
            && by_java.is_kept(name, self.java)
        {
            let mut by_rust = by_rust.iter();
            match self.is_ours() {
                true if by_rust.any(|rule| rule.is_kept(name, self.mixed)) => {
                    return Ok(Some(*difference));
                }
                false if by_java.is_kept(name, self.mixed) => return Ok(None),
                _ => {}
            }
        }
        Err(format!(
            "the expiry of {name} differs: {java:?}, {ours:?}; {rules:?}"
        ))
    }

    /// The name of a difference of a key's expiry, the rule of Redisson, and those of this crate, which keeps one.
    fn rules(&self, name: &str) -> Option<(&'static str, Rule, Vec<Rule>)> {
        use Rule::{Adds, AtLeast, Keeps, LongReader, LongestReader, Sets};
        const RE_ENTRY: &str = "re-entry lease";
        const RELEASE: &str = "inner release lease";
        const INSIDE: &str = "read release inside a write hold";
        let (situation, step) = (self.situation, self.step);
        let (owner, side, watchdog) = (step.owner, step.side(), situation.game.watchdog);
        let is_marker = name.contains(&format!("{{NAME}}:{}:rwlock_timeout:", OWNERS[owner]));
        let [reads, writes] = ["read", "write"].map(|side| situation.count(owner, side) > 0);
        let rest = situation.rest(owner, side);
        if step.acquires() && !is_marker {
            let lease = step.lease().unwrap_or(watchdog);
            let is_renewed_member = name == "NAME:write" && step.lease().is_none();
            let by_java = match side {
                // The lease of a further reader is the longest of all, here and in Redisson.
                "read" => AtLeast(lease),
                _ if situation.holds[owner].is_empty() => return None,
                "write" if writes => Adds(lease),
                "" if is_renewed_member => Adds(lease),
                _ => Sets(lease),
            };
            // A task of the client that waits may have verified the hold meanwhile.
            return Some((
                RE_ENTRY,
                by_java,
                vec![AtLeast(lease), Sets(lease.max(watchdog))],
            ));
        }
        Some(match (step.verb(), side, rest) {
            ("unlock", "read", Some(rest)) if is_marker => (RELEASE, Keeps, vec![Sets(rest)]),
            ("unlock", "read", _) if writes => (INSIDE, LongestReader, vec![Keeps, LongestReader]),
            ("unlock", "read", _) => (
                "read release lease",
                LongestReader,
                vec![LongestReader, LongReader],
            ),
            ("unlock", "write", None) if reads => ("downgrade lease", Keeps, vec![LongestReader]),
            ("unlock", _, Some(rest)) if reads => {
                (RELEASE, Sets(watchdog), vec![Sets(rest), LongestReader])
            }
            ("unlock", _, Some(rest)) => (RELEASE, Sets(watchdog), vec![Sets(rest)]),
            _ => return None,
        })
    }
}

/// What a step does to an expiry.
#[derive(Clone, Copy, Debug)]
enum Rule {
    Keeps,
    Sets(i64),
    AtLeast(i64),
    Adds(i64),
    /// The expiry becomes that of the longest read hold, if there is one.
    LongestReader,
    /// The expiry stays, and the longest read hold has two thirds of it.
    LongReader,
}

impl Rule {
    fn is_kept(self, name: &str, seen: &Seen) -> bool {
        let change = seen.change(name);
        match self {
            Self::Keeps => change.is_kept(),
            Self::Sets(lease) => change.is_set(lease),
            Self::AtLeast(lease) => change.is_at_least(lease),
            Self::Adds(lease) => change.is_added(lease),
            Self::LongestReader => match longest_reader(&seen.after) {
                Some(at) => change.ends_at(at),
                None => change.is_kept(),
            },
            Self::LongReader => longest_reader(&seen.after).is_some_and(|at| change.is_about(at)),
        }
    }
}

/// The expiry of the longest read hold. A forced release leaves markers, which count no more.
fn longest_reader(now: &Snapshot) -> Option<i64> {
    let fields = now.content("NAME").replace('=', ":rwlock_timeout:");
    let readers = fields.split(' ').filter_map(|field| {
        let (reader, count) = field.rsplit_once(':')?;
        Some((reader, count.parse::<u32>().ok()?))
    });
    let markers =
        readers.flat_map(|(reader, count)| (1..=count).map(move |number| (reader, number)));
    let expiry = |(reader, number)| {
        now.keys
            .get(&format!("{{NAME}}:{reader}:{number}"))?
            .expires
    };
    markers.filter_map(expiry).map(|expiry| expiry.at).max()
}

#[cfg(test)]
#[path = "compare_tests.rs"]
mod tests;
