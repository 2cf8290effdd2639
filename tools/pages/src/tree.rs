//! The text files of the repository.

use std::{collections::BTreeMap, fs, process::Command};

/// Text files by their paths from the root.
#[derive(Default)]
pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Reads the files that git tracks or would add, but no build outputs.
    pub fn read() -> Self {
        let listed = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .output()
            .expect("git lists the files");
        let listed = String::from_utf8(listed.stdout).expect("paths are UTF-8");
        Self(
            listed
                .lines()
                .filter_map(|path| Some((path.to_owned(), fs::read_to_string(path).ok()?)))
                .collect(),
        )
    }

    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let own = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self(files.iter().map(own).collect())
    }

    pub fn text(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// Whether `path` is a file or a folder with files.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        self.0.contains_key(path) || self.0.keys().any(|file| file.starts_with(&folder))
    }

    pub fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The pages: README.md and its neighbours, docs/ and .github/. Pages of other folders are not checked.
    pub fn pages(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(|(path, _)| {
            path.ends_with(".md")
                && (!path.contains('/')
                    || path.starts_with("docs/")
                    || path.starts_with(".github/"))
        })
    }
}
