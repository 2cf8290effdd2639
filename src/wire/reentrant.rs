//! The plain reentrant lock: Redisson's `getLock`.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    Attempt, Inspection, Kind, Lease, Place, Refusal, Reply, Request, Wire, decimal, lease_text,
    remaining,
    script::{Detail, Outcome, Script, script},
    sealed::Sealed,
};

/// The plain reentrant lock, Redisson's `getLock(name)`: see
/// [`LockClient::reentrant_lock`](crate::LockClient::reentrant_lock).
#[derive(Debug, Clone, Copy)]
pub enum Reentrant {}

impl Kind for Reentrant {}

impl Sealed for Reentrant {
    const WIRE: &'static dyn Wire = &ReentrantWire;
}

/// Two underscores before `channel`: Redisson's, and kept by it for the sake of older clients.
const CHANNEL: &str = "redisson_lock__channel";

static ACQUIRE: Script = script!("reentrant_acquire", keys = 1);
static RELEASE: Script = script!("reentrant_release", keys = 1);
static RENEW: Script = script!("reentrant_renew", keys = 1);
static FORCE_RELEASE: Script = script!("reentrant_force_release", keys = 1);
static INSPECT: Script = script!("reentrant_inspect", keys = 1);

#[derive(Debug)]
struct ReentrantWire;

impl Wire for ReentrantWire {
    fn place(&self, name: Arc<str>) -> Place {
        Place::new(name, CHANNEL)
    }

    fn acquire(&self, place: &Place, owner: &Bytes, lease: &Lease, holds: u32) -> Request {
        Request {
            script: &ACQUIRE,
            parts: vec![
                place.key.clone(),
                owner.clone(),
                lease.text.clone(),
                decimal(holds.into()),
            ],
        }
    }

    fn attempt(&self, reply: Reply) -> Result<Attempt, Refusal> {
        Ok(match reply.outcome()? {
            Outcome::Done(_) => Attempt::Granted,
            Outcome::Busy { remaining: millis } => Attempt::Busy {
                remaining: remaining(millis),
            },
            Outcome::Absent => Attempt::Gone,
        })
    }

    fn release(&self, place: &Place, owner: &Bytes, lease: Option<&Lease>, holds: u32) -> Request {
        Request {
            script: &RELEASE,
            parts: vec![
                place.key.clone(),
                owner.clone(),
                decimal(holds.into()),
                lease_text(lease),
                place.channel.clone(),
            ],
        }
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

    fn inspect(&self, place: &Place, owner: &Bytes) -> Request {
        Request {
            script: &INSPECT,
            parts: vec![place.key.clone(), owner.clone()],
        }
    }

    fn inspection(&self, reply: Reply) -> Result<Inspection, Refusal> {
        match reply.outcome()? {
            Outcome::Done(Detail::Numbers(numbers)) if numbers.len() == 2 => Ok(Inspection {
                locked: numbers[0] != -2,
                remaining: remaining(numbers[0]),
                holds: u32::try_from(numbers[1]).unwrap_or(0),
            }),
            other => Err(Refusal::Failed {
                message: format!("an inspection answered {other:?}"),
            }),
        }
    }
}
