//! `WAIT` and `WAITAOF`.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    durability::Acknowledged,
    redis::{frame, script_conn::LiveConn},
    wire::decimal,
};

/// The way to wait for replicas.
#[derive(Debug, Clone, Copy)]
pub(in crate::redis) struct Wait {
    pub(in crate::redis) longest: Duration,
    /// Until the write is on the replicas' disks and on the master's.
    pub(in crate::redis) for_disk: bool,
}

impl Wait {
    /// Waits once on `conn`, right after a script's answer there.
    pub(in crate::redis) async fn on(
        self,
        conn: &LiveConn,
        wanted: u32,
    ) -> Result<Option<Acknowledged>, Arc<str>> {
        if wanted == 0 {
            return Ok(None);
        }
        let (name, args) = self.command(wanted, self.longest);
        let waited = conn.send(name, args).await?;
        let by = match frame::error(&waited) {
            Some(message) if !is_lasting(&message) => Some(0),
            _ => frame::acknowledgements(&waited),
        };
        Ok(by.map(|by| Acknowledged { by, wanted }))
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

/// Whether the server refused `WAIT` because it lacks the command, or the user lacks the right. Any other error means that
/// no replica has acknowledged; the server may have become a replica.
pub(super) fn is_lasting(message: &str) -> bool {
    let lasting = ["NOPERM", "unknown command", "appendonly is disabled"];
    lasting.iter().any(|lasting| message.contains(lasting))
}
