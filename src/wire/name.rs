//! Lock names, and the channel names that share their hash slot.

use std::sync::Arc;

use bytes::Bytes;

use super::Count;

/// The longest name accepted, in bytes of UTF-8.
pub(crate) const MAX_NAME: usize = 64 * 1024;

/// One lock as the server knows it, rendered once per handle.
#[derive(Debug, Clone)]
pub struct Place {
    /// The lock's key, as text: what errors and logs show.
    pub(crate) name: Arc<str>,
    /// The lock's key.
    pub(crate) key: Bytes,
    /// Where a release is announced.
    pub(crate) channel: Bytes,
    /// Whatever else the kind needs at every operation: its other keys, or what they begin with.
    pub(crate) beside: Vec<Bytes>,
    /// Which of an owner's counts at this name is meant.
    pub(crate) count: Count,
    /// Whether whoever releases the lock announces it. Otherwise those who wait have to ask more often.
    pub(crate) announced: bool,
    /// Whether one of those who listen for a release can enter beside another.
    pub(crate) shared: bool,
}

impl Place {
    /// The lock `name` whose releases are announced on `prefixed(announced_on, name)`.
    pub(crate) fn new(name: Arc<str>, announced_on: &str) -> Self {
        Self {
            key: Bytes::copy_from_slice(name.as_bytes()),
            channel: prefixed(announced_on, &name).into(),
            beside: Vec::new(),
            count: Count::Owner,
            announced: true,
            shared: false,
            name,
        }
    }

    /// As [`new`](Self::new), with the key `prefixed(prefix, name)` for each of `prefixes` beside the lock's own.
    pub(crate) fn with_keys(name: Arc<str>, announced_on: &str, prefixes: &[&str]) -> Self {
        let beside = prefixes.iter().map(|prefix| prefixed(prefix, &name).into());
        Self {
            beside: beside.collect(),
            ..Self::new(name.clone(), announced_on)
        }
    }
}

/// Refuses a name that no lock should have, with the reason.
pub(crate) fn check(name: &str) -> Result<(), &'static str> {
    if name.is_empty() {
        Err("it is empty")
    } else if name.len() > MAX_NAME {
        Err("it is longer than 65536 bytes")
    } else if name.chars().any(char::is_control) {
        Err("it contains a control character, such as a newline or NUL")
    } else {
        Ok(())
    }
}

/// `prefix` in front of `name`, in the hash slot of `name`. A name that contains `{` anywhere is taken to carry its
/// own hash tag, well formed or not: Redisson does the same.
pub(crate) fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') {
        format!("{prefix}:{name}")
    } else {
        format!("{prefix}:{{{name}}}")
    }
}

/// `name` in front of a suffix, in the hash slot of `name`.
pub(crate) fn suffixable(name: &str) -> String {
    if name.contains('{') {
        name.to_owned()
    } else {
        format!("{{{name}}}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_without_a_brace_get_a_hash_tag() {
        assert_eq!(prefixed("p", "order:42"), "p:{order:42}");
        assert_eq!(prefixed("p", "a}b"), "p:{a}b}");
    }

    #[test]
    fn names_with_a_brace_anywhere_keep_theirs() {
        // P-W8: "contains", not "starts with".
        assert_eq!(prefixed("p", "a:{b}"), "p:a:{b}");
        assert_eq!(prefixed("p", "{b}:a"), "p:{b}:a");
        assert_eq!(prefixed("p", "a{b"), "p:a{b");
        assert_eq!(prefixed("p", "{}x"), "p:{}x");
    }

    #[test]
    fn bad_names_are_refused_with_a_reason() {
        assert!(check("").is_err());
        assert!(check("a\0b").is_err());
        assert!(check("a\nb").is_err());
        assert!(check("a\r\nb").is_err());
        assert!(check(&"x".repeat(1024 * 1024)).is_err());
        assert!(check(&"x".repeat(MAX_NAME)).is_ok());
        assert!(check("Gebühr {42} 🔒").is_ok());
    }

    /// The hash tag of a key as a cluster reads it.
    fn hash_tag(key: &str) -> &str {
        let Some(open) = key.find('{') else {
            return key;
        };
        match key[open + 1..].find('}') {
            Some(0) | None => key,
            Some(close) => &key[open + 1..open + 1 + close],
        }
    }

    proptest! {
        #[test]
        fn the_channel_shares_the_slot_of_the_name(name in "[a-z:}]{1,8}|[a-z:]{0,4}\\{[a-z]{1,4}\\}[a-z:{}]{0,4}") {
            // A `}` before any `{` cuts the tag that we add: such a channel is in another slot, for Redisson too.
            prop_assume!(name.contains('{') || !name.contains('}'));
            let channel = prefixed("redisson_lock__channel", &name);
            prop_assert_eq!(hash_tag(&channel), hash_tag(&name));
        }

        #[test]
        fn no_name_panics(name in ".*") {
            let _ = check(&name);
            let _ = prefixed("p", &name);
        }
    }
}
