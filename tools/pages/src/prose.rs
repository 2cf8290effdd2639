//! Checks prose in pages, comments, log lines and errors: pronouns without an antecedent, and the length of lines.

use crate::{markdown, tree::Tree};

/// Words that hide the subject. Prose names the task, the client, the owner or the process instead.
const WORDS: [&str; 8] = [
    "who",
    "whoever",
    "whom",
    "somebody",
    "nobody",
    "anybody",
    "others",
    "one of us",
];
/// Such words in names of functions. The public API has settings with `others`, so that word is allowed.
const PARTS: [&str; 7] = [
    "who",
    "whoever",
    "whom",
    "somebody",
    "nobody",
    "anybody",
    "everybody",
];
const LONGEST: usize = 200;

pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.pages() {
        for (number, line) in markdown::lines(text) {
            let prose = markdown::without_targets(&markdown::without_code(line));
            for word in words_in(&prose) {
                problems.push(format!("{path}:{number}: name the subject, not {word:?}"));
            }
            // A table row and a link definition cannot be broken into lines.
            let is_prose = !line.starts_with('|') && markdown::definition(line).is_none();
            let length = line.chars().count();
            if is_prose && length > LONGEST {
                problems.push(format!("{path}:{number}: {length} characters in a line"));
            }
        }
    }
    problems.extend(comments(tree));
    problems.extend(texts(tree));
    problems.extend(names(tree));
    problems
}

/// Checks comments on lines of their own.
fn comments(tree: &Tree) -> impl Iterator<Item = String> {
    let code = tree.files().filter_map(|(path, text)| match path {
        _ if path.ends_with(".rs") => Some((path, text, "//")),
        _ if path.ends_with(".lua") => Some((path, text, "--")),
        _ => None,
    });
    code.flat_map(|(path, text, mark)| {
        text.lines().enumerate().flat_map(move |(index, line)| {
            let comment = line.trim_start().strip_prefix(mark).unwrap_or_default();
            let is_table = comment.trim_start_matches(['/', '!', ' ']).starts_with('|');
            let prose = markdown::without_targets(&markdown::without_code(comment));
            let words = words_in(&prose).map(|word| format!("name the subject, not {word:?}"));
            let length = line.chars().count();
            let long = !comment.is_empty() && length > LONGEST && !is_table;
            let long = long.then(|| format!("{length} characters in a line"));
            let problems: Vec<_> = words.chain(long).collect();
            let found = problems.into_iter();
            found.map(move |problem| format!("{path}:{}: {problem}", index + 1))
        })
    })
}

/// Checks the names of functions, which include tests.
fn names(tree: &Tree) -> impl Iterator<Item = String> {
    // The tests of this file contain refused names.
    let code = tree
        .files()
        .filter(|(path, _)| path.ends_with(".rs") && !path.starts_with("tools/pages/"));
    code.flat_map(|(path, text)| {
        text.lines().enumerate().flat_map(move |(index, line)| {
            let name = line.trim_start().split("fn ").nth(1).unwrap_or_default();
            let name = name.split(['(', '<']).next().unwrap_or_default();
            let parts = PARTS.into_iter();
            let found = parts.filter(move |part| name.split('_').any(|word| word == *part));
            found.map(move |part| format!("{path}:{}: name the subject, not {part:?}", index + 1))
        })
    })
}

/// Checks log lines, errors and the output of `rlock`: string literals of code outside tests.
fn texts(tree: &Tree) -> impl Iterator<Item = String> {
    let code = tree.files().filter(|(path, _)| {
        let is_code = path.starts_with("src/") || path.starts_with("rlock/src/");
        is_code && path.ends_with(".rs") && !path.contains("test")
    });
    code.flat_map(|(path, text)| {
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        literals(text)
            .into_iter()
            .flat_map(move |(number, literal)| {
                let prose = without_placeholders(&markdown::without_code(literal));
                let words: Vec<_> = words_in(&prose).collect();
                let found = words.into_iter();
                found.map(move |word| format!("{path}:{number}: name the subject, not {word:?}"))
            })
    })
}

/// String literals outside comments, each with its line number.
fn literals(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut open: Option<usize> = None;
    let (mut at, mut number) = (0, 1);
    for line in text.split_inclusive('\n') {
        let is_comment = open.is_none() && line.trim_start().starts_with("//");
        let mut escaped = false;
        for (index, byte) in line.bytes().enumerate().filter(|_| !is_comment) {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if open.is_some() => escaped = true,
                // The character `'"'` is no literal.
                b'"' if open.is_none() && line[..index].ends_with('\'') => {}
                b'"' => match open.take() {
                    Some(start) => found.push((number, &text[start..at + index])),
                    None => open = Some(at + index + 1),
                },
                _ => {}
            }
        }
        at += line.len();
        number += 1;
    }
    found
}

/// The text of a format string without its placeholders.
fn without_placeholders(text: &str) -> String {
    let mut parts = text.split('{');
    let mut kept = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        kept += part.split_once('}').map_or(part, |(_, rest)| rest);
    }
    kept
}

fn words_in(prose: &str) -> impl Iterator<Item = &'static str> {
    let lower = prose.to_lowercase();
    let is_letter = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '-');
    WORDS.into_iter().filter(move |word| {
        lower.match_indices(word).any(|(at, word)| {
            !is_letter(lower[..at].chars().next_back())
                && !is_letter(lower[at + word.len()..].chars().next())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        check(&Tree::of(&[("docs/a.md", text)]))
    }

    #[test]
    fn each_word_is_found() {
        for word in WORDS {
            let found = problems(&format!("# A\n\nThe lock, {word} has it.\n"));
            assert_eq!(
                found,
                [format!("docs/a.md:3: name the subject, not {word:?}")]
            );
        }
        assert_eq!(problems("Whoever waits.\n").len(), 1);
    }

    #[test]
    fn names_of_functions_are_checked() {
        let code = "async fn nobody_waits<S>() {}\nfn a_whole_waits() {}\n    pub fn wakes_everybody() {}\n";
        let tree = Tree::of(&[("tests/a.rs", code)]);
        assert_eq!(
            names(&tree).collect::<Vec<_>>(),
            [
                "tests/a.rs:1: name the subject, not \"nobody\"",
                "tests/a.rs:3: name the subject, not \"everybody\""
            ]
        );
    }

    #[test]
    fn log_lines_and_errors_are_checked() {
        let code = "// \"nobody\"\nfn a(c: char) {\n    warn!(\"the {who} of `others` \\\"wait\");\n    if c == '\"' {}\n    \
                    error(\n        \"a lock of \\\n         others\",\n    );\n}\n#[cfg(test)]\nmod tests {\n    \"nobody\"\n}\n";
        let tree = Tree::of(&[("src/a.rs", code), ("src/a_tests.rs", "\"nobody\"")]);
        assert_eq!(
            texts(&tree).collect::<Vec<_>>(),
            ["src/a.rs:7: name the subject, not \"others\""]
        );
    }

    #[test]
    fn code_targets_and_parts_of_words_are_no_prose() {
        let text = "`who` [whole](who.md) [x][who] the others' a whom-ever\n```\nnobody\n```\n";
        assert_eq!(
            problems(text),
            ["docs/a.md:1: name the subject, not \"others\""]
        );
    }

    #[test]
    fn long_comments_are_found_but_not_in_tables() {
        let long = "word ".repeat(41);
        let rust = format!("/// {long}\n/// | {long} |\nlet {long};\n");
        let lua = format!("-- {long}\n");
        let problems = check(&Tree::of(&[("lua/a.lua", &lua), ("src/a.rs", &rust)]));
        assert_eq!(
            problems,
            [
                "lua/a.lua:1: 208 characters in a line",
                "src/a.rs:1: 209 characters in a line"
            ]
        );
    }

    #[test]
    fn comments_of_code_name_their_subjects() {
        let rust = "/// `who` holds it.\n// Nobody holds it.\nlet others = 1; // others\n";
        let problems = check(&Tree::of(&[
            ("lua/a.lua", "-- Wakes whoever waits.\n"),
            ("src/a.rs", rust),
        ]));
        assert_eq!(
            problems,
            [
                "lua/a.lua:1: name the subject, not \"whoever\"",
                "src/a.rs:2: name the subject, not \"nobody\""
            ]
        );
    }

    #[test]
    fn long_lines_are_found_but_not_in_tables() {
        let long = "word ".repeat(41);
        assert_eq!(
            problems(&format!("{long}\n| {long} |\n[a]: {long}\n")),
            ["docs/a.md:1: 205 characters in a line"]
        );
    }
}
