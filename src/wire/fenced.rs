//! The lock that counts its acquisitions: Redisson's `getFencedLock`.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    AcquireArgs, AcquireOutcome, Kind, KindName, Lease, LockProtocol, LockSpec, Refusal, Reply,
    Request, decimal,
    reentrant::{CHANNEL, ReentrantProtocol},
    script::{Script, script},
    sealed::Known,
};
use crate::config::Config;

/// A lock whose guards have fencing tokens: see [`LockClient::fenced_lock`](crate::LockClient::fenced_lock).
#[derive(Debug, Clone, Copy)]
pub enum Fenced {}

impl Kind for Fenced {}

impl Known for Fenced {
    const PROTOCOL: &'static dyn LockProtocol = &FencedProtocol;
}

static ACQUIRE: Script = script!(keys = 2, "expiry", "fenced_acquire");

/// Makes every request but acquisitions, which are the reentrant lock's.
const PLAIN: ReentrantProtocol = ReentrantProtocol {
    kind: KindName::Reentrant,
};

#[derive(Debug)]
struct FencedProtocol;

/// The key of the counter of tokens.
fn token_counter(spec: &LockSpec) -> &Bytes {
    &spec.extra_keys[0]
}

impl LockProtocol for FencedProtocol {
    fn kind(&self) -> KindName {
        KindName::Fenced
    }

    fn spec(&'static self, name: Arc<str>, _config: &Config) -> LockSpec {
        LockSpec::with_keys(self, name, CHANNEL, &["redisson_lock_token"])
    }

    fn acquire(&self, spec: &LockSpec, args: &AcquireArgs<'_>) -> Request {
        Request {
            script: &ACQUIRE,
            parts: vec![
                spec.key.clone(),
                token_counter(spec).clone(),
                args.owner.clone(),
                args.lease.text.clone(),
                decimal(args.holds.into()),
            ],
        }
    }

    fn attempt(&self, reply: Reply) -> Result<AcquireOutcome, Refusal> {
        match PLAIN.attempt(reply)? {
            AcquireOutcome::Granted { token: None } => Err(Refusal::Failed {
                message: "the script granted a fenced lock without a token".into(),
            }),
            attempt => Ok(attempt),
        }
    }

    fn release(
        &self,
        spec: &LockSpec,
        owner: &Bytes,
        lease: Option<&Lease>,
        holds: u32,
    ) -> Request {
        PLAIN.release(spec, owner, lease, holds)
    }

    fn keep(&self, spec: &LockSpec, owner: &Bytes, lease: &Lease) -> Option<Request> {
        PLAIN.keep(spec, owner, lease)
    }

    fn renew(&self, spec: &LockSpec, owner: &Bytes, lease: Option<&Lease>) -> Request {
        PLAIN.renew(spec, owner, lease)
    }

    fn force_release(&self, spec: &LockSpec) -> Request {
        PLAIN.force_release(spec)
    }

    fn inspect(&self, spec: &LockSpec, owner: &Bytes) -> Request {
        PLAIN.inspect(spec, owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::reply::Detail;

    #[test]
    fn a_grant_without_a_token_is_refused() {
        let granted = |detail| Reply { status: 0, detail };
        let with_token = FencedProtocol.attempt(granted(Detail::Number(7))).unwrap();
        assert!(matches!(
            with_token,
            AcquireOutcome::Granted { token: Some(7) }
        ));
        let refused = FencedProtocol.attempt(granted(Detail::Nothing));
        assert!(matches!(refused, Err(Refusal::Failed { .. })));
    }
}
