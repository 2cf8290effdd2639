//! Rules of prose that a machine can check: pronouns without an antecedent, and the length of lines.

use crate::{markdown, tree::Tree};

/// A task, a client, an owner or a process has a name; these words make the reader look for it.
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
const LONGEST: usize = 200;

pub fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.pages() {
        for (number, line) in markdown::lines(text) {
            let prose = markdown::without_targets(&markdown::without_code(line));
            for word in words_in(&prose) {
                problems.push(format!("{path}:{number}: name the subject, not {word:?}"));
            }
            // A row of a table and the definition of a link cannot be broken.
            let is_prose = !line.starts_with('|') && markdown::definition(line).is_none();
            let length = line.chars().count();
            if is_prose && length > LONGEST {
                problems.push(format!("{path}:{number}: {length} characters in a line"));
            }
        }
    }
    problems.extend(comments(tree));
    problems
}

/// Comments of code that stand on lines of their own.
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
