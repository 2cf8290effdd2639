//! Checks the layers of docs/design.md: a module imports from its own layer and from lower ones.

use std::collections::BTreeSet;

use crate::{imports, tree::Tree};

/// The modules of `src/` by layer, the lowest first. Other modules are public types and may import everything.
const LAYERS: [&[&str]; 6] = [
    &[
        "back_off",
        "core",
        "credentials",
        "durability",
        "endpoint_kind",
        "error",
        "hash",
        "held_lock",
        "lease",
        "owner",
        "rate_limit",
        "protocol",
        "tls_verification",
        "transport",
        "server_text",
        "simulation",
        "since",
        "sync",
        "timers",
    ],
    &["config"],
    &["wire"],
    &["gauges"],
    &["redis"],
    &["engine"],
];

pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.files() {
        let Some(module) = module(path) else {
            continue;
        };
        let paths = imports::paths(text).into_iter();
        let paths = paths.filter(|path| path[0] == "crate");
        for import in paths
            .filter_map(|path| path.into_iter().nth(1))
            .collect::<BTreeSet<_>>()
        {
            if rank(&import) > rank(module) {
                problems.push(format!(
                    "{path}: {module:?} imports {import:?} of a higher layer"
                ));
            }
        }
    }
    problems
}

/// The top-level module of a source file in `src/`. Test files have none.
fn module(path: &str) -> Option<&str> {
    let file = path.strip_prefix("src/")?.strip_suffix(".rs")?;
    let is_test = file.ends_with("tests") || file.contains("tests/");
    (!is_test).then(|| file.split('/').next().unwrap_or(file))
}

fn rank(module: &str) -> usize {
    let layer = LAYERS.iter().position(|layer| layer.contains(&module));
    layer.unwrap_or(LAYERS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_import_of_a_higher_layer_is_found() {
        let engine = "use crate::{\n    client::{Lock, wire},\n    error::Error,\n    wire::{Reply, engine},\n};\n";
        let problems = check(&Tree::of(&[
            ("src/engine/hold.rs", engine),
            (
                "src/redis/mod.rs",
                "fn of(engine: crate::engine::Engine) {}\n",
            ),
            ("src/client/mod.rs", "use crate::{engine::Engine, error};\n"),
        ]));
        assert_eq!(
            problems,
            [
                "src/engine/hold.rs: \"engine\" imports \"client\" of a higher layer",
                "src/redis/mod.rs: \"redis\" imports \"engine\" of a higher layer"
            ]
        );
    }

    #[test]
    fn comments_and_unit_tests_are_no_imports() {
        let text = "//! [`Lock`](crate::Lock)\nuse crate::error;\n#[cfg(test)]\nmod tests {\n    use crate::client;\n}\n";
        assert!(check(&Tree::of(&[("src/wire/mod.rs", text)])).is_empty());
        let text = "use crate::client;\n";
        assert!(check(&Tree::of(&[("src/engine/hold_tests.rs", text)])).is_empty());
    }
}
