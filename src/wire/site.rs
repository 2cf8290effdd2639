//! Where a semaphore or a latch is on the server.

use std::sync::Arc;

use bytes::Bytes;

use super::name::{prefixed, suffixable};

/// One semaphore or latch as the server knows it, rendered once per handle.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) name: Arc<str>,
    /// Its number.
    pub(crate) key: Bytes,
    /// What the keys begin with that make its operations repeatable.
    attempts: String,
    /// When the permits end that are taken, of a semaphore whose permits do.
    pub(crate) ends: Bytes,
    /// Where changes are announced.
    pub(crate) channel: Bytes,
}

impl Site {
    fn new(name: Arc<str>, channel: String) -> Self {
        let extra_keys = |suffix| format!("{}:{suffix}", suffixable(&name));
        Self {
            key: Bytes::copy_from_slice(name.as_bytes()),
            attempts: extra_keys("attempt"),
            ends: extra_keys("timeout").into(),
            channel: channel.into(),
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

    /// The key at which an attempt is known here.
    pub(super) fn attempt(&self, attempt: &Attempt) -> Bytes {
        format!("{}:{}", self.attempts, attempt.place).into()
    }
}

/// Which of its operations a client sends, however often: see `lua/attempts.lua`.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// It has this for itself until it is answered.
    pub(crate) place: Arc<str>,
    pub(crate) number: u64,
    /// For how many milliseconds it is known.
    pub(crate) lasts: u64,
}
