//! The side of a read-write lock that many owners may hold: Redisson's `getReadWriteLock(name).readLock()`.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    AcquireArgs, HoldMode, Kind, KindName, Lease, LockProtocol, LockSpec, Request, decimal,
    holders, lease_text,
    name::suffixable,
    script::{Script, script},
    sealed::Known,
};
use crate::config::Config;

/// The read side of a [`ReadWriteLock`](crate::ReadWriteLock).
#[derive(Debug, Clone, Copy)]
pub enum Read {}

impl Kind for Read {}

impl Known for Read {
    const PROTOCOL: &'static dyn LockProtocol = &ReadProtocol;
}

/// The largest number of read holds of one owner: every release and renewal reads the marker of each (P-RW6).
/// `lua/read_write.lua` has the same number.
const MOST_HOLDS: u32 = 1_000;

static ACQUIRE: Script = script!(keys = 2, "read_write", "expiry", "read_acquire");
static RELEASE: Script = script!(keys = 1, "read_write", "read_release");
static RENEW: Script = script!(keys = 1, "read_write", "expiry", "read_renew");
static FORCE_RELEASE: Script = script!(keys = 1, "read_force_release");
static INSPECT: Script = script!(keys = 1, "read_inspect");

/// The spec of a read-write lock. Its extra keys are the prefix of the readers' markers, a writer's intent, and the rest after
/// that. They share their bytes.
pub(super) fn read_write_spec(
    protocol: &'static dyn LockProtocol,
    name: Arc<str>,
    mode: HoldMode,
) -> LockSpec {
    let base = suffixable(&name);
    let rest = Bytes::from([&base, ":write_intent:rest"].concat());
    let intent = rest.slice(..rest.len() - ":rest".len());
    LockSpec {
        extra_keys: vec![rest.slice(..base.len()), intent, rest],
        grant_wakes_next: mode == HoldMode::Read,
        mode,
        ..LockSpec::new(protocol, name, "redisson_rwlock")
    }
}

/// The prefix of the markers' keys.
pub(super) fn marker_base(spec: &LockSpec) -> &Bytes {
    &spec.extra_keys[0]
}

/// The key of a writer's intent.
pub(super) fn intent(spec: &LockSpec) -> &Bytes {
    &spec.extra_keys[1]
}

/// The key of the rest after a writer's intent.
pub(super) fn rest(spec: &LockSpec) -> &Bytes {
    &spec.extra_keys[2]
}

#[derive(Debug)]
struct ReadProtocol;

impl LockProtocol for ReadProtocol {
    fn kind(&self) -> KindName {
        KindName::Read
    }

    fn mode(&self) -> HoldMode {
        HoldMode::Read
    }

    fn spec(&'static self, name: Arc<str>, _config: &Config) -> LockSpec {
        read_write_spec(self, name, self.mode())
    }

    fn most_holds(&self) -> u32 {
        MOST_HOLDS
    }

    fn acquire(&self, spec: &LockSpec, args: &AcquireArgs<'_>) -> Request {
        Request {
            script: &ACQUIRE,
            parts: vec![
                spec.key.clone(),
                intent(spec).clone(),
                args.owner.clone(),
                args.lease.text.clone(),
                decimal(args.holds.into()),
                decimal(args.writes.into()),
                decimal(args.relies.into()),
                spec.channel.clone(),
                marker_base(spec).clone(),
            ],
        }
    }

    fn release(
        &self,
        spec: &LockSpec,
        owner: &Bytes,
        lease: Option<&Lease>,
        holds: u32,
    ) -> Request {
        Request {
            script: &RELEASE,
            parts: vec![
                spec.key.clone(),
                owner.clone(),
                decimal(holds.into()),
                lease_text(lease),
                spec.channel.clone(),
                marker_base(spec).clone(),
            ],
        }
    }

    fn renew(&self, spec: &LockSpec, owner: &Bytes, lease: Option<&Lease>) -> Request {
        Request {
            script: &RENEW,
            parts: vec![
                spec.key.clone(),
                owner.clone(),
                lease_text(lease),
                marker_base(spec).clone(),
            ],
        }
    }

    fn force_release(&self, spec: &LockSpec) -> Request {
        Request {
            script: &FORCE_RELEASE,
            parts: vec![spec.key.clone(), spec.channel.clone()],
        }
    }

    fn holders(&self, spec: &LockSpec) -> Request {
        holders::of_hash(spec, Some(marker_base(spec)))
    }

    fn inspect(&self, spec: &LockSpec, owner: &Bytes) -> Request {
        Request {
            script: &INSPECT,
            parts: vec![spec.key.clone(), owner.clone()],
        }
    }
}
