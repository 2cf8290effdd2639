//! The plain reentrant lock: Redisson's `getLock`. Fair, fenced, spin and non-reentrant locks use these requests as well.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    AcquireArgs, Kind, KindName, Lease, LockProtocol, LockSpec, Request, decimal, keep_parts,
    lease_text,
    script::{Script, script},
    sealed::Known,
};
use crate::config::Config;

/// The plain reentrant lock, Redisson's `getLock(name)`: see
/// [`LockClient::reentrant_lock`](crate::LockClient::reentrant_lock).
#[derive(Debug, Clone, Copy)]
pub enum Reentrant {}

impl Kind for Reentrant {}

impl Known for Reentrant {
    const PROTOCOL: &'static dyn LockProtocol = &ReentrantProtocol {
        kind: KindName::Reentrant,
    };
}

/// Redisson's channel prefix, with two underscores.
pub(super) const CHANNEL: &str = "redisson_lock__channel";

static ACQUIRE: Script = script!(keys = 1, "expiry", "reentrant_acquire");
static RELEASE: Script = script!(keys = 1, "shorten", "reentrant_release");
static KEEP: Script = script!(keys = 1, "reentrant_keep");
static RENEW: Script = script!(keys = 1, "expiry", "reentrant_renew");
static FORCE_RELEASE: Script = script!(keys = 1, "reentrant_force_release");
static SPIN_RELEASE: Script = script!(keys = 1, "unannounced", "shorten", "reentrant_release");
static SPIN_KEEP: Script = script!(keys = 1, "unannounced", "reentrant_keep");
static SPIN_FORCE_RELEASE: Script = script!(keys = 1, "unannounced", "reentrant_force_release");
static INSPECT: Script = script!(keys = 1, "reentrant_inspect");

/// Reentrant, non-reentrant and spin locks.
#[derive(Debug)]
pub(super) struct ReentrantProtocol {
    pub(super) kind: KindName,
}

impl ReentrantProtocol {
    fn unless_spin(&self, script: &'static Script, of_spin: &'static Script) -> &'static Script {
        match self.kind {
            KindName::Spin => of_spin,
            _ => script,
        }
    }
}

impl LockProtocol for ReentrantProtocol {
    fn kind(&self) -> KindName {
        self.kind
    }

    fn spec(&'static self, name: Arc<str>, _config: &Config) -> LockSpec {
        LockSpec {
            announced: self.kind != KindName::Spin,
            ..LockSpec::new(self, name, CHANNEL)
        }
    }

    fn most_holds(&self) -> u32 {
        match self.kind {
            KindName::NonReentrant => 1,
            _ => u32::MAX,
        }
    }

    fn acquire(&self, spec: &LockSpec, args: &AcquireArgs<'_>) -> Request {
        Request {
            script: &ACQUIRE,
            parts: vec![
                spec.key.clone(),
                args.owner.clone(),
                args.lease.text.clone(),
                decimal(args.holds.into()),
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
            script: self.unless_spin(&RELEASE, &SPIN_RELEASE),
            parts: vec![
                spec.key.clone(),
                owner.clone(),
                decimal(holds.into()),
                lease_text(lease),
                spec.channel.clone(),
            ],
        }
    }

    fn keep(&self, spec: &LockSpec, owner: &Bytes, lease: &Lease) -> Option<Request> {
        Some(Request {
            script: self.unless_spin(&KEEP, &SPIN_KEEP),
            parts: keep_parts(spec, owner, lease),
        })
    }

    fn needs_messages(&self) -> bool {
        self.kind != KindName::Spin
    }

    fn hands_off_locally(&self) -> bool {
        true
    }

    fn renew(&self, spec: &LockSpec, owner: &Bytes, lease: Option<&Lease>) -> Request {
        Request {
            script: &RENEW,
            parts: vec![spec.key.clone(), owner.clone(), lease_text(lease)],
        }
    }

    fn force_release(&self, spec: &LockSpec) -> Request {
        Request {
            script: self.unless_spin(&FORCE_RELEASE, &SPIN_FORCE_RELEASE),
            parts: vec![spec.key.clone(), spec.channel.clone()],
        }
    }

    fn inspect(&self, spec: &LockSpec, owner: &Bytes) -> Request {
        Request {
            script: &INSPECT,
            parts: vec![spec.key.clone(), owner.clone()],
        }
    }
}
