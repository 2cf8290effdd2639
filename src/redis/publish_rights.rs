//! Whether scripts may announce releases: where they may not, a lock could be acquired but not released.

use std::sync::Arc;

use bytes::Bytes;

use super::{opener::ServerConfig, script_connection::ScriptSession};
use crate::{
    sync::{Mutex, lock},
    transport::Frame,
    wire::{Refusal, script::Publishing},
};

/// Asks inside a script, with the command and the channel as arguments: a proxy, a renamed command or the user's rights may treat the
/// command itself in another way. Servers before 7 can only publish. No client subscribes to the first channel. The second one is the
/// lock's own, for users without a right to the first: locks ignore the message, and a waiter of a semaphore asks once in vain.
pub const QUESTION: &str = "\
local command, channel = ARGV[1], ARGV[2]
if redis.acl_check_cmd then
  local known, may = pcall(redis.acl_check_cmd, command, channel, '0')
  if not known then
    return 'NO ' .. (type(may) == 'table' and may.err or tostring(may))
  end
  return may and 'OK' or 'NO NOPERM this user may not publish to the channel'
end
local answer = redis.pcall(command, channel .. ':', '2')
if type(answer) ~= 'number' then
  answer = redis.pcall(command, channel, '2')
end
return type(answer) == 'number' and 'OK' or 'NO ' .. (type(answer) == 'table' and answer.err or 'an odd answer')";

/// The client's knowledge of its right to publish: the kinds of channels on which it may. There are a handful of kinds, and each
/// acquisition looks for one.
#[derive(Clone)]
pub(super) struct PublishRights(Option<Arc<Mutex<Vec<Bytes>>>>);

/// Whether a byte ends the kind of a channel.
fn ends_kind(byte: &u8) -> bool {
    matches!(byte, b':' | b'{')
}

/// The kind of a channel: its name without that of the lock.
fn kind_of(channel: &Bytes) -> Bytes {
    let end = channel.iter().position(ends_kind);
    channel.slice(..end.unwrap_or(channel.len()))
}

fn is_of_kind(channel: &Bytes, kind: &Bytes) -> bool {
    let lock = channel.strip_prefix(&**kind);
    lock.is_some_and(|lock| lock.first().is_none_or(ends_kind))
}

impl PublishRights {
    pub(super) fn of(server: &ServerConfig) -> Self {
        let may_refuse = server.opener.may_refuse_messages();
        Self(may_refuse.then(Arc::default))
    }

    /// Whether to [`ask`](Self::ask) before an acquisition: until the answer is yes once for each
    /// kind of channel. Patterns within a kind are taken to allow all locks that the user may acquire.
    pub(super) fn is_unknown(&self, channel: &Bytes) -> bool {
        let known = self.0.as_ref();
        known.is_some_and(|known| !lock(known).iter().any(|kind| is_of_kind(channel, kind)))
    }

    /// The server's words if scripts may not publish to `channel`. A server that cannot say it now counts as permitting. The script
    /// has the `key` of the lock: a proxy finds the server by it.
    pub(super) async fn ask(
        &self,
        session: &ScriptSession,
        publishing: Publishing,
        key: Bytes,
        channel: Bytes,
    ) -> Option<String> {
        let command = match publishing {
            Publishing::Classic => "PUBLISH",
            Publishing::Sharded => "SPUBLISH",
        };
        let kind = kind_of(&channel);
        let args = vec![QUESTION.into(), "1".into(), key, command.into(), channel];
        let Ok(Frame::Text(answer)) = session.send("EVAL", args).await else {
            return None;
        };
        if *answer == *b"OK"
            && let Some(known) = &self.0
        {
            // Answers to questions that were asked together name the same kind.
            let mut known = lock(known);
            if !known.contains(&kind) {
                known.push(kind);
            }
        }
        let words = answer.strip_prefix(b"NO ")?;
        match Refusal::from_message(String::from_utf8_lossy(words).into_owned()) {
            Refusal::Failed { message } => Some(message),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channel_is_of_its_kind_alone() {
        let channels = [
            "", ":", "{a}", "k", "k:a", "k:{a}", "k{a}", "kk", "kk:a", "a{k}", "k:",
        ];
        let channels = channels.map(Bytes::from);
        for channel in &channels {
            for other in &channels {
                let kind = kind_of(other);
                assert_eq!(
                    is_of_kind(channel, &kind),
                    kind_of(channel) == kind,
                    "{channel:?}, {kind:?}"
                );
            }
        }
    }
}
