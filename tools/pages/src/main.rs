//! Checks that references, links and named tests exist, that no module imports from a higher layer or in a circle, that no public function
//! takes two durations in a row, that docker-compose.yml agrees with README.md, that the time limits and the modules of a folder stand in its
//! table and its map, and that prose follows the rule of CONTRIBUTING.md.
//!
//! Usage: `pages [--rustdoc FOLDER]`, in the root of the repository. With `--rustdoc`, checks links to the API documentation against
//! the output of `cargo doc` in FOLDER.

mod aliases;
mod circles;
mod compose;
mod durations;
mod imports;
mod layers;
mod links;
mod maps;
mod markdown;
mod prose;
mod references;
mod time_limits;
mod tree;

use std::{path::Path, process::ExitCode};

use tree::Tree;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let rustdoc = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => None,
        (Some("--rustdoc"), Some(folder)) => Some(folder),
        _ => {
            eprintln!("usage: pages [--rustdoc FOLDER]");
            return ExitCode::from(64);
        }
    };
    let tree = Tree::read();
    let problems = match rustdoc {
        Some(folder) => links::of_api(&tree, Path::new(&folder)),
        None => problems(&tree),
    };
    for problem in &problems {
        eprintln!("{problem}");
    }
    if problems.is_empty() {
        ExitCode::SUCCESS
    } else {
        eprintln!("pages: {} problems", problems.len());
        ExitCode::FAILURE
    }
}

fn problems(tree: &Tree) -> Vec<String> {
    [
        references::check(tree),
        aliases::check(tree),
        durations::check(tree),
        layers::check(tree),
        circles::check(tree),
        maps::check(tree),
        time_limits::check(tree),
        compose::check(tree),
        links::check(tree),
        prose::check(tree),
    ]
    .concat()
}
