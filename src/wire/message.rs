//! What a message on an unlock channel asks of waiters.

/// The waiters that a release wakes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wake {
    /// One of the waiters of this process.
    One,
    /// Every one of them.
    All,
}

/// Reads a message. A message that Redisson never sends wakes no waiter.
pub(crate) fn read(payload: &[u8]) -> Option<Wake> {
    match payload {
        b"0" => Some(Wake::One),
        b"1" => Some(Wake::All),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages() {
        assert_eq!(read(b"0"), Some(Wake::One));
        assert_eq!(read(b"1"), Some(Wake::All));
        for odd in [&b""[..], b"2", b"00", b"0 ", b"\xff\xfe"] {
            assert_eq!(read(odd), None);
        }
    }
}
