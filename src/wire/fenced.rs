//! The lock that counts its acquisitions: Redisson's `getFencedLock`.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Attempt, Claim, Kind, KindName, Lease, Place, Refusal, Reply, Request, Wire, decimal,
    reentrant::{CHANNEL, ReentrantWire},
    script::{Script, script},
    sealed::Known,
};
use crate::config::Config;

/// A lock whose guards have fencing tokens: see [`LockClient::fenced_lock`](crate::LockClient::fenced_lock).
#[derive(Debug, Clone, Copy)]
pub enum Fenced {}

impl Kind for Fenced {}

impl Known for Fenced {
    const WIRE: &'static dyn Wire = &FencedWire;
}

static ACQUIRE: Script = script!(keys = 2, "expiry", "fenced_acquire");

/// All that does not acquire is the reentrant lock's.
const PLAIN: ReentrantWire = ReentrantWire {
    most_holds: u32::MAX,
    announced: true,
};

#[derive(Debug)]
struct FencedWire;

impl Wire for FencedWire {
    fn kind(&self) -> KindName {
        KindName::Fenced
    }

    fn place(&'static self, name: Arc<str>, _config: &Config) -> Place {
        Place::with_keys(self, name, CHANNEL, &["redisson_lock_token"])
    }

    fn acquire(&self, place: &Place, claim: &Claim<'_>) -> Request {
        Request {
            script: &ACQUIRE,
            parts: vec![
                place.key.clone(),
                place.beside[0].clone(),
                claim.owner.clone(),
                claim.lease.text.clone(),
                decimal(claim.holds.into()),
                decimal(claim.fresh.into()),
            ],
        }
    }

    fn attempt(&self, reply: Reply) -> Result<Attempt, Refusal> {
        match PLAIN.attempt(reply)? {
            Attempt::Granted { token: None } => Err(Refusal::Failed {
                message: "the script granted a fenced lock without a token".into(),
            }),
            attempt => Ok(attempt),
        }
    }

    fn release(&self, place: &Place, owner: &Bytes, lease: Option<&Lease>, holds: u32) -> Request {
        PLAIN.release(place, owner, lease, holds)
    }

    fn renew(&self, place: &Place, owner: &Bytes, lease: Option<&Lease>) -> Request {
        PLAIN.renew(place, owner, lease)
    }

    fn force_release(&self, place: &Place) -> Request {
        PLAIN.force_release(place)
    }

    fn inspect(&self, place: &Place, owner: &Bytes) -> Request {
        PLAIN.inspect(place, owner)
    }
}
