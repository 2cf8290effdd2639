//! Checks pitfalls, invariants and promises: each reference has an entry, each entry names tests, and each promise has a row in
//! docs/testing.md.

use std::collections::BTreeSet;

use crate::{markdown, tree::Tree};

const PITFALLS: &str = "docs/pitfalls.md";
const INVARIANTS: &str = "docs/invariants.md";
const GUARANTEES: &str = "docs/guarantees.md";
const TESTING: &str = "docs/testing.md";

pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    let pitfalls = entries(tree, PITFALLS, "| P-", |line| {
        line.trim_start_matches("| ").split(' ').next()
    });
    let invariants = entries(tree, INVARIANTS, "## Invariant ", |line| {
        line["## Invariant ".len()..].split(':').next()
    });
    for (path, text) in tree.files() {
        // The changelog may name removed entries, and the tests of this program name invented ones.
        if path == "CHANGELOG.md" || path.starts_with("tools/pages/") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let number = number + 1;
            for id in pitfalls_in(line).filter(|id| !pitfalls.contains(id)) {
                problems.push(format!("{path}:{number}: {id} has no entry in {PITFALLS}"));
            }
            for id in invariants_in(line).filter(|id| !invariants.contains(id)) {
                problems.push(format!(
                    "{path}:{number}: invariant {id} has no entry in {INVARIANTS}"
                ));
            }
        }
    }
    for page in [PITFALLS, INVARIANTS, TESTING] {
        problems.extend(tests_that_do_not_exist(tree, page));
    }
    problems.extend(entries_without_a_test(tree));
    problems.extend(promises_without_a_test(tree));
    problems
}

fn entries(
    tree: &Tree,
    page: &str,
    start: &str,
    id: impl Fn(&str) -> Option<&str>,
) -> BTreeSet<String> {
    let text = tree.text(page).unwrap_or_default();
    let lines = text.lines().filter(|line| line.starts_with(start));
    lines.filter_map(id).map(str::to_owned).collect()
}

/// Ids such as `P-RW1`, also in names of functions (`p_rw1_`).
fn pitfalls_in(line: &str) -> impl Iterator<Item = String> {
    let mut found = Vec::new();
    for (at, _) in line.match_indices("P-") {
        let before = line[..at].chars().next_back();
        if !before.is_some_and(|c| c.is_alphanumeric() || c == '-') {
            found.extend(id(&line[at + 2..]));
        }
    }
    if let Some(at) = line.find("fn p_") {
        let mut rest = &line[at + 3..];
        while let Some(next) = rest.strip_prefix("p_") {
            let Some(name) = id(&next.to_uppercase()) else {
                break;
            };
            // "P-" and "p_" have the same length, and an underscore follows the id.
            rest = next.get(name.len() - 1..).unwrap_or_default();
            found.push(name);
        }
    }
    found.into_iter()
}

fn id(text: &str) -> Option<String> {
    let letters: String = text.chars().take_while(char::is_ascii_uppercase).collect();
    let digits: String = text[letters.len()..]
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    (1..=2).contains(&letters.len()).then_some(())?;
    (!digits.is_empty()).then(|| format!("P-{letters}{digits}"))
}

fn invariants_in(line: &str) -> impl Iterator<Item = String> {
    let lower = line.to_lowercase();
    let found: Vec<String> = lower
        .match_indices("invariant ")
        .map(|(at, word)| {
            let rest = &lower[at + word.len()..];
            rest.chars().take_while(char::is_ascii_digit).collect()
        })
        .filter(|id: &String| !id.is_empty())
        .collect();
    found.into_iter()
}

fn tests_that_do_not_exist(tree: &Tree, page: &str) -> Vec<String> {
    let text = tree.text(page).unwrap_or_default();
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (path, test) in markdown::tests_in(line) {
            let is_there = tree.text(path).is_some_and(|file| has_function(file, test));
            if !is_there {
                problems.push(format!("{page}:{}: no test {path}::{test}", number + 1));
            }
        }
    }
    problems
}

/// Whether `file` has a function of this name.
fn has_function(file: &str, name: &str) -> bool {
    let name = format!("fn {name}");
    file.match_indices(&name)
        .any(|(at, _)| file[at + name.len()..].starts_with(['(', '<']))
}

fn entries_without_a_test(tree: &Tree) -> Vec<String> {
    let rows = tree.text(PITFALLS).unwrap_or_default().lines();
    let rows = rows.filter(|line| line.starts_with("| P-"));
    let mut problems: Vec<String> = rows
        .filter(|row| markdown::tests_in(row).next().is_none())
        .map(|row| format!("{PITFALLS}: no test is named: {row}"))
        .collect();
    let sections = tree.text(INVARIANTS).unwrap_or_default();
    for section in sections.split("\n## ").skip(1) {
        if section
            .lines()
            .flat_map(markdown::tests_in)
            .next()
            .is_none()
        {
            let heading = section.lines().next().unwrap_or_default();
            problems.push(format!("{INVARIANTS}: no test is named: {heading}"));
        }
    }
    problems
}

/// Each section of the guarantees is a promise. A row of docs/testing.md must link to it and name tests.
fn promises_without_a_test(tree: &Tree) -> Vec<String> {
    let guarantees = tree.text(GUARANTEES).unwrap_or_default();
    let testing = tree.text(TESTING).unwrap_or_default();
    markdown::headings(guarantees)
        .into_iter()
        .filter(|heading| heading.level > 1)
        .filter(|heading| {
            let link = format!("guarantees.md#{}", heading.anchor);
            let ends = [')', ']'];
            !testing.lines().any(|row| {
                let linked = row
                    .find(&link)
                    .is_some_and(|at| row[at + link.len()..].starts_with(ends));
                linked && markdown::tests_in(row).next().is_some()
            })
        })
        .map(|heading| {
            format!(
                "{TESTING}: no test for the promise {GUARANTEES}#{}",
                heading.anchor
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PITFALL: (&str, &str) = (PITFALLS, "| P-W1 | lost | `tests/it/a.rs::heard` |\n");
    const INVARIANT: (&str, &str) = (
        INVARIANTS,
        "## Invariant 1: one\n\nTests: `tests/it/a.rs::heard`.\n",
    );
    const TEST: (&str, &str) = ("tests/it/a.rs", "async fn heard<S>() {}\n");

    #[test]
    fn resolved_references_are_no_problem() {
        let code = (
            "src/a.rs",
            "// (P-W1, invariant 1)\nfn p_w1_is_heard() {}\n",
        );
        let tree = Tree::of(&[PITFALL, INVARIANT, TEST, code]);
        assert_eq!(check(&tree), [""; 0]);
    }

    #[test]
    fn references_without_an_entry_are_found() {
        let code = (
            "src/a.rs",
            "// P-W1 to P-W2\n// Invariant 11\nfn p_w1_p_fr3_told() {}\n",
        );
        let tree = Tree::of(&[PITFALL, INVARIANT, TEST, code]);
        assert_eq!(
            check(&tree),
            [
                "src/a.rs:1: P-W2 has no entry in docs/pitfalls.md",
                "src/a.rs:2: invariant 11 has no entry in docs/invariants.md",
                "src/a.rs:3: P-FR3 has no entry in docs/pitfalls.md",
            ]
        );
    }

    #[test]
    fn tests_that_were_renamed_are_found() {
        let renamed = (TEST.0, "async fn heard_at_once() {}\n");
        let problems = check(&Tree::of(&[PITFALL, INVARIANT, renamed]));
        assert_eq!(
            problems,
            [
                "docs/pitfalls.md:1: no test tests/it/a.rs::heard",
                "docs/invariants.md:3: no test tests/it/a.rs::heard",
            ]
        );
    }

    #[test]
    fn tests_of_promises_that_were_renamed_are_found() {
        let page = (TESTING, "| waiting | `tests/it/a.rs::heard_at_once` |\n");
        assert_eq!(
            check(&Tree::of(&[page, TEST])),
            ["docs/testing.md:1: no test tests/it/a.rs::heard_at_once"]
        );
    }

    #[test]
    fn entries_without_a_test_are_found() {
        let pitfall = (PITFALLS, "| P-W1 | lost | none |\n");
        let invariant = (INVARIANTS, "# All\n\n## Invariant 1: one\n\nNothing.\n");
        assert_eq!(check(&Tree::of(&[pitfall, invariant])).len(), 2);
    }

    #[test]
    fn promises_without_a_test_are_found() {
        let guarantees = (GUARANTEES, "# Guarantees\n\n## Exclusion\n\n## Waiting\n");
        let row = "| [Waiting](guarantees.md#waiting) | `tests/it/a.rs::heard` |\n";
        let tree = Tree::of(&[guarantees, (TESTING, row), TEST]);
        assert_eq!(
            check(&tree),
            ["docs/testing.md: no test for the promise docs/guarantees.md#exclusion"]
        );
    }
}
