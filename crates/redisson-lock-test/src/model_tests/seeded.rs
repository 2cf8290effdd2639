//! The comparison finds the seeded bugs of the scripts (`tests/sim/mutants`), without a build for each: a changed text is compared
//! with the unchanged model.

use std::time::Instant;

use super::{
    STEPS,
    calls::families,
    rounds,
    sources::{Sources, files},
};

/// Bugs that only a node shows to which a slot moves. The models have no slots.
const OF_SLOTS: [&str; 2] = ["fair_acquire_second_place", "read_release_outrun_markers"];
/// The most rounds for a bug.
const MOST_ROUNDS: u64 = 2_000;

/// A part of a patch: the lines that it removes and their neighbours, and what replaces them.
struct Hunk {
    file: String,
    old: String,
    new: String,
}

fn hunks(patch: &str) -> Vec<Hunk> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut file = String::new();
    for line in patch.lines() {
        if let Some(path) = line.strip_prefix("+++ b/") {
            file = path.split('\t').next().unwrap_or_default().to_owned();
        } else if line.starts_with("--- a/") {
            file.clear();
        } else if line.starts_with("@@") {
            hunks.push(Hunk {
                file: file.clone(),
                old: String::new(),
                new: String::new(),
            });
        } else if let Some(hunk) = hunks.last_mut().filter(|hunk| hunk.file == file) {
            let (sign, text) = line.split_at(line.len().min(1));
            let text = format!("{text}\n");
            if sign != "+" {
                hunk.old += &text;
            }
            if sign != "-" {
                hunk.new += &text;
            }
        }
    }
    hunks
}

/// Applies the part of a patch that changes scripts. Returns the names of the changed files.
fn apply(patch: &str, sources: &mut Sources) -> Vec<String> {
    let mut changed = Vec::new();
    for hunk in hunks(patch) {
        let name = hunk.file.strip_prefix("lua/");
        let Some(name) = name.and_then(|name| name.strip_suffix(".lua")) else {
            continue;
        };
        let text = sources.files.get_mut(name).expect("a script");
        assert!(
            text.contains(&hunk.old),
            "a patch of {name}.lua does not apply"
        );
        *text = text.replacen(&hunk.old, &hunk.new, 1);
        changed.push(name.to_owned());
    }
    changed
}

#[test]
fn seeded_bugs_of_scripts_are_found() {
    let (mut missed, mut lines) = (Vec::new(), Vec::new());
    for (bug, patch) in files("tests/sim/mutants", "patch") {
        let mut sources = Sources::read();
        let changed = apply(&patch, &mut sources);
        if changed.is_empty() || OF_SLOTS.contains(&&bug[..]) {
            continue;
        }
        // Calls of other kinds than those with a changed script show nothing.
        let is_of_all = changed.iter().any(|name| name == "run");
        let has_changed =
            |names: &[String]| is_of_all || names.iter().any(|name| changed.contains(name));
        let changed_scripts = sources.scripts_with(has_changed);
        let touched = changed_scripts
            .iter()
            .flat_map(|script| families(script.model.name));
        let touched: Vec<&str> = touched.copied().collect();
        let scripts = sources.scripts_with(|names| {
            let name = names.last().expect("an operation");
            families(name).iter().any(|family| touched.contains(family))
        });
        let began = Instant::now();
        match rounds(0..MOST_ROUNDS, &scripts) {
            Ok(_) => missed.push(bug),
            Err(found) => {
                let steps = found.seed * STEPS as u64 + found.difference.at as u64 + 1;
                let millis = began.elapsed().as_millis();
                lines.push(format!("{bug}: {steps} steps, {millis} ms"));
            }
        }
    }
    println!("{}", lines.join("\n"));
    assert!(missed.is_empty(), "not found: {missed:?}");
}
