//! The lock with a queue: Redisson's `getFairLock`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use super::{
    AcquireArgs, Kind, KindName, Lease, LockProtocol, LockSpec, Queued, Request, decimal, holders,
    lease_text, millis,
    reentrant::{CHANNEL, ReentrantProtocol},
    script::{Script, script},
    sealed::Known,
};
use crate::config::Config;

/// A lock that is had in the order of asking: see [`LockClient::fair_lock`](crate::LockClient::fair_lock).
#[derive(Debug, Clone, Copy)]
pub enum Fair {}

impl Kind for Fair {}

impl Known for Fair {
    const WIRE: &'static dyn LockProtocol = &FairProtocol {
        most_holds: u32::MAX,
    };
}

impl Queued for Fair {}

static ACQUIRE: Script = script!(keys = 3, "expiry", "clock", "fair_acquire");
static RELEASE: Script = script!(keys = 3, "shorten", "fair_release");
static ABANDON: Script = script!(keys = 2, "fair_abandon");
static FORCE_RELEASE: Script = script!(keys = 2, "fair_force_release");

/// Renewals and queries are the reentrant lock's.
const PLAIN: ReentrantProtocol = ReentrantProtocol {
    most_holds: u32::MAX,
    announced: true,
};

/// How long a waiter of this crate keeps its place when nothing is heard of it: it refreshes it at every poll floor, and
/// may miss two.
pub(crate) fn place_lasts(config: &Config) -> Duration {
    config.poll_floor * 3
}

#[derive(Debug)]
pub(super) struct FairProtocol {
    pub(super) most_holds: u32,
}

/// What stands beside a fair lock's key in its [`LockSpec`].
struct Beside<'a> {
    queue: &'a Bytes,
    places: &'a Bytes,
    /// How long a place of ours lasts, and how long one of Redisson's.
    place: &'a Bytes,
    patience: &'a Bytes,
}

impl<'a> Beside<'a> {
    fn of(place: &'a LockSpec) -> Self {
        let [queue, places, ours, theirs] = &place.beside[..] else {
            unreachable!("made by FairWire::place");
        };
        Self {
            queue,
            places,
            place: ours,
            patience: theirs,
        }
    }
}

impl LockProtocol for FairProtocol {
    fn kind(&self) -> KindName {
        match self.most_holds {
            1 => KindName::NonReentrantFair,
            _ => KindName::Fair,
        }
    }

    fn place(&'static self, name: Arc<str>, config: &Config) -> LockSpec {
        let keys = ["redisson_lock_queue", "redisson_lock_timeout"];
        let mut place = LockSpec::with_keys(self, name, CHANNEL, &keys);
        let times = [place_lasts(config), config.fair_lock_wait];
        place.beside.extend(times.map(millis));
        place
    }

    fn most_holds(&self) -> u32 {
        self.most_holds
    }

    fn acquire(&self, place: &LockSpec, claim: &AcquireArgs<'_>) -> Request {
        let beside = Beside::of(place);
        let (waited, nudge) = match claim.wait {
            Some(wait) => (millis(wait.since_last), wait.nudge),
            None => (Bytes::from_static(b"-1"), false),
        };
        Request {
            script: &ACQUIRE,
            parts: vec![
                place.key.clone(),
                beside.queue.clone(),
                beside.places.clone(),
                claim.owner.clone(),
                claim.lease.text.clone(),
                decimal(claim.holds.into()),
                waited,
                beside.place.clone(),
                beside.patience.clone(),
                place.channel.clone(),
                decimal(nudge.into()),
            ],
        }
    }

    fn listens_at(&self, place: &Arc<LockSpec>, owner: &Bytes) -> Arc<LockSpec> {
        let channel = [&place.channel[..], b":", &owner[..]].concat().into();
        Arc::new(LockSpec {
            channel,
            // All of them are one owner.
            shared: true,
            ..LockSpec::clone(place)
        })
    }

    fn abandon(&self) -> Option<fn(&LockSpec, &Bytes) -> Request> {
        Some(abandon)
    }

    fn release(
        &self,
        place: &LockSpec,
        owner: &Bytes,
        lease: Option<&Lease>,
        holds: u32,
    ) -> Request {
        let beside = Beside::of(place);
        Request {
            script: &RELEASE,
            parts: vec![
                place.key.clone(),
                beside.queue.clone(),
                beside.places.clone(),
                owner.clone(),
                decimal(holds.into()),
                lease_text(lease),
                beside.place.clone(),
                place.channel.clone(),
            ],
        }
    }

    fn renew(&self, place: &LockSpec, owner: &Bytes, lease: Option<&Lease>) -> Request {
        PLAIN.renew(place, owner, lease)
    }

    fn force_release(&self, place: &LockSpec) -> Request {
        Request {
            script: &FORCE_RELEASE,
            parts: vec![
                place.key.clone(),
                Beside::of(place).queue.clone(),
                place.channel.clone(),
            ],
        }
    }

    fn waiters(&self, place: &LockSpec) -> Option<Request> {
        let beside = Beside::of(place);
        Some(holders::in_queue(beside.queue, beside.places))
    }

    fn inspect(&self, place: &LockSpec, owner: &Bytes) -> Request {
        PLAIN.inspect(place, owner)
    }
}

fn abandon(place: &LockSpec, owner: &Bytes) -> Request {
    let beside = Beside::of(place);
    Request {
        script: &ABANDON,
        parts: vec![
            beside.queue.clone(),
            beside.places.clone(),
            owner.clone(),
            place.channel.clone(),
        ],
    }
}
