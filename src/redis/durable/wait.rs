//! `WAIT` and `WAITAOF`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    durability::{Acknowledged, Durability},
    redis::{frame, script_connection::ScriptSession},
    server_text,
    transport::Frame,
    wire::{Refusal, decimal},
};

/// The way to wait for replicas.
#[derive(Debug, Clone, Copy)]
pub(in crate::redis) struct Wait {
    pub(in crate::redis) longest: Duration,
    /// Until the write is on the replicas' disks and on the master's.
    pub(in crate::redis) for_disk: bool,
}

impl Wait {
    /// Waits once on `session`, right after a script's answer there.
    pub(in crate::redis) async fn on(
        self,
        session: &ScriptSession,
        durability: Durability,
        listed: usize,
    ) -> Result<Option<Acknowledged>, Arc<str>> {
        let wanted = durability.wanted(None, listed);
        if wanted == 0 {
            return Ok(None);
        }
        let (name, args) = self.command(wanted, self.longest);
        let waited = session.send(name, args).await?;
        let by = match Waited::read(&waited) {
            Waited::By(by) => by,
            Waited::NotNow => 0,
            Waited::Refused(words) => {
                return Ok(Acknowledged::without_wait(durability, wanted, &words));
            }
        };
        Ok(Some(Acknowledged {
            by,
            wanted,
            connected: None,
            refused: None,
        }))
    }

    pub(super) fn command(self, wanted: u32, longest: Duration) -> (&'static str, Vec<Bytes>) {
        // Zero would wait without a limit.
        let millis = longest.as_micros().div_ceil(1_000).max(1) as u64;
        let wanted = u64::from(wanted);
        let (name, args): (_, &[u64]) = match self.for_disk {
            true => ("WAITAOF", &[1, wanted, millis]),
            false => ("WAIT", &[wanted, millis]),
        };
        (name, args.iter().map(|arg| decimal(*arg)).collect())
    }
}

/// The answer to `WAIT` or `WAITAOF`.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Waited {
    /// So many replicas have all earlier writes.
    By(u32),
    /// The server is in a passing state, in which no replica acknowledges. It may have become a replica.
    NotNow,
    /// The server does not wait for replicas, with its words: the command or the right is missing.
    Refused(Arc<str>),
}

impl Waited {
    pub(super) fn read(answer: &Frame) -> Self {
        let Some(message) = frame::error(answer) else {
            let words = || "the answer is not a number".into();
            let by = frame::acknowledgements(answer);
            return by.map_or_else(|| Self::Refused(words()), Self::By);
        };
        // The server has become a replica, or the wait was cut short.
        let has_changed = message.contains("replica instances") || message.starts_with("UNBLOCKED");
        match Refusal::from_message(message) {
            Refusal::Transient { .. } => Self::NotNow,
            _ if has_changed => Self::NotNow,
            refusal => Self::Refused(server_text::shown(refusal.message()).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_name_no_passing_state_are_lasting() {
        let read = |words: &str| Waited::read(&Frame::Error(words.into()));
        for passing in [
            "LOADING Redis is loading the dataset in memory",
            "MASTERDOWN Link with MASTER is down",
            "BUSY Redis is busy running a script.",
            "ERR WAIT cannot be used with replica instances. Please also note that ..",
            "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
            "UNBLOCKED client unblocked via CLIENT UNBLOCK",
            "ERR WAITAOF cannot be used with replica instances. Please also note that ..",
        ] {
            assert_eq!(read(passing), Waited::NotNow, "{passing}");
        }
        for lasting in [
            "ERR unknown command 'WAIT'",
            "ERR unsupported command 'wait'",
            "ERR command WAIT is not allowed",
            "NOPERM this user has no permissions to run the 'wait' command",
            "ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.",
            "no code at all",
        ] {
            assert_eq!(read(lasting), Waited::Refused(lasting.into()), "{lasting}");
        }
        assert_eq!(Waited::read(&Frame::Number(2)), Waited::By(2));
        for odd in [Frame::Null, Frame::Text("OK".into()), Frame::Number(-1)] {
            assert!(matches!(Waited::read(&odd), Waited::Refused(_)), "{odd:?}");
        }
    }
}
