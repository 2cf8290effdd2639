//! The lock with a queue: Redisson's `getFairLock`.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    AcquireArgs, Kind, KindName, Lease, LockProtocol, LockSpec, Queued, Request, decimal, holders,
    keep_parts, lease_text, millis,
    reentrant::{CHANNEL, ReentrantProtocol},
    script::{Script, script},
    sealed::Known,
};
use crate::config::Config;

/// A lock that is granted in the order of the requests: see [`LockClient::fair_lock`](crate::LockClient::fair_lock).
#[derive(Debug, Clone, Copy)]
pub enum Fair {}

impl Kind for Fair {}

impl Known for Fair {
    const PROTOCOL: &'static dyn LockProtocol = &FairProtocol {
        kind: KindName::Fair,
    };
}

impl Queued for Fair {}

static ACQUIRE: Script = script!(keys = 3, "expiry", "clock", "owners", "fair_acquire");
static RELEASE: Script = script!(keys = 3, "shorten", "owners", "fair_release");
static KEEP: Script = script!(keys = 2, "fair_keep");
static ABANDON: Script = script!(keys = 2, "fair_abandon");
static FORCE_RELEASE: Script = script!(keys = 2, "fair_force_release");

/// Makes renewals and queries, which are the reentrant lock's.
const PLAIN: ReentrantProtocol = ReentrantProtocol {
    kind: KindName::Reentrant,
};

/// Fair and non-reentrant fair locks.
#[derive(Debug)]
pub(super) struct FairProtocol {
    pub(super) kind: KindName,
}

/// The keys and times of a fair lock in its [`LockSpec`].
struct ExtraKeys<'a> {
    queue: &'a Bytes,
    places: &'a Bytes,
    /// How long a waiter of this crate keeps its place after its last attempt.
    place_lasts: &'a Bytes,
    /// How long a Java waiter keeps its place.
    java_place_lasts: &'a Bytes,
}

impl<'a> ExtraKeys<'a> {
    fn of(spec: &'a LockSpec) -> Self {
        let [queue, places, ours, theirs] = &spec.extra_keys[..] else {
            unreachable!("made by FairProtocol::spec");
        };
        Self {
            queue,
            places,
            place_lasts: ours,
            java_place_lasts: theirs,
        }
    }
}

impl LockProtocol for FairProtocol {
    fn kind(&self) -> KindName {
        self.kind
    }

    fn spec(&'static self, name: Arc<str>, config: &Config) -> LockSpec {
        let keys = ["redisson_lock_queue", "redisson_lock_timeout"];
        let mut spec = LockSpec::with_keys(self, name, CHANNEL, &keys);
        let times = [config.fair_entry_lasts(), config.fair_lock_wait];
        spec.extra_keys.extend(times.map(millis));
        spec
    }

    fn most_holds(&self) -> u32 {
        match self.kind {
            KindName::NonReentrantFair => 1,
            _ => u32::MAX,
        }
    }

    fn acquire(&self, spec: &LockSpec, args: &AcquireArgs<'_>) -> Request {
        let extra_keys = ExtraKeys::of(spec);
        let (waited, notify_head) = match args.wait {
            Some(wait) => (millis(wait.since_last), wait.notify_head),
            None => (Bytes::from_static(b"-1"), false),
        };
        Request {
            script: &ACQUIRE,
            parts: vec![
                spec.key.clone(),
                extra_keys.queue.clone(),
                extra_keys.places.clone(),
                args.owner.clone(),
                args.lease.text.clone(),
                decimal(args.holds.into()),
                waited,
                extra_keys.place_lasts.clone(),
                extra_keys.java_place_lasts.clone(),
                spec.channel.clone(),
                decimal(notify_head.into()),
            ],
        }
    }

    fn listens_at(&self, spec: &Arc<LockSpec>, owner: &Bytes) -> Arc<LockSpec> {
        let channel = [&spec.channel[..], b":", &owner[..]].concat().into();
        Arc::new(LockSpec {
            channel,
            // Its waiters are tasks of one owner.
            grant_wakes_next: true,
            ..LockSpec::clone(spec)
        })
    }

    fn abandon(&self) -> Option<fn(&LockSpec, &Bytes) -> Request> {
        Some(abandon)
    }

    fn release(
        &self,
        spec: &LockSpec,
        owner: &Bytes,
        lease: Option<&Lease>,
        holds: u32,
    ) -> Request {
        let extra_keys = ExtraKeys::of(spec);
        Request {
            script: &RELEASE,
            parts: vec![
                spec.key.clone(),
                extra_keys.queue.clone(),
                extra_keys.places.clone(),
                owner.clone(),
                decimal(holds.into()),
                lease_text(lease),
                extra_keys.place_lasts.clone(),
                spec.channel.clone(),
            ],
        }
    }

    fn keep(&self, spec: &LockSpec, owner: &Bytes, lease: &Lease) -> Option<Request> {
        let mut parts = keep_parts(spec, owner, lease);
        parts.insert(1, ExtraKeys::of(spec).queue.clone());
        Some(Request {
            script: &KEEP,
            parts,
        })
    }

    fn renew(&self, spec: &LockSpec, owner: &Bytes, lease: Option<&Lease>) -> Request {
        PLAIN.renew(spec, owner, lease)
    }

    fn force_release(&self, spec: &LockSpec) -> Request {
        Request {
            script: &FORCE_RELEASE,
            parts: vec![
                spec.key.clone(),
                ExtraKeys::of(spec).queue.clone(),
                spec.channel.clone(),
            ],
        }
    }

    fn waiters(&self, spec: &LockSpec) -> Option<Request> {
        let extra_keys = ExtraKeys::of(spec);
        Some(holders::in_queue(extra_keys.queue, extra_keys.places))
    }

    fn inspect(&self, spec: &LockSpec, owner: &Bytes) -> Request {
        PLAIN.inspect(spec, owner)
    }
}

fn abandon(spec: &LockSpec, owner: &Bytes) -> Request {
    let extra_keys = ExtraKeys::of(spec);
    Request {
        script: &ABANDON,
        parts: vec![
            extra_keys.queue.clone(),
            extra_keys.places.clone(),
            owner.clone(),
            spec.channel.clone(),
        ],
    }
}
