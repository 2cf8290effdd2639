//! Cleans a server's text for logs and errors. Pure.

/// The largest number of characters of a server's text in a log or an error.
const LONGEST: usize = 300;

/// The words before a server's copy of the command's arguments, which may contain a password.
const ECHOES: [&str; 2] = [", with args beginning with", " with args beginning with"];

/// Removes echoed arguments, escapes control characters, and limits the length.
pub(crate) fn shown(text: &str) -> String {
    let echo = ECHOES.iter().filter_map(|echo| text.find(echo)).min();
    let mut shown = String::new();
    for (index, character) in text[..echo.unwrap_or(text.len())].chars().enumerate() {
        if index == LONGEST {
            shown.push_str("..");
            break;
        }
        escape(&mut shown, character);
    }
    shown
}

fn escape(shown: &mut String, character: char) {
    match is_harmless(character) {
        true => shown.push(character),
        false => shown.extend(character.escape_default()),
    }
}

/// Control characters start new lines and colours. Invisible characters of Unicode can reverse the order of the text.
fn is_harmless(character: char) -> bool {
    let is_invisible = matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
    !character.is_control() && !is_invisible
}

/// As [`shown`], and removes the `secrets`: for replies to a command that contained them.
pub(crate) fn without(secrets: &[&str], text: &str) -> String {
    let mut text = text.to_owned();
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        let mut escaped = String::new();
        for character in secret.chars() {
            escape(&mut escaped, character);
        }
        text = without_one(secret, &text);
        text = without_one(&escaped, &text);
    }
    shown(&text)
}

/// Replaces each copy of the secret. The decoder has cut a long text, which then ends with `..` behind the beginning of a copy.
fn without_one(secret: &str, text: &str) -> String {
    let text = text.replace(secret, "..");
    let mut beginnings = (1..secret.len()).rev().filter_map(|end| secret.get(..end));
    let cut = text.strip_suffix("..");
    let rest = cut.and_then(|cut| beginnings.find_map(|beginning| cut.strip_suffix(beginning)));
    match rest {
        Some(rest) => format!("{rest}.."),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_a_server_echoes_are_cut() {
        let old =
            "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `u`, `s3cret`, ";
        assert_eq!(shown(old), "ERR unknown command `HELLO`");
        let proxy = "ERR invalid command HELLO 3 AUTH u s3cret\n";
        assert_eq!(
            without(&["s3cret"], proxy),
            "ERR invalid command HELLO 3 AUTH u ..\\n"
        );
    }

    #[test]
    fn a_secret_is_found_after_escaping() {
        assert_eq!(without(&["a\nb"], "ERR no 'a\nb'"), "ERR no '..'");
        assert_eq!(without(&[""], "ERR no"), "ERR no");
    }

    /// The decoder limits the length of an error before the password is known.
    #[test]
    fn the_beginning_of_a_secret_at_the_end_of_a_cut_text_is_removed() {
        let long = "s3cret".repeat(LONGEST);
        let late = format!("{}s3cret\n.", "x".repeat(LONGEST - 20));
        for secret in [&*long, &late, "s3cret\ns3cret", "é\u{202e}é..é"] {
            for padding in 0..LONGEST {
                let echo = format!("ERR {} {secret} {secret}", "x".repeat(padding));
                for text in [&echo, &shown(&echo)] {
                    let clean = without(&[secret], text);
                    let kept = clean.trim_start_matches(['E', 'R', ' ', 'x', '.']);
                    assert_eq!(kept, "", "after {padding} in {clean:?}");
                }
            }
        }
        assert_eq!(without(&["secret"], "ERR a sec"), "ERR a sec");
    }

    #[test]
    fn lines_and_colours_are_escaped_and_length_is_bounded() {
        assert_eq!(
            shown("a\r\n\u{1b}[31mb\u{202e}é"),
            "a\\r\\n\\u{1b}[31mb\\u{202e}é"
        );
        assert_eq!(shown(&"é".repeat(1000)), "é".repeat(LONGEST) + "..");
    }
}
