//! Checks that the `mod.rs` of a folder is a map of it: its documentation names each module.

use crate::tree::Tree;

/// The folder that has such maps, and the folders in it too.
const MAPPED: &str = "src/redis/";

pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.files() {
        if !path.starts_with(MAPPED) || !path.ends_with("/mod.rs") {
            continue;
        }
        let map: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix("//!"))
            .collect();
        let map = map.join("\n");
        for module in text.lines().filter_map(module) {
            let names = [
                format!("`{module}`"),
                format!("`{module}.rs`"),
                format!("`{module}/`"),
            ];
            let is_test = module.ends_with("tests");
            if !is_test && !names.iter().any(|name| map.contains(name)) {
                problems.push(format!("{path}: the map lacks {module:?}"));
            }
        }
    }
    problems
}

/// The module that a line declares, in a file or folder of its own.
fn module(line: &str) -> Option<&str> {
    let declaration = line.strip_suffix(';')?;
    let (visibility, module) = declaration.split_once("mod ")?;
    (visibility.is_empty() || visibility.starts_with("pub")).then_some(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_the_map_lacks_is_found() {
        let map = "//! - [`dial`]: opens.\n//! - `wait.rs`: waits.\n//! - `store/`: stores.\n\n\
                   // A note on `lost`.\nmod dial;\nmod wait;\npub(super) mod store;\npub mod lost;\n\
                   #[cfg(test)]\nmod tests;\nmod inline {}\n";
        let problems = check(&Tree::of(&[
            ("src/redis/socket/mod.rs", map),
            ("src/client/mod.rs", map),
            ("src/redis/mod.rs", "//! Nothing.\n"),
        ]));
        assert_eq!(
            problems,
            ["src/redis/socket/mod.rs: the map lacks \"lost\""]
        );
    }
}
