//! Checks that what pages and comments refer to exists. Runs in the root of the repository.

mod markdown;
mod references;
mod tree;

use std::process::ExitCode;

use tree::Tree;

fn main() -> ExitCode {
    let problems = references::check(&Tree::read());
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
