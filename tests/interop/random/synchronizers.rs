//! The steps of semaphores and latches, by the names of Redisson's methods.
//!
//! `acquire(0)` and its like are not drawn: Redisson's expirable semaphore never returns from them.

use fastrand::Rng;

use super::situation::{Family, Situation, Step};

/// The first step, the steps of which one is drawn, and the step that lets the owners that wait go on. FEW is 1 to 3, STEP -1 or 2, LEASE
/// a lease, LIVE a permit that is acquired, ANY one that is or was. Those with `alone` wait for no other waiter: with two, either may
/// be served, and Redisson's deletion of a latch wakes none.
fn steps(family: Family) -> Option<[&'static str; 3]> {
    Some(match family {
        Family::Semaphore => [
            "trySetPermits 2",
            "alone acquire FEW, alone acquire FEW, alone acquire FEW, tryAcquire FEW, tryAcquireFor FEW 300, release FEW, release FEW, \
             release FEW, addPermits STEP, drainPermits, trySetPermits FEW, availablePermits",
            "release 2",
        ],
        Family::Expirable => [
            "trySetPermits 2",
            "alone acquireList FEW LEASE, alone acquireList FEW LEASE, alone acquireList FEW LEASE, alone tryAcquire 2000, \
             tryAcquire LEASE, tryAcquire LEASE, tryAcquireList FEW, tryRelease LIVE, tryRelease LIVE, tryRelease ANY, \
             tryReleaseList LIVE;ANY, updateLeaseTime ANY LEASE, addPermits STEP, setPermits FEW, trySetPermits FEW, acquiredPermits, \
             getPermits, availablePermits",
            "addPermits 2",
        ],
        Family::Latch => [
            "trySetCount 2",
            "await, await, awaitFor 300, countDown, countDown, trySetCount FEW, alone delete, getCount",
            "countDown",
        ],
        _ => return None,
    })
}

pub fn set_up(family: Family) -> Option<Step> {
    steps(family).map(|[set_up, ..]| Step::new(0, "", set_up))
}

pub fn wind_up(situation: &Situation) -> Option<Step> {
    let [.., wind_up] = steps(situation.game.family)?;
    let owner = (0..4).find(|&owner| !situation.waits(owner))?;
    let is_needed = !situation.waiting.is_empty();
    is_needed.then(|| Step::new(owner, "", wind_up))
}

pub fn draw(situation: &mut Situation, rng: &mut Rng, owner: usize) -> Step {
    let [_, steps, _] = steps(situation.game.family).expect("no lock");
    let waiting = situation.waiting.len();
    let is_drawn = |step: &&str| {
        !(step.starts_with("alone") && waiting > 0
            || step.contains("LIVE") && situation.permits.is_empty()
            || step.contains("ANY") && situation.issued == 0
            // One owner is left to count down.
            || *step == "await" && waiting == 3)
    };
    let steps: Vec<&str> = steps.split(", ").filter(is_drawn).collect();
    let step = steps[rng.usize(..steps.len())].trim_start_matches("alone ");
    if step == "tryAcquire 2000" {
        // The count takes back what has ended.
        let next = ["expired", "availablePermits"];
        situation.next = next.map(|next| Step::new(owner, "", next)).into();
    }
    let live = rng.choice(&situation.permits).copied().unwrap_or_default();
    let any = 1 + rng.usize(..situation.issued.max(1));
    // A list names a permit once.
    let once = step.strip_suffix(";ANY").filter(|_| any == live);
    let step = once
        .unwrap_or(step)
        .replace("FEW", &(1 + rng.u8(..3)).to_string())
        .replace("STEP", ["-1", "2"][rng.usize(..2)])
        .replace("LEASE", ["600000", "1200000"][rng.usize(..2)])
        .replace("LIVE", &format!("#{live}"))
        .replace("ANY", &format!("#{any}"));
    Step::new(owner, "", &step.replace(';', ","))
}

pub fn answered(situation: &mut Situation, step: &Step, answer: &str) {
    let numbers = |text: &str| -> Vec<usize> {
        let permits = text.split(',').filter_map(|id| id.strip_prefix('#'));
        permits.filter_map(|id| id.parse().ok()).collect()
    };
    for id in numbers(answer) {
        situation.permits.push(id);
        situation.issued = situation.issued.max(id);
    }
    if step.verb().starts_with("tryRelease") && !["false", "0"].contains(&answer) {
        let released = numbers(&step.words[1]);
        situation.permits.retain(|id| !released.contains(id));
    }
}
