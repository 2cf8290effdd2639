//! The identities of requests that must not be executed twice (`lua/attempts.lua`).
//!
//! An attempt has a *result key* on the server and a number. The server stores the number with the
//! result in that key, and answers a repetition from there. No other attempt uses the key before
//! this one is answered. A client thus has as many keys as it has had attempts under way at once.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    simulation,
    sync::{AtomicU64, Mutex, Ordering, lock},
    wire::{permit::Id, sync_spec::Attempt},
};

/// The attempts of a client.
pub(super) struct Attempts {
    /// The beginning of its key suffixes.
    client: String,
    lasts: u64,
    number: AtomicU64,
    suffixes: Arc<Mutex<KeySuffixes>>,
}

/// The ends of the names of result keys.
#[derive(Default)]
struct KeySuffixes {
    free: Vec<Arc<str>>,
    made: u32,
}

/// An attempt that is not answered yet. No other attempt has its result key.
pub(super) struct Ongoing {
    pub(super) attempt: Attempt,
    suffixes: Arc<Mutex<KeySuffixes>>,
    /// Whether the end of this frees the result key.
    is_answered_at_end: bool,
}

impl Attempts {
    /// The server knows an attempt for twice the time that an outage may take.
    pub(super) fn new(id: Uuid, outage_wait: Duration) -> Self {
        let lasts = u64::try_from(outage_wait.saturating_mul(2).as_millis());
        Self {
            // A random part, because a client that takes the id of an earlier one counts anew.
            client: format!("{id}/{:x}", fastrand::u32(..)),
            lasts: lasts.unwrap_or(u64::MAX).clamp(1_000, LONGEST),
            number: AtomicU64::new(0),
            suffixes: Arc::default(),
        }
    }

    /// How long a request may be repeated after it may have been executed: the server knows the
    /// attempt for longer.
    pub(super) fn longest_doubt(&self) -> Duration {
        Duration::from_millis(self.lasts / 2)
    }

    pub(super) fn begin(&self) -> Ongoing {
        let key_suffix = {
            let mut suffixes = lock(&self.suffixes);
            suffixes.free.pop().unwrap_or_else(|| {
                suffixes.made += 1;
                format!("{}/{}", self.client, suffixes.made).into()
            })
        };
        Ongoing {
            attempt: Attempt {
                key_suffix,
                number: self.number.fetch_add(1, Ordering::Relaxed) + 1,
                lasts: self.lasts,
            },
            suffixes: self.suffixes.clone(),
            is_answered_at_end: true,
        }
    }
}

impl Ongoing {
    /// Keeps the result key from later attempts: the request is sent after the end of this. A later attempt under the key, which
    /// another thread may send first, would have the server refuse it.
    pub(super) fn sent_later(&mut self) {
        self.is_answered_at_end = false;
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        if self.is_answered_at_end {
            lock(&self.suffixes)
                .free
                .push(self.attempt.key_suffix.clone());
        }
    }
}

/// A day, in milliseconds.
const LONGEST: u64 = 24 * 60 * 60 * 1_000;

/// An id that no other permit has.
pub(super) fn permit_id() -> Id {
    let id = simulation::id().map(u128::to_be_bytes);
    id.unwrap_or_else(|| Uuid::new_v4().into_bytes())
}

/// A random number: no other waiter sends it, and Redisson's waiters ignore it.
pub(super) fn mark() -> i64 {
    fastrand::i64(2..)
}
