//! Names of locks, and the keys and channels that share their hash slot.

use std::sync::Arc;

use bytes::Bytes;

use super::{HoldMode, LockProtocol};

/// The longest name accepted, in bytes of UTF-8.
pub(crate) const MAX_NAME: usize = 64 * 1024;

/// The keys, channel and kind of one lock. Handles on a lock in use share one.
#[derive(Debug, Clone)]
pub struct LockSpec {
    /// The requests and replies of this kind.
    pub(crate) protocol: &'static dyn LockProtocol,
    /// The caller's name of the lock: what errors, logs and reports say.
    pub(crate) name: Arc<str>,
    /// The lock's key: the name behind the prefix of the client.
    pub(crate) key: Bytes,
    /// The channel on which a release publishes.
    pub(crate) channel: Bytes,
    /// Further arguments of the kind's operations: other keys, prefixes of keys, times.
    pub(crate) extra_keys: Vec<Bytes>,
    /// The namespace of the owners' hold counts at this name.
    pub(crate) mode: HoldMode,
    /// Whether all client libraries publish each release of the lock. If false, waiters also poll: at the back-off (spin), or
    /// every 200 ms.
    pub(crate) announced: bool,
    /// Whether a waiter that is granted the lock wakes the next one: one release can let several waiters in.
    pub(crate) grant_wakes_next: bool,
}

impl LockSpec {
    /// The lock `name`, whose releases publish on `prefixed(announced_on, name)`.
    pub(crate) fn new(
        protocol: &'static dyn LockProtocol,
        name: Arc<str>,
        announced_on: &str,
    ) -> Self {
        let channel = Bytes::from(prefixed(announced_on, &name));
        let behind = usize::from(!name.contains('{'));
        let key = channel.len() - behind - name.len()..channel.len() - behind;
        Self {
            protocol,
            // A slice of the channel, to share its bytes.
            key: channel.slice(key),
            channel,
            extra_keys: Vec::new(),
            mode: HoldMode::Owner,
            announced: true,
            grant_wakes_next: false,
            name,
        }
    }

    /// The lock's key as text.
    pub(crate) fn key(&self) -> &str {
        // A part of a string.
        str::from_utf8(&self.key).unwrap_or_default()
    }

    /// Whether waiters of one client enqueue in its local queue. Readers and fair waiters do not.
    pub(crate) fn has_local_queue(&self) -> bool {
        self.mode != HoldMode::Read && !self.has_queue()
    }

    /// Whether waiters stand in a queue on the server.
    pub(crate) fn has_queue(&self) -> bool {
        self.protocol.abandon().is_some()
    }

    /// Whether a request says how long ago the wait's last attempt was.
    pub(crate) fn counts_attempts(&self) -> bool {
        self.has_queue() || self.protocol.intend().is_some()
    }

    /// As [`new`](Self::new), with the key `prefixed(prefix, name)` for each of `prefixes` beside the lock's own.
    pub(crate) fn with_keys(
        protocol: &'static dyn LockProtocol,
        name: Arc<str>,
        announced_on: &str,
        prefixes: &[&str],
    ) -> Self {
        let extra_keys = prefixes.iter().map(|prefix| prefixed(prefix, &name).into());
        Self {
            extra_keys: extra_keys.collect(),
            ..Self::new(protocol, name.clone(), announced_on)
        }
    }
}

/// Refuses an invalid name, with the reason.
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

/// Whether every key and channel made of `name` is in the hash slot of `name`. If not, the lock cannot work on a cluster: its
/// script would name keys of two slots.
pub(crate) fn shares_slot(name: &str) -> bool {
    match name.split_once('{') {
        // A cluster hashes the text between the first `{` and the next `}`, unless it is empty.
        Some((_, tail)) => tail.find('}').is_some_and(|length| length > 0),
        // `prefixed` puts braces around the name. A `}` within the name would end the hash tag early.
        None => !name.contains('}'),
    }
}

/// `prefix` in front of `name`, in the hash slot of `name`. As in Redisson, a name with a `{` anywhere counts as one with its own
/// hash tag, well formed or not.
pub(crate) fn prefixed(prefix: &str, name: &str) -> String {
    let parts = match name.contains('{') {
        true => [prefix, ":", name, ""],
        false => [prefix, ":{", name, "}"],
    };
    // `concat` allocates the exact length, which `format!` does not promise. A waiting task may keep such a string.
    parts.concat()
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

    /// The part of a key that a cluster hashes: its hash tag, or else the whole key.
    fn hashed(key: &str) -> &str {
        let tag = key
            .find('{')
            .map(|open| &key[open + 1..])
            .and_then(|tail| tail.find('}').map(|close| &tail[..close]));
        tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
    }

    /// The slot of a key: CRC-16/XMODEM of the hashed part, modulo 16384.
    fn slot(key: &str) -> u16 {
        crc16(hashed(key).as_bytes()) % 16384
    }

    fn crc16(bytes: &[u8]) -> u16 {
        let feed = |crc: u16, bit: u16| {
            let carry = (crc >> 15) ^ bit;
            (crc << 1) ^ (carry * 0x1021)
        };
        let bits = |byte: &u8| {
            let byte = u16::from(*byte);
            (0..8).rev().map(move |spec| (byte >> spec) & 1)
        };
        bytes.iter().flat_map(bits).fold(0, feed)
    }

    /// The keys and channels of all kinds of lock for `name`.
    fn made_of(name: &str) -> Vec<String> {
        let owner = "57339a48-91c1-4d3a-9f5d-1d0a4f6f7ab1:42";
        let prefixes = [
            "redisson_lock__channel",
            "redisson_rwlock",
            "redisson_lock_queue",
            "redisson_lock_timeout",
            "redisson_lock_token",
            "simple_lock__channel",
        ];
        let mut all: Vec<_> = prefixes.map(|prefix| prefixed(prefix, name)).into();
        all.push(format!("{}:{owner}", all[0]));
        all.push(format!("{}:{owner}:rwlock_timeout:1", suffixable(name)));
        all
    }

    fn in_one_slot(name: &str) -> bool {
        made_of(name).iter().all(|key| slot(key) == slot(name))
    }

    #[test]
    fn slots_are_those_of_a_cluster() {
        // The check value of the specification, and answers of CLUSTER KEYSLOT.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot("foo"), 12182);
        assert_eq!(slot("{foo}bar"), 12182);
        assert_eq!(slot("x{foo}{bar}"), 12182);
        assert_eq!(slot("foo{}{bar}"), 8363);
        assert_eq!(slot("foo{{bar}}zap"), slot("{bar"));
    }

    #[test]
    fn names_that_cannot_work_on_a_cluster_are_recognised() {
        // P-T9
        for name in [
            "order:42",
            "{a}",
            "x{a}y",
            "a:{b}",
            "{b}:a",
            "{a}{",
            "{a}}",
            "}{a}",
            "{{a}",
            "{a}{}",
            "Gebühr {42} 🔒",
        ] {
            assert!(shares_slot(name) && in_one_slot(name), "{name}");
        }
        for name in [
            "a{b", "{", "{}", "{}x", "x{}", "{}{a}", "}{", "}", "a}b", "}a",
        ] {
            assert!(!shares_slot(name) && !in_one_slot(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn keys_derived_from_a_name_share_its_slot_unless_braces_are_odd(name in "[ab:{}]{1,8}") {
            // Compares more than slots: different hashed parts share a slot by chance, once in 16384.
            let alike = made_of(&name).iter().all(|key| hashed(key) == hashed(&name));
            prop_assert_eq!(shares_slot(&name), alike);
            prop_assert!(!alike || in_one_slot(&name));
        }

        #[test]
        fn no_name_panics(name in ".*") {
            let _ = check(&name);
            let _ = shares_slot(&name);
            let _ = prefixed("p", &name);
        }
    }
}
