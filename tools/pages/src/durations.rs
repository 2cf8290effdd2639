//! Checks that no public function takes two `Duration`s in a row: a caller that swaps them would compile.

use crate::tree::Tree;

const SNAPSHOT: &str = "docs/public-api.txt";
const PAIR: &str = "core::time::Duration, core::time::Duration";

pub fn check(tree: &Tree) -> Vec<String> {
    let lines = tree.text(SNAPSHOT).unwrap_or_default().lines();
    let swapped = lines
        .enumerate()
        .filter(|(_, line)| line.contains(PAIR))
        .map(|(index, line)| {
            let name = line.split('(').next().unwrap_or(line);
            format!(
                "{SNAPSHOT}:{}: {name} takes two durations in a row: let a method such as `with_lease` take one of them",
                index + 1
            )
        });
    swapped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_durations_in_a_row_are_found() {
        let snapshot = "\
pub fn lock::Lock::wait_for(&self, core::time::Duration, u32, core::time::Duration) -> bool
pub fn lock::Lock::try_for(&self, u32, core::time::Duration, core::time::Duration) -> bool
";
        let problems = check(&Tree::of(&[(SNAPSHOT, snapshot)]));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("docs/public-api.txt:2: pub fn lock::Lock::try_for takes"));
    }
}
