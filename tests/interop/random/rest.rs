//! When a step is over, by what the server keeps: the owners that wait can only go on by another step. Pure.

use super::compare::Seen;
use super::situation::{Family, Game, OWNERS, SHORT, Step};
use super::state::Snapshot;

/// The kinds of a group's members, one of each.
pub const MEMBERS: [&str; 4] = ["reentrant", "fair", "write", "fenced"];

/// Whether the owner of an unanswered request has to wait for another owner.
pub fn waits(game: Game, step: &Step, now: &Snapshot) -> bool {
    if !["lock", "acquireList", "acquire", "await"].contains(&step.verb()) {
        return false;
    }
    let owner = OWNERS[step.owner];
    let excludes = |key: &str, own: &str| now.keys.contains_key(key) && !now.has(key, own);
    let (reads, writes) = (format!("{owner}="), format!("{owner}:write="));
    match game.family {
        Family::Lock { queues, .. } => {
            excludes("NAME", &reads) && (!queues || now.has("redisson_lock_queue:{NAME}", owner))
        }
        Family::ReadWrite => {
            let is_shared = step.side() == "read" && now.has("NAME", "mode=read");
            excludes("NAME", &writes) && !is_shared
        }
        Family::Group => MEMBERS.iter().any(|&member| {
            let own = if member == "write" { &writes } else { &reads };
            excludes(&format!("NAME:{member}"), own)
        }),
        Family::Semaphore | Family::Expirable => {
            let free = now.content("NAME").parse().unwrap_or(0);
            step.number(1).is_none_or(|wanted| free < wanted)
        }
        Family::Latch => now.keys.contains_key("NAME"),
    }
}

/// Whether a step that only waits is over: the lease has ended, or was renewed.
pub fn is_over(game: Game, step: &Step, seen: &Seen) -> bool {
    let now = &seen.after;
    match step.verb() {
        "expired" if game.family == Family::Expirable => {
            // A permit stays until a client takes it back.
            let soon = now.at..now.at + 100_000;
            let mut expiries = now.keys.values().filter_map(|key| key.expires);
            !expiries.any(|expiry| soon.contains(&expiry.at))
        }
        "expired" => is_gone(step, now),
        "renewed" => {
            // The rest of a longer lease is not renewed yet.
            let change = seen.change(&leased(step));
            is_gone(step, now) || !change.is_kept() || change.outlasts(SHORT)
        }
        _ => true,
    }
}

/// Whether the owner of a step has no hold of its side.
pub fn is_gone(step: &Step, now: &Snapshot) -> bool {
    let key = leased(step);
    !now.keys.contains_key(&key) || key == "NAME" && !now.has(&key, OWNERS[step.owner])
}

/// The key whose expiry is that of the owner's first hold.
pub fn leased(step: &Step) -> String {
    match step.side() {
        "read" => format!("{{NAME}}:{}:rwlock_timeout:1", OWNERS[step.owner]),
        _ => "NAME".to_owned(),
    }
}
