//! Whether the user may announce releases: without that right, a lock could be acquired but not released.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    connection::{Frame, ServerConfig},
    script_conn::LiveConn,
};
use crate::{
    hash::HashSet,
    sync::{Mutex, lock},
    wire::script::Publishing,
};

/// Servers before 7 cannot report it.
const QUESTION: &str = "return redis.acl_check_cmd and not redis.acl_check_cmd(ARGV[1], ARGV[2], '0') and 'NOPERM' or 'OK'";

/// The client's knowledge of the user's right to publish: the kinds of channels on which it may.
#[derive(Clone)]
pub(super) struct Rights(Option<Arc<Mutex<HashSet<Bytes>>>>);

/// The kind of a channel: its name without that of the lock.
fn kind_of(channel: &Bytes) -> Bytes {
    let is_end = |byte: &u8| matches!(byte, b':' | b'{');
    let end = channel.iter().position(is_end);
    channel.slice(..end.unwrap_or(channel.len()))
}

impl Rights {
    /// The user `default` has all rights, or the server has no rules for it.
    pub(super) fn of(server: &ServerConfig) -> Self {
        let username = server.username.as_deref().unwrap_or("default");
        Self((username != "default").then(Arc::default))
    }

    /// Whether to [`ask`](Self::ask) before an acquisition: until the answer is yes once for each
    /// kind of channel. Patterns within a kind are taken to allow all locks that the user may acquire.
    pub(super) fn is_unknown(&self, channel: &Bytes) -> bool {
        let known = self.0.as_ref();
        known.is_some_and(|known| !lock(known).contains(&kind_of(channel)))
    }

    /// Whether the user may publish to `channel`. A server that cannot report it counts as permitting.
    pub(super) async fn ask(
        &self,
        conn: &LiveConn,
        publishing: Publishing,
        channel: Bytes,
    ) -> bool {
        let command = match publishing {
            Publishing::Classic => "PUBLISH",
            Publishing::Sharded => "SPUBLISH",
        };
        let words = [QUESTION, "0", command].map(|word| Bytes::from_static(word.as_bytes()));
        let kind = kind_of(&channel);
        let args = words.into_iter().chain([channel]).collect();
        match conn.send("EVAL", args).await {
            Ok(Frame::Text(answer)) if *answer == *b"NOPERM" => false,
            Ok(Frame::Text(_)) => {
                if let Some(known) = &self.0 {
                    lock(known).insert(kind);
                }
                true
            }
            _ => true,
        }
    }
}
