//! A seed determines a history.

use std::{collections::BTreeSet, env, fs, ops::RangeInclusive, path::Path, process::Command};

use super::history::Plan;
use crate::world::servers::Kind;

const SEEDS: RangeInclusive<u64> = 1..=120;
/// Later seeds are played on models of the scripts.
const ON_SERVERS: u64 = 100;
/// Names the folder in which the other process writes its stories.
const STORIES: &str = "STORIES";

fn plan(seed: u64) -> Plan {
    Plan::of(seed, (seed > ON_SERVERS).then_some(Kind::Model))
}

/// Every line of the history of a seed.
fn story(seed: u64) -> String {
    match plan(seed).play(true) {
        Ok(kept) => kept.story,
        Err(failure) => panic!("seed {seed}: {}", failure.rule),
    }
}

/// Plays the seeds twice: here in order, and in another process in reverse order.
#[test]
fn a_seed_gives_the_same_history_again() {
    if let Some(folder) = env::var_os(STORIES) {
        for seed in SEEDS.rev() {
            let file = Path::new(&folder).join(seed.to_string());
            fs::write(file, story(seed)).expect("the folder can be written");
        }
        return;
    }
    let folder = env::temp_dir().join(format!("stories-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder for the stories");
    let this = "campaign::determinism::a_seed_gives_the_same_history_again";
    let played = Command::new(env::current_exe().expect("this program"))
        .args(["--exact", this])
        .env(STORIES, &folder)
        .output();
    assert!(played.expect("the program runs").status.success());
    let conditions = SEEDS.map(|seed| {
        let plan = plan(seed);
        format!("{} {}", plan.world, plan.profile().0)
    });
    // 9 profiles on a node, 11 on a cluster, 4 on replicas, 8 on models.
    assert_eq!(conditions.collect::<BTreeSet<_>>().len(), 32);
    for seed in SEEDS {
        let file = folder.join(seed.to_string());
        let again = fs::read_to_string(file).expect("the other process wrote a story");
        let once = story(seed);
        for (at, (line, other)) in once.lines().zip(again.lines()).enumerate() {
            assert_eq!(line, other, "seed {seed}, line {at}");
        }
        assert_eq!(once.len(), again.len(), "seed {seed}");
    }
    let _ = fs::remove_dir_all(folder);
}
