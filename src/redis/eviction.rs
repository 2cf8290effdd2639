//! Warns of a server that removes locks when its memory is full.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::{frame, opener::ServerConfig, script_connection::ScriptConnection};
use crate::server_text;

/// Asks within the user's rights: a refused `INFO` would be an entry in `ACL LOG` for each client. Servers before 7 cannot tell.
const QUESTION: &str = "return redis.acl_check_cmd and redis.acl_check_cmd('INFO', 'memory') and redis.call('INFO', 'memory') or ''";

/// Asks the servers of one client, and warns of the first that may evict a lock.
#[derive(Clone)]
pub(super) struct Evictions {
    has_warned: Arc<AtomicBool>,
    /// The user `default` has all rights, or the server has no rules for it.
    is_default_user: bool,
}

impl Evictions {
    pub(super) fn of(server: &ServerConfig) -> Self {
        let username = server.username.as_deref().unwrap_or("default");
        Self {
            has_warned: Arc::default(),
            is_default_user: username == "default",
        }
    }

    /// Asks the server of `scripts` once there is a connection. No call waits for the answer.
    pub(super) async fn look(self, scripts: ScriptConnection) {
        let Ok(session) = scripts.ready().await else {
            return;
        };
        // A proxy without `CLIENT INFO` may close the connection on `INFO` too.
        if !session.has_description() || self.has_warned.load(Ordering::Relaxed) {
            return;
        }
        let asking = match self.is_default_user {
            true => session.send("INFO", vec!["memory".into()]),
            false => session.send("EVAL", vec![QUESTION.into(), "0".into()]),
        };
        let Ok(answer) = asking.await else {
            return;
        };
        let info = frame::text(&answer).unwrap_or_default();
        let Some(policy) = evicting_policy(&info) else {
            return;
        };
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let policy = server_text::shown(policy);
            tracing::warn!(
                policy,
                "the server evicts held locks when its memory is full: set maxmemory-policy noeviction"
            );
        }
    }
}

/// The policy of a server that evicts keys, by its answer to `INFO memory`.
fn evicting_policy(info: &str) -> Option<&str> {
    let field = |name: &str| {
        let mut lines = info.lines();
        lines.find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim()))
    };
    let is_limited = field("maxmemory")?.parse() != Ok(0_u64);
    field("maxmemory_policy").filter(|policy| is_limited && *policy != "noeviction")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_with_a_limit_evicts() {
        for (info, expected) in [
            (
                "maxmemory:100\r\nmaxmemory_policy:volatile-lru\r\n",
                Some("volatile-lru"),
            ),
            (
                "# Memory\r\nmaxmemory:100\r\nmaxmemory_policy:allkeys-lfu",
                Some("allkeys-lfu"),
            ),
            ("maxmemory:0\r\nmaxmemory_policy:volatile-lru\r\n", None),
            ("maxmemory:100\r\nmaxmemory_policy:noeviction\r\n", None),
            ("maxmemory:100\r\n", None),
            ("maxmemory_policy:volatile-lru\r\n", None),
            ("total_system_memory:1\r\nmaxmemory_human:100\r\n", None),
            ("", None),
        ] {
            assert_eq!(evicting_policy(info), expected, "{info:?}");
        }
    }
}
