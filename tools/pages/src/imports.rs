//! The paths that a source file imports.

/// The paths in a file's code that begin with `crate`, `super` or `self`, in `use` or elsewhere. Ignores comments and unit tests.
pub fn paths(text: &str) -> Vec<Vec<String>> {
    let code = code(text);
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            let is_inner = before.is_some_and(|before| before == ':' || is_part(before));
            if !is_inner {
                tree(&code[at..], &mut Vec::new(), &mut found);
            }
        }
    }
    found
}

/// The code without comments and without the unit tests at the end, which may import everything.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Reads a `use` tree or a path. Returns the rest of the text.
fn tree<'a>(text: &'a str, before: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    let depth = before.len();
    let rest = match text.strip_prefix('{') {
        Some(members) => list(members, before, found),
        None => {
            let end = text.find(|character| !is_part(character));
            let (word, rest) = text.split_at(end.unwrap_or(text.len()));
            before.push(word.to_owned());
            match rest.strip_prefix("::") {
                Some(rest) => tree(rest, before, found),
                None => {
                    found.push(before.clone());
                    rest
                }
            }
        }
    };
    before.truncate(depth);
    rest
}

/// Reads the members of a brace group after its opening brace. Returns the text after the closing brace.
fn list<'a>(text: &'a str, before: &mut Vec<String>, found: &mut Vec<Vec<String>>) -> &'a str {
    let mut rest = text;
    loop {
        rest = rest
            .trim_start_matches(|character: char| character.is_whitespace() || character == ',');
        if rest.is_empty() {
            return rest;
        }
        if let Some(rest) = rest.strip_prefix('}') {
            return rest;
        }
        rest = tree(rest, before, found);
        // Skips an `as` clause.
        let end = rest.find([',', '}']).unwrap_or(rest.len());
        rest = &rest[end..];
    }
}

fn is_part(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::paths;

    #[test]
    fn paths_are_found_in_and_outside_of_braces() {
        let text = "use crate::{\n    a::{self, B as C, d::*},\n    e,\n};\nuse super::super::f;\nfn g(h: self::i::J) {}\n// use crate::k;\n";
        let found: Vec<String> = paths(text).iter().map(|path| path.join("::")).collect();
        assert_eq!(
            found,
            [
                "crate::a::self",
                "crate::a::B",
                "crate::a::d::",
                "crate::e",
                "super::super::f",
                "self::i::J"
            ]
        );
    }
}
