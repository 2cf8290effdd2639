//! Shrinks a history that broke a rule: removes tasks and episodes while a rule still breaks.

use crate::{
    campaign::history::{ACTORS, Plan},
    number,
};

/// The most lines of a printed story, unless the environment sets `LINES`.
const LINES: u64 = 400;

/// The end of the story of the smallest plan found, with the rule that it breaks.
pub fn report(plan: Plan) -> String {
    let small = smallest(plan);
    let Err(failure) = small.play(true) else {
        return format!("{small} broke a rule once and not again: it is not deterministic");
    };
    let lines: Vec<&str> = failure.story.lines().collect();
    let most = number("LINES").unwrap_or(LINES) as usize;
    let shown = &lines[lines.len().saturating_sub(most)..];
    format!(
        "{}\n{small}, tasks {:?}, {} episodes each, breaks a rule: {}\n{}",
        shown.join("\n"),
        small.actors,
        match small.episodes {
            u32::MAX => "all".to_owned(),
            episodes => episodes.to_string(),
        },
        failure.rule,
        small.command()
    )
}

fn smallest(mut plan: Plan) -> Plan {
    let breaks = |plan: &Plan| plan.play(false).is_err();
    for actor in 0..ACTORS {
        let mut without = plan.clone();
        without.actors.retain(|other| *other != actor);
        if !without.actors.is_empty() && breaks(&without) {
            plan = without;
        }
    }
    for episodes in [1, 2, 3, 5, 8, 13, 21, 34] {
        let fewer = Plan {
            episodes,
            ..plan.clone()
        };
        if breaks(&fewer) {
            return fewer;
        }
    }
    plan
}
