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
    }
    problems
}

/// Whether the line declares a constant of type `Duration`, or an array of them.
fn is_limit(line: &str) -> bool {
    let types = [": Duration =", ": [Duration;", ": std::time::Duration ="];
    line.contains("const ") && types.iter().any(|of_type| line.contains(of_type))
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
        ]));
        assert_eq!(
            problems,
            [
                "src/engine/local_lock/turns.rs:1: A belongs into src/engine/time_limits.rs",
                "src/engine/local_lock/turns.rs:3: B belongs into src/engine/time_limits.rs"
            ]
        );
    }
}
