//! A lock that is one string key, `SET key value NX PX lease`: no lock of Redisson's, but what many others agree on.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Claim, Count, Kind, KindName, Lease, Place, Request, Wire, holders, lease_text,
    script::{Script, script},
    sealed::Known,
};
use crate::config::Config;

/// A lock that services without Redisson can share: see [`LockClient::simple_lock`](crate::LockClient::simple_lock).
#[derive(Debug, Clone, Copy)]
pub enum Simple {}

impl Kind for Simple {}

impl Known for Simple {
    const WIRE: &'static dyn Wire = &SimpleWire;
}

static ACQUIRE: Script = script!(keys = 1, "expiry", "simple_acquire");
static RELEASE: Script = script!(keys = 1, "simple_release");
static RENEW: Script = script!(keys = 1, "expiry", "simple_renew");
static FORCE_RELEASE: Script = script!(keys = 1, "simple_force_release");
static INSPECT: Script = script!(keys = 1, "simple_inspect");

#[derive(Debug)]
struct SimpleWire;

impl Wire for SimpleWire {
    fn kind(&self) -> KindName {
        KindName::Simple
    }

    fn place(&'static self, name: Arc<str>, _config: &Config) -> Place {
        Place {
            count: Count::Simple,
            announced: false,
            ..Place::new(self, name, "simple_lock__channel")
        }
    }

    fn most_holds(&self) -> u32 {
        1
    }

    fn acquire(&self, place: &Place, claim: &Claim<'_>) -> Request {
        Request {
            script: &ACQUIRE,
            parts: vec![
                place.key.clone(),
                claim.owner.clone(),
                claim.lease.text.clone(),
            ],
        }
    }

    fn release(
        &self,
        place: &Place,
        owner: &Bytes,
        _lease: Option<&Lease>,
        _holds: u32,
    ) -> Request {
        Request {
            script: &RELEASE,
            parts: vec![place.key.clone(), owner.clone(), place.channel.clone()],
        }
    }

    fn is_passed_on(&self) -> bool {
        true
    }

    fn renew(&self, place: &Place, owner: &Bytes, lease: Option<&Lease>) -> Request {
        Request {
            script: &RENEW,
            parts: vec![place.key.clone(), owner.clone(), lease_text(lease)],
        }
    }

    fn force_release(&self, place: &Place) -> Request {
        Request {
            script: &FORCE_RELEASE,
            parts: vec![place.key.clone(), place.channel.clone()],
        }
    }

    fn holders(&self, place: &Place) -> Request {
        holders::of_string(place)
    }

    fn inspect(&self, place: &Place, owner: &Bytes) -> Request {
        Request {
            script: &INSPECT,
            parts: vec![place.key.clone(), owner.clone()],
        }
    }
}
