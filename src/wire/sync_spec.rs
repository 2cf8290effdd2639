//! The keys and the channel of a semaphore or a latch.

use std::sync::Arc;

use bytes::Bytes;

use super::name::{prefixed, suffixable};

/// The keys and the channel of one semaphore or latch. Each handle renders them once.
#[derive(Debug)]
pub(crate) struct SyncSpec {
    /// The caller's name.
    pub(crate) name: Arc<str>,
    /// The key of its number.
    pub(crate) key: Bytes,
    /// The prefix of the keys that make its operations repeatable.
    attempts: String,
    /// The key of the acquired permits' ends, for an expirable semaphore.
    pub(crate) ends: Bytes,
    /// The channel that announces changes.
    pub(crate) channel: Bytes,
}

impl SyncSpec {
    fn new(name: Arc<str>, key: &str, channel: String) -> Self {
        let extra_keys = |suffix| format!("{}:{suffix}", suffixable(key));
        Self {
            key: Bytes::copy_from_slice(key.as_bytes()),
            attempts: extra_keys("attempt"),
            ends: extra_keys("timeout").into(),
            channel: channel.into(),
            name,
        }
    }

    pub(crate) fn semaphore(name: Arc<str>, key: &str) -> Self {
        Self::new(name, key, prefixed("redisson_sc", key))
    }

    pub(crate) fn count_down_latch(name: Arc<str>, key: &str) -> Self {
        // Always in braces, whatever the name contains.
        let channel = format!("redisson_countdownlatch__channel__{{{key}}}");
        Self::new(name, key, channel)
    }

    /// The key as text.
    pub(crate) fn key(&self) -> &str {
        // A copy of a string.
        str::from_utf8(&self.key).unwrap_or_default()
    }

    /// The key that stores the result of an attempt.
    pub(super) fn result_key(&self, attempt: &Attempt) -> Bytes {
        format!("{}:{}", self.attempts, attempt.key_suffix).into()
    }
}

/// The identity of one operation of a client, the same at each sending: see `lua/attempts.lua`.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// The end of the name of its result key. No other attempt uses that key before this one is answered.
    pub(crate) key_suffix: Arc<str>,
    pub(crate) number: u64,
    /// For how many milliseconds the server keeps its result.
    pub(crate) lasts: u64,
}
