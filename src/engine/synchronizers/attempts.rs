//! The identities of requests that must not be executed twice (`lua/attempts.lua`).
//!
//! An attempt has a *place*, which names a key on the server, and a number. The server stores the
//! number with the result, and answers a repetition from there. No other attempt has the place
//! before this one is answered. A client thus has as many keys as it has had attempts under way at
//! once.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use crate::{
    sync::{AtomicU64, Mutex, Ordering, lock},
    wire::{permit::Id, sync_spec::Attempt},
};

/// The attempts of a client.
pub(super) struct Attempts {
    /// The prefix of its places.
    client: String,
    lasts: u64,
    number: AtomicU64,
    places: Arc<Mutex<Places>>,
}

#[derive(Default)]
struct Places {
    free: Vec<Arc<str>>,
    made: u32,
}

/// An attempt that is not answered yet. No other attempt has its place.
pub(super) struct Ongoing {
    pub(super) attempt: Attempt,
    places: Arc<Mutex<Places>>,
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
            places: Arc::default(),
        }
    }

    pub(super) fn begin(&self) -> Ongoing {
        let place = {
            let mut places = lock(&self.places);
            places.free.pop().unwrap_or_else(|| {
                places.made += 1;
                format!("{}/{}", self.client, places.made).into()
            })
        };
        Ongoing {
            attempt: Attempt {
                place,
                number: self.number.fetch_add(1, Ordering::Relaxed) + 1,
                lasts: self.lasts,
            },
            places: self.places.clone(),
        }
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        lock(&self.places).free.push(self.attempt.place.clone());
    }
}

/// A day, in milliseconds.
const LONGEST: u64 = 24 * 60 * 60 * 1_000;

/// An id that no other permit has.
pub(super) fn permit_id() -> Id {
    #[cfg(feature = "test-util")]
    if crate::owner::simulation::is_running() {
        return fastrand::u128(..).to_be_bytes();
    }
    Uuid::new_v4().into_bytes()
}

/// A random number: no other waiter sends it, and Redisson's waiters ignore it.
pub(super) fn mark() -> i64 {
    fastrand::i64(2..)
}
