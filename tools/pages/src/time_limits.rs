//! Checks that each layer keeps its time limits in one file, where each has a name of its own beside what it bounds.

use crate::tree::Tree;

/// The folders whose constants of type `Duration` stand in their `time_limits.rs`.
const LAYERS: [&str; 2] = ["src/engine/", "src/redis/"];

pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.files() {
        let Some(layer) = LAYERS.iter().find(|layer| path.starts_with(**layer)) else {
            continue;
        };
        let table = format!("{layer}time_limits.rs");
        if path == table || path.ends_with("tests.rs") {
            continue;
        }
        // Unit tests at the end may have limits of their own.
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        for (index, line) in code.lines().enumerate().filter(|(_, line)| is_limit(line)) {
            let name = line.split("const ").nth(1).unwrap_or_default();
            let name = name.split(':').next().unwrap_or_default();
            problems.push(format!("{path}:{}: {name} belongs into {table}", index + 1));
        }
        for (index, _) in code
            .lines()
            .enumerate()
            .filter(|(_, line)| has_inline_limit(line))
        {
            let line = index + 1;
            problems.push(format!(
                "{path}:{line}: a time without a name belongs into {table}"
            ));
        }
    }
    problems
}

/// Whether the line declares a constant of type `Duration`, or an array of them.
fn is_limit(line: &str) -> bool {
    let types = [": Duration =", ": [Duration;", ": std::time::Duration ="];
    line.contains("const ") && types.iter().any(|of_type| line.contains(of_type))
}

/// Whether an expression on the line makes a `Duration` of a number.
fn has_inline_limit(line: &str) -> bool {
    let behind = line.split("Duration::from_").skip(1);
    let mut numbers = behind.filter_map(|behind| behind.split_once('(')?.1.chars().next());
    numbers.any(|first| first.is_ascii_digit()) && !is_limit(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_outside_of_its_table_is_found() {
        let limits =
            "const A: Duration = Duration::ZERO;\n\npub(super) const B: [Duration; 2] = [A, A];\n";
        let others = "const MOST: usize = 1;\nconst fn wait(of: Duration) -> Duration {}\n\
                      #[cfg(test)]\nmod tests {\n    const C: Duration = Duration::ZERO;\n}\n";
        let problems = check(&Tree::of(&[
            ("src/redis/time_limits.rs", limits),
            ("src/redis/resp_tests.rs", limits),
            ("src/redis/resp.rs", others),
            ("src/client/mod.rs", limits),
            ("src/engine/local_lock/turns.rs", limits),
            (
                "src/engine/group.rs",
                "let most = Duration::from_millis(millis);\nlet most = Duration::from_millis(5 << rounds);\n",
            ),
        ]));
        assert_eq!(
            problems,
            [
                "src/engine/group.rs:2: a time without a name belongs into src/engine/time_limits.rs",
                "src/engine/local_lock/turns.rs:1: A belongs into src/engine/time_limits.rs",
                "src/engine/local_lock/turns.rs:3: B belongs into src/engine/time_limits.rs"
            ]
        );
    }
}
