//! The side of a read-write lock that one owner holds alone: Redisson's `getReadWriteLock(name).writeLock()`.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    AcquireArgs, HoldMode, Intend, Kind, KindName, Lease, LockProtocol, LockSpec, Request, decimal,
    holders, keep_parts, lease_text, millis,
    read::{intent, marker_base, read_write_spec, rest},
    script::{Script, script},
    sealed::Known,
};
use crate::config::Config;

/// The write side of a [`ReadWriteLock`](crate::ReadWriteLock).
#[derive(Debug, Clone, Copy)]
pub enum Write {}

impl Kind for Write {}

impl Known for Write {
    const PROTOCOL: &'static dyn LockProtocol = &WriteProtocol;
}

static ACQUIRE: Script = script!(keys = 2, "expiry", "write_acquire");
static RELEASE: Script = script!(keys = 1, "read_write", "shorten", "write_release");
static KEEP: Script = script!(keys = 1, "write_keep");
static INTEND: Script = script!(keys = 3, "write_intend");
static RENEW: Script = script!(keys = 1, "expiry", "write_renew");
static FORCE_RELEASE: Script = script!(keys = 1, "write_force_release");
static INSPECT: Script = script!(keys = 1, "write_inspect");

/// Whether the owner may have set an intent, which its grant deletes: only a refused writer sets one.
fn may_intend(args: &AcquireArgs<'_>) -> bool {
    args.wait.is_some_and(|wait| !wait.since_last.is_zero())
}

#[derive(Debug)]
struct WriteProtocol;

impl LockProtocol for WriteProtocol {
    fn kind(&self) -> KindName {
        KindName::Write
    }

    fn mode(&self) -> HoldMode {
        HoldMode::Write
    }

    fn spec(&'static self, name: Arc<str>, _config: &Config) -> LockSpec {
        read_write_spec(self, name, self.mode())
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
                decimal(may_intend(args).into()),
            ],
        }
    }

    fn intend(&self) -> Option<Intend> {
        Some(|spec, length| Request {
            script: &INTEND,
            parts: vec![
                spec.key.clone(),
                intent(spec).clone(),
                rest(spec).clone(),
                millis(length),
            ],
        })
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

    fn keep(&self, spec: &LockSpec, owner: &Bytes, lease: &Lease) -> Option<Request> {
        Some(Request {
            script: &KEEP,
            parts: keep_parts(spec, owner, lease),
        })
    }

    fn renew(&self, spec: &LockSpec, owner: &Bytes, lease: Option<&Lease>) -> Request {
        Request {
            script: &RENEW,
            parts: vec![spec.key.clone(), owner.clone(), lease_text(lease)],
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
