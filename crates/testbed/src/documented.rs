//! Compares the output of commands in the pages with the actual output, or replaces it.

use std::{fs, path::Path};

/// Compares the output of `$ command` on a page with `output`, except numbers, ids and spaces. With `UPDATE_OUTPUT` set, it writes
/// `output` to the page. `page` is relative to the repository.
pub fn is_documented(page: &str, command: &str, output: &str) {
    compare(
        page,
        command,
        output,
        std::env::var_os("UPDATE_OUTPUT").is_some(),
    );
}

/// As above, for output with meaningful numbers: it is never replaced.
pub fn has_documented_shape(page: &str, command: &str, output: &str) {
    compare(page, command, output, false);
}

fn compare(page: &str, command: &str, output: &str, updates: bool) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(page);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{page}: {error}"));
    let begins = format!("$ {command}\n");
    let start = text
        .find(&begins)
        .unwrap_or_else(|| panic!("{page} does not show {command}"));
    let start = start + begins.len();
    let length = ["$ ", "```"].iter().filter_map(|end| {
        let at_line = format!("\n{end}");
        text[start - 1..].find(&at_line)
    });
    let end = start + length.min().expect("the block ends");
    let output = format!("{}\n", output.trim_end());
    if updates {
        let updated = [&text[..start], &output, &text[end..]].concat();
        fs::write(&path, updated).unwrap_or_else(|error| panic!("{page}: {error}"));
        return;
    }
    let (shown, printed) = (shape(&text[start..end]), shape(&output));
    assert_eq!(
        shown, printed,
        "{page} shows something else for {command}; `make output` writes what it prints now"
    );
}

/// Each line, with `N` for numbers, `ID` for ids, and one space between words.
fn shape(text: &str) -> Vec<String> {
    let line = |line: &str| {
        let words: Vec<_> = line.split_whitespace().map(without_ids).collect();
        words.join(" ")
    };
    text.trim_end().lines().map(line).collect()
}

fn without_ids(word: &str) -> String {
    let (mut shape, mut rest) = (String::new(), word);
    while let Some(first) = rest.chars().next() {
        if let Some(behind) = rest.get(36..).filter(|_| is_id(&rest[..36])) {
            shape += "ID";
            rest = behind;
        } else if first.is_ascii_digit() {
            shape += "N";
            rest = rest.trim_start_matches(|char: char| char.is_ascii_digit() || char == '.');
        } else {
            shape.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    shape
}

fn is_id(text: &str) -> bool {
    text.char_indices().all(|(at, char)| match at {
        8 | 13 | 18 | 23 => char == '-',
        _ => char.is_ascii_hexdigit(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_ids_may_differ_and_words_may_not() {
        let one = shape("a  12.5s  0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47\n");
        assert_eq!(one, ["a Ns ID:N"]);
        assert_eq!(
            one,
            shape("a 3s 57339a48-91c1-4d3a-9f5d-1d0a4f6f7ab1:4611686018427387910")
        );
        assert_ne!(one, shape("b 3s 57339a48-91c1-4d3a-9f5d-1d0a4f6f7ab1:4"));
        assert_ne!(one, shape("a 3s 57339a48"));
        assert_eq!(shape("Gebühr 1"), ["Gebühr N"]);
    }
}
