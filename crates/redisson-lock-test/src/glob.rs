//! Patterns of `KEYS`, `SCAN`, `PSUBSCRIBE` and `PUBSUB CHANNELS`.

/// Whether a text matches a pattern of `*`, `?`, `[a-z]`, `[^a]` and `\`.
pub(crate) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    match (pattern, text) {
        ([], text) => text.is_empty(),
        ([b'*'], _) => true,
        ([b'*', rest @ ..], text) => (0..=text.len()).any(|skip| matches(rest, &text[skip..])),
        (_, []) => false,
        ([b'?', rest @ ..], [_, text @ ..]) => matches(rest, text),
        ([b'[', class @ ..], [first, text @ ..]) => {
            let (accepted, rest) = in_class(class, *first);
            accepted && matches(rest, text)
        }
        ([b'\\', literal, rest @ ..], [first, text @ ..]) => {
            literal == first && matches(rest, text)
        }
        ([literal, rest @ ..], [first, text @ ..]) => literal == first && matches(rest, text),
    }
}

/// Whether a byte is in the class that begins here, and the pattern after the class.
fn in_class(class: &[u8], byte: u8) -> (bool, &[u8]) {
    let (negated, mut rest) = match class {
        [b'^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let mut found = false;
    loop {
        rest = match rest {
            [] => break,
            [b']', behind @ ..] => {
                rest = behind;
                break;
            }
            [b'\\', literal, behind @ ..] => {
                found |= *literal == byte;
                behind
            }
            [a, b'-', b, behind @ ..] => {
                found |= (*a.min(b)..=*a.max(b)).contains(&byte);
                behind
            }
            [literal, behind @ ..] => {
                found |= *literal == byte;
                behind
            }
        };
    }
    (found != negated, rest)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_as_in_redis() {
        for (pattern, text) in [
            ("*", ""),
            ("a*c", "abbc"),
            ("a?c", "abc"),
            ("[a-c]x", "bx"),
            ("[^a]x", "bx"),
            ("\\*", "*"),
            ("*{order}*", "queue:{order}"),
        ] {
            assert!(matches(pattern.as_bytes(), text.as_bytes()), "{pattern}");
        }
        for (pattern, text) in [
            ("", "a"),
            ("a", ""),
            ("a?", "a"),
            ("[^a]", "a"),
            ("\\*", "a"),
        ] {
            assert!(!matches(pattern.as_bytes(), text.as_bytes()), "{pattern}");
        }
    }
}
