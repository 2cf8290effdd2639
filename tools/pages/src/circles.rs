//! Finds circles: files of one folder, or neighbouring folders, that import each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::{imports, tree::Tree};

/// The folders to check. Each is the root of a crate's modules.
const ROOTS: [&str; 8] = [
    "src/",
    "rlock/src/",
    "benches/compare/src/",
    "crates/histories/src/",
    "crates/models/src/",
    "crates/redisson-lock-test/src/",
    "crates/testbed/src/",
    "tools/pages/src/",
];

/// Allowed circles: the folder, all modules of the circle, and the reason.
const ALLOWED: [(&str, &[&str], &str); 3] = [
    (
        "src/engine",
        &[
            "attempt",
            "grant",
            "hold_guard",
            "owners",
            "readers",
            "standing",
            "telemetry",
            "tenure",
        ],
        "a guard keeps its tenure, and the tenure's local queue and readers hand guards on",
    ),
    (
        "crates/redisson-lock-test/src",
        &["command", "commands", "interpreter", "server"],
        "a command is a function that runs on the server, and the server finds it in the table of commands",
    ),
    (
        "crates/redisson-lock-test/src",
        &["line", "network"],
        "a line is one end of a connection in the network, and the network opens lines",
    ),
];

type Path = Vec<String>;

/// The imports of each module.
type Edges = BTreeMap<String, BTreeSet<String>>;

pub fn check(tree: &Tree) -> Vec<String> {
    against(tree, &ALLOWED)
}

fn against(tree: &Tree, allowed: &[(&str, &[&str], &str)]) -> Vec<String> {
    let mut found: Vec<_> = ROOTS.iter().flat_map(|root| circles(tree, root)).collect();
    let mut problems = Vec::new();
    for (folder, modules, _) in allowed {
        let before = found.len();
        found.retain(|(at, circle)| {
            at != folder || !circle.iter().all(|name| modules.contains(&name.as_str()))
        });
        if found.len() == before && tree.has(folder) {
            let circle = modules.join(", ");
            problems.push(format!(
                "tools/pages/src/circles.rs: {folder} has no circle of {circle} any more"
            ));
        }
    }
    for (folder, circle) in found {
        let circle: Vec<_> = circle.into_iter().collect();
        problems.push(format!(
            "{folder}: import each other: {}",
            circle.join(", ")
        ));
    }
    problems
}

/// The circles of each folder under `root`, each with its folder.
fn circles(tree: &Tree, root: &str) -> Vec<(String, BTreeSet<String>)> {
    let modules: BTreeMap<Path, &str> = tree
        .files()
        .filter_map(|(path, text)| Some((module(root, path)?, text)))
        .collect();
    let folders: BTreeSet<Path> = modules
        .keys()
        .filter_map(|path| Some(path.split_last()?.1.to_vec()))
        .collect();
    let imports: Vec<(&Path, BTreeSet<Path>)> = modules
        .iter()
        .map(|(path, text)| (path, imported(&modules, path, text)))
        .collect();
    let mut found = Vec::new();
    for folder in folders {
        let mut edges = Edges::new();
        for (from, all) in &imports {
            let Some(from) = within(&folder, from) else {
                continue;
            };
            let to = all.iter().filter_map(|path| within(&folder, path));
            let to = to.filter(|to| *to != from);
            edges
                .entry(from.to_owned())
                .or_default()
                .extend(to.map(str::to_owned));
        }
        let folder = format!("{root}{}", folder.join("/"));
        let folder = folder.trim_end_matches('/').to_owned();
        let circles = components(&edges).into_iter();
        found.extend(circles.map(|circle| (folder.clone(), circle)));
    }
    found
}

/// The module path of a source file. Test files have none.
fn module(root: &str, path: &str) -> Option<Path> {
    let file = path.strip_prefix(root)?.strip_suffix(".rs")?;
    let mut parts: Path = file.split('/').map(str::to_owned).collect();
    let is_root = parts.len() == 1 && ["lib", "main"].contains(&file);
    if is_root || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    (!parts.iter().any(|part| part.ends_with("tests"))).then_some(parts)
}

/// The name of `path` among the modules of `folder`. The module of the folder itself has none, because it contains its imports.
fn within<'a>(folder: &[String], path: &'a [String]) -> Option<&'a str> {
    path.strip_prefix(folder)?.first().map(String::as_str)
}

/// The modules that a file imports.
fn imported(modules: &BTreeMap<Path, &str>, path: &Path, text: &str) -> BTreeSet<Path> {
    let mut found = BTreeSet::new();
    for import in imports::paths(text) {
        let (mut base, mut rest) = (path.clone(), import.as_slice());
        match rest.split_first() {
            Some((first, behind)) if first == "crate" => (base, rest) = (Path::new(), behind),
            Some((first, behind)) if first == "self" => rest = behind,
            Some((first, _)) if first == "super" => {
                while let Some(("super", behind)) = rest
                    .split_first()
                    .map(|(first, rest)| (first.as_str(), rest))
                {
                    base.pop();
                    rest = behind;
                }
            }
            _ => continue,
        }
        base.extend(rest.iter().cloned());
        while !base.is_empty() && !modules.contains_key(&base) {
            base.pop();
        }
        found.insert(base);
    }
    found
}

/// The groups of modules that reach each other.
fn components(edges: &Edges) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = edges
        .keys()
        .map(|from| (from, reach(edges, from)))
        .collect();
    let mut found: Vec<BTreeSet<String>> = Vec::new();
    for (from, to) in &reached {
        let back = |other: &&&String| reached.get(**other).is_some_and(|to| to.contains(from));
        let circle: BTreeSet<String> = to.iter().filter(back).map(|name| (*name).clone()).collect();
        if !circle.is_empty() && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

/// All modules that `from` imports, directly or not.
fn reach<'a>(edges: &'a Edges, from: &String) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&String> = edges.get(from).into_iter().flatten().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(edges.get(next).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_import_each_other_are_found() {
        let tree = Tree::of(&[
            ("src/lock/mod.rs", "pub use a::A;\nuse crate::guard;\n"),
            ("src/lock/a.rs", "use super::{b::B, Lock};\n"),
            ("src/lock/b.rs", "fn of(c: super::c::C) {}\n"),
            (
                "src/lock/c.rs",
                "use crate::{\n    error,\n    lock::a::{self, A},\n};\n",
            ),
            ("src/lock/d.rs", "use super::a::A;\n"),
        ]);
        assert_eq!(
            against(&tree, &[]),
            ["src/lock: import each other: a, b, c"]
        );
    }

    #[test]
    fn folders_that_import_each_other_are_found() {
        let tree = Tree::of(&[
            ("src/client/mod.rs", "use crate::lock::Lock;\n"),
            ("src/client/config.rs", ""),
            ("src/lock/mod.rs", ""),
            ("src/lock/run.rs", "use crate::client::config::Config;\n"),
        ]);
        assert_eq!(
            against(&tree, &[]),
            ["src: import each other: client, lock"]
        );
    }

    #[test]
    fn comments_tests_and_contents_of_a_folder_are_no_circle() {
        let tree = Tree::of(&[
            ("src/lock/mod.rs", "use run::Run;\n"),
            ("src/lock/run.rs", "//! [`a`](super::a)\nuse super::Lock;\n"),
            ("src/lock/a.rs", "use super::run;\n"),
            ("src/lock/run_tests.rs", "use super::a;\n"),
            (
                "src/lock/b.rs",
                "#[cfg(test)]\nmod tests {\n    use super::super::c;\n}\n",
            ),
            ("src/lock/c.rs", "use super::b;\n"),
        ]);
        assert_eq!(against(&tree, &[]), [""; 0]);
    }

    #[test]
    fn an_allowed_circle_that_is_gone_or_grows_is_found() {
        let allowed: [(&str, &[&str], &str); 1] = [("src/lock", &["a", "b"], "one thought")];
        let (a, b) = (
            ("src/lock/a.rs", "use super::b;\n"),
            ("src/lock/b.rs", "use super::a;\n"),
        );
        assert_eq!(against(&Tree::of(&[a, b]), &allowed), [""; 0]);
        let b = ("src/lock/b.rs", "use super::{a, c};\n");
        let c = ("src/lock/c.rs", "use super::a;\n");
        let problems = against(&Tree::of(&[a, b, c]), &allowed);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert_eq!(problems[1], "src/lock: import each other: a, b, c");
        let problems = against(&Tree::of(&[a, c]), &allowed);
        assert_eq!(problems.len(), 1, "{problems:?}");
    }
}
