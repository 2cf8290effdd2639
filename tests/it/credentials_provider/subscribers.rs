//! Connections with subscriptions, whose tokens end while a task waits for a message.

use std::{collections::BTreeSet, time::Duration};

use redisson_lock::{Config, Credentials, LockClient, Protocol, Released};
use testbed::{Server, eventually};
use tracing::Level;

use super::{SOON, within};
use crate::hostile::log_lines::LogLines;

/// The ids of the connections of this type.
async fn ids(server: &Server, kind: &str) -> BTreeSet<String> {
    let list: String = server.command(&["CLIENT", "LIST", "TYPE", kind]).await;
    let of_app = list.lines().filter(|line| line.contains(" user=app "));
    let id = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    of_app.map(id).collect()
}

/// In RESP2, a connection with subscriptions accepts no `AUTH`. A new one takes its place, and no message is missed.
#[tokio::test]
async fn subscribers_keep_their_logins_in_both_protocols() {
    for (protocol, is_replaced) in [(Protocol::Resp2, true), (Protocol::Resp3, false)] {
        let (lines, _keep) = LogLines::record(Level::INFO);
        let server = Server::start().await;
        let user = [
            "ACL", "SETUSER", "app", "on", ">s3cret", "~*", "&*", "+@all",
        ];
        server.command::<()>(&user).await;
        // Only a message wakes a waiter.
        let mut config = Config::default();
        config.max_poll_interval = Duration::from_secs(600);
        config.watchdog_lease = Duration::from_secs(600);
        let build = async || {
            let builder = LockClient::builder()
                .url(server.url())
                .protocol(protocol)
                .config(config.clone())
                .credentials_provider(|_| async {
                    let credentials = Credentials::new("app", "s3cret");
                    Ok::<_, String>(credentials.valid_for(Duration::from_secs(1)))
                });
            within(builder.build()).await.unwrap()
        };
        let (holder, waiter) = (build().await, build().await);
        let guard = holder.reentrant_lock("a").lock().await.unwrap();
        let waiting = waiter.reentrant_lock("a");
        let waiting = tokio::spawn(async move { waiting.lock().await?.unlock().await });
        let subscribed = async || ids(&server, "pubsub").await.len() == 1;
        eventually("the waiter has subscribed", SOON, subscribed).await;
        let first = ids(&server, "normal").await;
        let (mut subscribers, mut logins) = (ids(&server, "pubsub").await, 0);
        eventually("each connection has logged in anew", SOON, async || {
            subscribers.extend(ids(&server, "pubsub").await);
            let calls = server.calls().await;
            logins = calls.get("auth").copied().unwrap_or_default();
            logins >= 12 && (!is_replaced || subscribers.len() >= 3)
        })
        .await;
        assert_eq!(subscribers.len() > 1, is_replaced, "{protocol:?}");
        let of_scripts: Vec<_> = first.difference(&subscribers).cloned().collect();
        let now = ids(&server, "normal").await;
        let stay = of_scripts.iter().filter(|id| now.contains(*id)).count();
        assert!(stay >= 2, "connections for scripts stay: {first:?} {now:?}");
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        assert_eq!(within(waiting).await.unwrap(), Ok(Released::Fully));
        assert_eq!(lines.with(""), Vec::<String>::new(), "{protocol:?}");
    }
}
