//! Where a semaphore or a latch is on the server.

use std::sync::{Arc, atomic::AtomicU64};

use bytes::Bytes;

use super::name::{prefixed, suffixable};

/// One semaphore or latch as the server knows it, rendered once per handle.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) name: Arc<str>,
    /// Its number.
    pub(crate) key: Bytes,
    /// The hash that makes its operations repeatable.
    pub(crate) attempts: Bytes,
    /// When the permits end that are taken, of a semaphore whose permits do.
    pub(crate) ends: Bytes,
    /// Where changes are announced.
    pub(crate) channel: Bytes,
    /// When the hash was last said to stay, in milliseconds of the client.
    pub(crate) said: AtomicU64,
}

impl Site {
    fn new(name: Arc<str>, channel: String) -> Self {
        let extra_keys = |suffix| format!("{}:{suffix}", suffixable(&name)).into();
        Self {
            key: Bytes::copy_from_slice(name.as_bytes()),
            attempts: extra_keys("attempts"),
            ends: extra_keys("timeout"),
            channel: channel.into(),
            said: AtomicU64::new(0),
            name,
        }
    }

    pub(crate) fn semaphore(name: Arc<str>) -> Self {
        let channel = prefixed("redisson_sc", &name);
        Self::new(name, channel)
    }

    pub(crate) fn count_down_latch(name: Arc<str>) -> Self {
        // Always in braces, whatever the name contains.
        let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
        Self::new(name, channel)
    }
}

/// Which of its operations a client sends, however often: see `lua/attempts.lua`.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    pub(crate) field: Bytes,
    pub(crate) number: u64,
    /// For how many milliseconds it is known.
    pub(crate) lasts: u64,
    /// Whether the hash of all of them is to last for as long from now on.
    pub(crate) stays: bool,
}
