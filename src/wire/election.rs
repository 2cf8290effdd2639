//! The leader of an election: a further field in the hash of a fenced lock, which Redisson does not read.

use bytes::Bytes;

use super::{
    LockSpec, Refusal, Reply, Request,
    reply::{Detail, Outcome},
    script::{Script, script},
};

static ANNOUNCE: Script = script!(keys = 1, "election_announce");
static LEADER: Script = script!(keys = 1, "election_leader");

/// Write `owner` as the leader, under the name `identity`.
pub(crate) fn announce(spec: &LockSpec, owner: &Bytes, token: i64, identity: &str) -> Request {
    Request {
        script: &ANNOUNCE,
        parts: vec![
            spec.key.clone(),
            owner.clone(),
            token.to_string().into(),
            Bytes::copy_from_slice(identity.as_bytes()),
        ],
    }
}

/// Ask for the leader.
pub(crate) fn leader(spec: &LockSpec) -> Request {
    Request {
        script: &LEADER,
        parts: vec![spec.key.clone(), Bytes::new()],
    }
}

/// Reads the answer to [`leader`]: a token and an identity.
pub(crate) fn led_by(reply: Reply) -> Result<Option<(i64, String)>, Refusal> {
    match reply.outcome()? {
        Outcome::Done(Detail::Text(text)) => {
            let (token, identity) = text.split_once(' ').unwrap_or_default();
            let token = token.parse().ok();
            Ok(token.map(|token| (token, identity.to_owned())))
        }
        _ => Ok(None),
    }
}
