//! A lock that is one string key, `SET key value NX PX lease`: the form that many libraries but Redisson use.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    AcquireArgs, HoldMode, Kind, KindName, Lease, LockProtocol, LockSpec, Request, holders,
    keep_parts, lease_text,
    script::{Script, script},
    sealed::Known,
};
use crate::config::Config;

/// A lock that services without Redisson can share: see [`LockClient::simple_lock`](crate::LockClient::simple_lock).
#[derive(Debug, Clone, Copy)]
pub enum Simple {}

impl Kind for Simple {}

impl Known for Simple {
    const PROTOCOL: &'static dyn LockProtocol = &SimpleProtocol;
}

static ACQUIRE: Script = script!(keys = 1, "expiry", "simple_acquire");
static RELEASE: Script = script!(keys = 1, "simple_release");
static KEEP: Script = script!(keys = 1, "simple_keep");
static RENEW: Script = script!(keys = 1, "expiry", "simple_renew");
static FORCE_RELEASE: Script = script!(keys = 1, "simple_force_release");
static INSPECT: Script = script!(keys = 1, "simple_inspect");

#[derive(Debug)]
struct SimpleProtocol;

impl LockProtocol for SimpleProtocol {
    fn kind(&self) -> KindName {
        KindName::Simple
    }

    fn mode(&self) -> HoldMode {
        HoldMode::Simple
    }

    fn spec(&'static self, name: Arc<str>, _config: &Config) -> LockSpec {
        LockSpec {
            mode: self.mode(),
            announced: false,
            ..LockSpec::new(self, name, "simple_lock__channel")
        }
    }

    fn most_holds(&self) -> u32 {
        1
    }

    fn acquire(&self, spec: &LockSpec, args: &AcquireArgs<'_>) -> Request {
        Request {
            script: &ACQUIRE,
            parts: vec![
                spec.key.clone(),
                args.owner.clone(),
                args.lease.text.clone(),
            ],
        }
    }

    fn release(
        &self,
        spec: &LockSpec,
        owner: &Bytes,
        _lease: Option<&Lease>,
        _holds: u32,
    ) -> Request {
        Request {
            script: &RELEASE,
            parts: vec![spec.key.clone(), owner.clone(), spec.channel.clone()],
        }
    }

    fn keep(&self, spec: &LockSpec, owner: &Bytes, lease: &Lease) -> Option<Request> {
        Some(Request {
            script: &KEEP,
            parts: keep_parts(spec, owner, lease),
        })
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
            script: &FORCE_RELEASE,
            parts: vec![spec.key.clone(), spec.channel.clone()],
        }
    }

    fn holders(&self, spec: &LockSpec) -> Request {
        holders::of_string(spec)
    }

    fn inspect(&self, spec: &LockSpec, owner: &Bytes) -> Request {
        Request {
            script: &INSPECT,
            parts: vec![spec.key.clone(), owner.clone()],
        }
    }
}
