//! Numbers for what is sent, so that the server knows a repetition (`lua/attempts.lua`).

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{
    sync::{AtomicU64, Mutex, Ordering, lock},
    wire::{
        permit::Id,
        site::{Attempt, Site},
    },
};

/// The attempts of a client.
pub(super) struct Attempts {
    /// What its fields begin with.
    client: String,
    lasts: u64,
    number: AtomicU64,
    begun: Instant,
    fields: Arc<Mutex<Fields>>,
}

#[derive(Default)]
struct Fields {
    free: Vec<Bytes>,
    made: u32,
}

/// An attempt that is not answered yet. No other has its field.
pub(super) struct Ongoing {
    pub(super) attempt: Attempt,
    fields: Arc<Mutex<Fields>>,
}

impl Attempts {
    /// They are known for twice the time that an outage may take.
    pub(super) fn new(id: Uuid, outage_wait: Duration) -> Self {
        let lasts = u64::try_from(outage_wait.saturating_mul(2).as_millis());
        Self {
            // A client that takes the id of an earlier one counts anew.
            client: format!("{id}/{:x}", fastrand::u32(..)),
            lasts: lasts.unwrap_or(u64::MAX).clamp(1_000, LONGEST),
            number: AtomicU64::new(0),
            begun: Instant::now(),
            fields: Arc::default(),
        }
    }

    pub(super) fn begin(&self, site: &Site) -> Ongoing {
        let field = {
            let mut fields = lock(&self.fields);
            fields.free.pop().unwrap_or_else(|| {
                fields.made += 1;
                format!("{}/{}", self.client, fields.made).into()
            })
        };
        Ongoing {
            attempt: Attempt {
                field,
                number: self.number.fetch_add(1, Ordering::Relaxed) + 1,
                lasts: self.lasts,
                stays: self.is_to_stay(site),
            },
            fields: self.fields.clone(),
        }
    }
}

impl Attempts {
    /// Said often enough for the attempts of an outage to be known at its end.
    fn is_to_stay(&self, site: &Site) -> bool {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let said = site.said.load(Ordering::Relaxed);
        let is_due = said == 0 || now > said + self.lasts / 4;
        if is_due {
            site.said.store(now.max(1), Ordering::Relaxed);
        }
        is_due
    }
}

impl Drop for Ongoing {
    fn drop(&mut self) {
        lock(&self.fields)
            .free
            .push(std::mem::take(&mut self.attempt.field));
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

/// A number that no other waiter sends, and Redisson's own waiters take no notice of.
pub(super) fn mark() -> i64 {
    fastrand::i64(2..)
}
