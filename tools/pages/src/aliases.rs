//! Checks that a method whose documentation names a method of Redisson has that name as a `doc(alias)`, so that a search finds it.

use crate::tree::Tree;

pub fn check(tree: &Tree) -> Vec<String> {
    let sources = tree
        .files()
        .filter(|(path, _)| path.starts_with("src/") && path.ends_with(".rs"));
    let mut problems = Vec::new();
    for (path, text) in sources {
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            if line.trim() != "/// # Redisson" {
                continue;
            }
            // The section ends at the next heading, and the attributes end at the item.
            let mut section = Vec::new();
            let mut attributes = String::new();
            let mut in_section = true;
            for (_, line) in lines.by_ref() {
                let line = line.trim();
                match line.strip_prefix("///") {
                    Some(doc) if doc.starts_with(" # ") => in_section = false,
                    Some(doc) if in_section => section.push(doc),
                    Some(_) => {}
                    // An attribute may have several lines.
                    None if !line.starts_with("pub ") => attributes.push_str(line),
                    None => break,
                }
            }
            for name in section.into_iter().flat_map(java_names) {
                if !attributes.contains(&format!("\"{name}\"")) {
                    problems.push(format!("{path}:{}: no doc(alias = {name:?})", index + 1));
                }
            }
        }
    }
    problems
}

/// Calls in camel case, such as `tryLock(..)`. A name of one word is the same in Rust, so it needs no alias.
fn java_names(doc: &str) -> impl Iterator<Item = &str> {
    let code = doc.split('`').skip(1).step_by(2);
    code.filter_map(|code| code.split_once('(').map(|(name, _)| name))
        .filter(|name| name.chars().all(char::is_alphanumeric))
        .filter(|name| name.chars().skip(1).any(char::is_uppercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_without_an_alias_are_found() {
        let source = "\
/// # Redisson
///
/// `tryLock()`, with a lease `tryLock(0, unit)`, or `lock()`.
///
/// # Examples
///
/// `getLock()`
#[doc(alias(
    \"try\",
    \"tryLock\"
))]
pub fn try_lock() {}
/// # Redisson
///
/// `isLocked()`.
pub fn is_locked() {}
";
        assert_eq!(
            check(&Tree::of(&[("src/lock.rs", source)])),
            ["src/lock.rs:13: no doc(alias = \"isLocked\")"]
        );
    }
}
