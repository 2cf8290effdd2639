//! Checks the links of pages: to files and headings of the repository, to files of the package, and to the API documentation.

use std::{fs, path::Path};

use crate::{markdown, tree::Tree};

const SOURCE: &str = "https://docs.rs/crate/redisson-lock/latest/source/";
const API: &str = "https://docs.rs/redisson-lock/latest/";

/// Checks relative links, and links to the source on docs.rs. Ignores links to other sites, because a check that needs a network fails
/// for other reasons.
pub fn check(tree: &Tree) -> Vec<String> {
    let packaged = packaged(tree);
    let mut problems = Vec::new();
    for (path, text) in tree.pages() {
        let (used, defined) = markdown::labels(text);
        for (number, label) in used {
            if !defined.contains(&label) {
                problems.push(format!("{path}:{number}: no definition of [{label}]"));
            }
        }
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        for (number, target) in targets(text) {
            let target = target.as_str();
            let problem = if let Some(file) = target.strip_prefix(SOURCE) {
                missing(tree, "", path, file).or_else(|| unpackaged(&packaged, file))
            } else if target.contains("://") || target.starts_with("mailto:") {
                None
            } else {
                missing(tree, folder, path, target).or_else(|| {
                    let in_package = packaged.iter().any(|start| path.starts_with(start));
                    let file = resolved(folder, target.split('#').next().unwrap_or_default());
                    (in_package && !target.starts_with('#'))
                        .then(|| unpackaged(&packaged, &file))
                        .flatten()
                })
            };
            problems.extend(problem.map(|why| format!("{path}:{number}: {target}: {why}")));
        }
    }
    problems.extend(of_guide(tree));
    problems
}

/// Pages of the guide are also rustdoc modules, where a link to `fair-lock.md` has no target. Their links have labels, and
/// src/guide/links.md defines each label for rustdoc.
fn of_guide(tree: &Tree) -> Vec<String> {
    let guide = tree.text("src/guide/mod.rs").unwrap_or_default();
    let modules = guide.lines().filter_map(|line| {
        let (module, file) = line.strip_prefix("page!(")?.split_once(", \"")?;
        Some((module, format!("docs/{}", file.strip_suffix("\");")?)))
    });
    let modules: Vec<_> = modules.collect();
    let links = tree.text("src/guide/links.md").unwrap_or_default();
    let mut problems = Vec::new();
    for (_, page) in &modules {
        let text = tree.text(page).unwrap_or_default();
        for (number, line) in markdown::lines(text) {
            let Some((label, target)) = markdown::definition(line) else {
                let mut targets = markdown::targets(line).into_iter();
                if targets.any(|target| !target.contains("://") && !target.starts_with('#')) {
                    problems.push(format!(
                        "{page}:{number}: a link of the guide needs a label"
                    ));
                }
                continue;
            };
            if target.contains("://") {
                continue;
            }
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let hash = if anchor.is_empty() { "" } else { "#" };
            let file = resolved("docs", file);
            let module = modules.iter().find(|(_, page)| *page == file);
            let place = module.map_or(format!("{SOURCE}{file}"), |(module, _)| {
                format!("crate::guide::{module}")
            });
            let expected = format!("[{label}]: {place}{hash}{anchor}");
            if !links.lines().any(|line| line == expected) {
                problems.push(format!("src/guide/links.md: missing: {expected}"));
            }
        }
    }
    problems
}

/// Checks links to docs.rs/redisson-lock in the built documentation.
pub fn of_api(tree: &Tree, built: &Path) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.pages() {
        for (number, target) in targets(text) {
            let Some(item) = target.strip_prefix(API) else {
                continue;
            };
            let (file, anchor) = item.split_once('#').unwrap_or((item, ""));
            let file = match file {
                "" => "redisson_lock/index.html".to_owned(),
                folder if folder.ends_with('/') => format!("{folder}index.html"),
                file => file.to_owned(),
            };
            let page = fs::read_to_string(built.join(file));
            let is_there = page
                .is_ok_and(|page| anchor.is_empty() || page.contains(&format!("id=\"{anchor}\"")));
            if !is_there {
                problems.push(format!(
                    "{path}:{number}: {target}: not in the API documentation"
                ));
            }
        }
    }
    problems
}

fn targets(text: &str) -> Vec<(usize, String)> {
    markdown::lines(text)
        .flat_map(|(number, line)| {
            let targets = markdown::targets(line);
            targets
                .into_iter()
                .map(move |target| (number, target.to_owned()))
        })
        .collect()
}

fn missing(tree: &Tree, folder: &str, page: &str, target: &str) -> Option<String> {
    let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() {
        page.to_owned()
    } else {
        resolved(folder, file)
    };
    if !tree.has(&file) {
        return Some("no such file".to_owned());
    }
    let headings = markdown::headings(tree.text(&file).unwrap_or_default());
    let is_there = anchor.is_empty() || headings.iter().any(|heading| heading.anchor == anchor);
    (!is_there).then(|| "no such heading".to_owned())
}

fn resolved(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The path prefixes in `include` of Cargo.toml.
fn packaged(tree: &Tree) -> Vec<String> {
    let manifest = tree.text("Cargo.toml").unwrap_or_default();
    let list = manifest
        .split_once("\ninclude = [")
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(list, _)| list);
    let paths = list.split('"').skip(1).step_by(2);
    paths
        .map(|path| {
            path.trim_start_matches('/')
                .trim_end_matches('*')
                .to_owned()
        })
        .collect()
}

fn unpackaged(packaged: &[String], file: &str) -> Option<String> {
    let is_packaged = packaged.iter().any(|start| file.starts_with(start));
    (!is_packaged).then(|| "not in the package (`include` of Cargo.toml)".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: (&str, &str) = (
        "Cargo.toml",
        "[package]\ninclude = [\"/README.md\", \"/docs\"]\n",
    );

    #[test]
    fn links_that_lead_somewhere_are_no_problem() {
        let readme = (
            "README.md",
            "[a](docs/a.md#b-c) [b](docs) [c](https://docs.rs/crate/redisson-lock/latest/source/docs/a.md)\n",
        );
        let page = (
            "docs/a.md",
            "# B: c\n[up](../README.md) [here](#b-c) [x][y]\n\n[y]: a.md\n",
        );
        assert_eq!(check(&Tree::of(&[MANIFEST, readme, page])), [""; 0]);
    }

    #[test]
    fn links_of_the_guide_lead_to_modules() {
        let guide = (
            "src/guide/mod.rs",
            "page!(a_b, \"a-b.md\");\npage!(c, \"c.md\");\n",
        );
        let page = ("docs/a-b.md", "[x][c.md#d] [y](c.md)\n\n[c.md#d]: c.md#d\n");
        let linked = ("docs/c.md", "# D\n[up][a-b.md]\n[a-b.md]: a-b.md\n");
        let links = ("src/guide/links.md", "[a-b.md]: crate::guide::a_b\n");
        let problems = check(&Tree::of(&[MANIFEST, guide, page, linked, links]));
        assert_eq!(
            problems,
            [
                "docs/a-b.md:1: a link of the guide needs a label",
                "src/guide/links.md: missing: [c.md#d]: crate::guide::c#d",
            ]
        );
    }

    #[test]
    fn links_to_items_that_are_not_documented_are_found() {
        let built = std::env::temp_dir().join(format!("pages-{}", std::process::id()));
        fs::create_dir_all(built.join("redisson_lock")).unwrap();
        let index = built.join("redisson_lock/struct.Lock.html");
        fs::write(index, "<section id=\"method.lock\">").unwrap();
        let item = |item: &str| format!("[a]({API}redisson_lock/struct.{item})\n");
        let page: String = [
            "Lock.html#method.lock",
            "Lock.html#method.gone",
            "Guard.html",
        ]
        .map(item)
        .concat();
        let problems = of_api(&Tree::of(&[("docs/a.md", &page)]), &built);
        fs::remove_dir_all(&built).unwrap();
        let lines: Vec<&str> = problems.iter().map(|problem| &problem[..12]).collect();
        assert_eq!(lines, ["docs/a.md:2:", "docs/a.md:3:"], "{problems:?}");
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let readme = (
            "README.md",
            "[a](docs/b.md)\n[a](docs/a.md#gone)\n[f](Lock::lock)\n[x][y]\n[t](tests/a.rs)\n\
             [s](https://docs.rs/crate/redisson-lock/latest/source/tests/a.rs)\n",
        );
        let tree = Tree::of(&[MANIFEST, readme, ("docs/a.md", "# A\n"), ("tests/a.rs", "")]);
        let problems = check(&tree);
        let lines: Vec<&str> = problems.iter().map(|problem| &problem[..12]).collect();
        assert_eq!(
            lines,
            [
                "README.md:4:",
                "README.md:1:",
                "README.md:2:",
                "README.md:3:",
                "README.md:5:",
                "README.md:6:"
            ]
        );
    }
}
