//! Builds the explorer with one error after the other (`mutants*.txt`), and prints which system or which random walk finds it. Fails if none
//! does.
//!
//! `cargo run --release -p explorer --bin mutants -- [locks | permits | latches | part of a name]..`, or `-- --check`, which only finds the texts.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The folders of the core, with what is explored for their errors.
const FOLDERS: [(&str, &str, &str); 3] = [
    ("mutants.txt", "src/core", "locks"),
    ("mutants-permits.txt", "src/core/permits", "permits"),
    ("mutants-latches.txt", "src/core/latch", "latches"),
];

struct Mutant<'a> {
    name: &'a str,
    /// The folder with the text.
    folder: &'static str,
    /// The systems that are explored.
    systems: &'static str,
    before: String,
    after: String,
}

fn main() -> ExitCode {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.join("../..");
    let copy = root.join("target/core-mutants");
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let texts = FOLDERS
        .map(|(file, _, _)| fs::read_to_string(here.join(file)).expect("the errors are there"));
    let of_folders = texts.iter().zip(FOLDERS);
    let all: Vec<_> = of_folders
        .flat_map(|(text, folder)| mutants(text, folder))
        .collect();
    if wanted.iter().any(|word| word == "--check") {
        return check(&root, &all);
    }
    // A file that is gone must not stay in the copy.
    for folder in ["src", "crates"] {
        let _ = fs::remove_dir_all(copy.join(folder));
    }
    copy_folder(&root.join("src/core"), &copy.join("src/core"));
    copy_folder(&here.join("src"), &copy.join("crates/explorer/src"));
    let manifest = fs::read_to_string(here.join("Cargo.toml")).expect("the manifest is there");
    // The explorer without its tests.
    let manifest = manifest.replace("[dev-dependencies]", "[package.metadata.tests]");
    fs::write(
        copy.join("crates/explorer/Cargo.toml"),
        manifest + "\n[workspace]\n",
    )
    .expect("the copy can be written");
    let mut missed = 0;
    for mutant in all {
        let is_wanted = wanted.is_empty()
            || wanted
                .iter()
                .any(|part| mutant.systems == part || mutant.name.contains(part.as_str()));
        if !is_wanted {
            continue;
        }
        let said = find(&root, &copy, &mutant);
        println!(
            "{:<70} {}",
            mutant.name,
            said.as_ref().unwrap_or_else(|said| said)
        );
        missed += u8::from(said.is_err());
    }
    ExitCode::from(missed)
}

/// Fails if a text does not occur once.
fn check(root: &Path, mutants: &[Mutant<'_>]) -> ExitCode {
    let lost = mutants
        .iter()
        .filter(|mutant| place_of(&mutant.before, &root.join(mutant.folder)).is_none());
    let lost: Vec<_> = lost.map(|mutant| mutant.name).collect();
    for name in &lost {
        println!("{name}: the core does not have the text once");
    }
    ExitCode::from(u8::from(!lost.is_empty()))
}

/// The blocks of the file.
fn mutants<'a>(
    text: &'a str,
    (_, folder, systems): (&str, &'static str, &'static str),
) -> Vec<Mutant<'a>> {
    let blocks = text.split("\n== ").skip(1);
    let mutant = |block: &'a str| {
        let name = str::lines(block).next().unwrap_or_default();
        let part = |sign: char| {
            let lines = block
                .lines()
                .skip(1)
                .filter_map(|line| line.strip_prefix(sign));
            lines.map(|line| format!("{line}\n")).collect::<String>()
        };
        Mutant {
            name,
            folder,
            systems,
            before: part('-'),
            after: part('+'),
        }
    };
    blocks.map(mutant).collect()
}

/// The random walks of one error; `make test` goes the same.
const WALKS: &str = "10000";

/// What finds the error: the explorer's line about the first system that is not clean, the first wrong random walk if all are clean, or a
/// panic of the core. A search that does not end, and a panic of the explorer, find nothing.
fn find(root: &Path, copy: &Path, mutant: &Mutant<'_>) -> Result<String, String> {
    let (path, text, place) = place_of(&mutant.before, &root.join(mutant.folder))
        .unwrap_or_else(|| panic!("{}: the text occurs once", mutant.name));
    let changed = copy
        .join(mutant.folder)
        .join(path.file_name().unwrap_or_default());
    let with_error = [&text[..place.start], &mutant.after, &text[place.end..]].concat();
    fs::write(&changed, with_error).expect("the copy can be written");
    let manifest = copy.join("crates/explorer/Cargo.toml");
    let of_walks = ["--bin", "walks"];
    let built = Command::new("cargo")
        .args(["build", "--release", "--quiet", "--bin", "explorer"])
        .args(of_walks.iter().filter(|_| mutant.systems == "locks"))
        .arg("--manifest-path")
        .arg(&manifest)
        // Most of the code stays as it is.
        .env("CARGO_INCREMENTAL", "1")
        .env("CARGO_TARGET_DIR", copy.join("target"))
        .status();
    fs::write(&changed, text).expect("the copy can be written");
    if !built.is_ok_and(|status| status.success()) {
        return Err("DOES NOT BUILD".to_owned());
    }
    let play = |program: &str, args: &[&str]| {
        let played = Command::new(copy.join("target/release").join(program))
            .args(args)
            .output()
            .expect("the explorer runs");
        let [said, told] =
            [played.stdout, played.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        let panicked = told.lines().find(|line| line.contains("panicked at"));
        (said, panicked.map(str::to_owned))
    };
    let (explored, panicked) = play("explorer", &["--until-found", mutant.systems]);
    let found = explored
        .lines()
        .find(|line| !line.starts_with(' ') && line.contains(" s  ") && !line.ends_with("clean"));
    if let Some(line) = found {
        return match line.ends_with("not complete") {
            true => Err(format!("NOT FOUND: {line}")),
            false => Ok(line.to_owned()),
        };
    }
    if let Some(line) = panicked {
        return in_the_core(line);
    }
    if mutant.systems != "locks" {
        return Err("NOT FOUND".to_owned());
    }
    let (walked, panicked) = play("walks", &["1", WALKS]);
    if let Some(line) = panicked {
        return in_the_core(line);
    }
    match walked.lines().find(|line| line.ends_with(" steps")) {
        Some(line) => Ok(format!("walk {line}")),
        None => Err("NOT FOUND".to_owned()),
    }
}

fn in_the_core(panicked: String) -> Result<String, String> {
    match panicked.contains("src/core/") {
        true => Ok(panicked),
        false => Err(format!("NOT FOUND: {panicked}")),
    }
}

/// The file that has a text once, whatever its spaces, the file's text, and the place in it.
fn place_of(wanted: &str, folder: &Path) -> Option<(PathBuf, String, Range<usize>)> {
    let wanted: Vec<char> = wanted
        .chars()
        .filter(|letter| !letter.is_whitespace())
        .collect();
    let mut found = None;
    for entry in fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        if path.ends_with("tests.rs") || path.is_dir() {
            continue;
        }
        let text = fs::read_to_string(&path).expect("the file can be read");
        let letters: Vec<(usize, char)> = text
            .char_indices()
            .filter(|(_, letter)| !letter.is_whitespace())
            .collect();
        for start in 0..letters.len() {
            let rest = letters[start..].iter().map(|(_, letter)| letter);
            if rest.take(wanted.len()).eq(&wanted) {
                let (last, letter) = letters[start + wanted.len() - 1];
                let place = letters[start].0..last + letter.len_utf8();
                if found.replace((path.clone(), text.clone(), place)).is_some() {
                    return None;
                }
            }
        }
    }
    found
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("the copy can be written");
    for entry in fs::read_dir(from).expect("the folder is there") {
        let path: PathBuf = entry.expect("the folder can be read").path();
        let target = to.join(path.file_name().unwrap_or_default());
        match path.is_dir() {
            true => copy_folder(&path, &target),
            false => drop(fs::copy(&path, &target)),
        }
    }
}
