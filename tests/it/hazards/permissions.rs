//! Servers that refuse subscriptions, channels, memory or RESP3.

use std::{sync::Arc, time::Duration};

use redisson_lock::{Error, Kind, Lock, LockClient, Owner, Released};
use testbed::{Server, eventually, unique_name};
use tokio::{task::JoinSet, time::timeout};

use super::stage::{
    GENEROUS, Locks, PROMPT, Room, Subject, all_done, connect, count, is_waited_for, let_pass,
    nested_pair, nothing_left, pair, pttl, scripts, watched, woken_only,
};
use crate::witness::busy_at_worst;

/// A server with a user `x` that has these rights, and the URL for that user.
async fn restricted(rights: &[&str]) -> (Server, String) {
    let server = Server::start().await;
    let mut words = vec!["ACL", "SETUSER", "x", "on", ">pw", "~*"];
    words.extend(rights);
    server.command::<()>(&words).await;
    let url = format!("redis://x:pw@127.0.0.1:{}", server.port());
    (server, url)
}

const NO_SUBSCRIBING: [&str; 5] = ["&*", "+@all", "-subscribe", "-psubscribe", "-ssubscribe"];

async fn connections_made(server: &Server) -> u64 {
    let info: String = server.command(&["INFO", "stats"]).await;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("total_connections_received:"));
    line.and_then(|number| number.parse().ok())
        .expect("INFO counts connections")
}

/// No client may subscribe, so waiters poll. A refusal does not shift the replies of other commands
/// (P-FR7).
pub async fn p_fr7_refused_subscriptions_shift_no_replies<S: Subject>() {
    let (server, url) = restricted(&NO_SUBSCRIBING).await;
    let mut config = watched(Duration::from_secs(60));
    config.max_poll_interval = Duration::from_millis(100);
    let client = connect(&url, config).await;
    let mut tasks = JoinSet::new();
    let (name, shared) = (unique_name("shared"), Arc::<Room>::default());
    for task in 0..8 {
        let (client, shared) = (client.clone(), shared.clone());
        let lock = client.kind::<S>(&name);
        tasks.spawn(async move {
            if task % 2 == 0 {
                // Fewer rounds: a waiter here waits for its next poll.
                for _ in 0..5 {
                    pair::<S>(&lock, &shared).await;
                }
            } else {
                alone::<S>(&client).await;
            }
        });
    }
    all_done(tasks).await;
    assert_eq!(shared.visits(), 20);
    nothing_left(&server, PROMPT).await;
    let clients: String = server.command(&["CLIENT", "LIST"]).await;
    let ours = clients.lines().filter(|line| line.contains("user=x"));
    assert_eq!(ours.count(), 2, "{clients}");
}

/// Pairs on names without contention, each of which expects its own replies.
async fn alone<S: Subject>(client: &LockClient) {
    for _ in 0..100 {
        let lock = client.kind::<S>(unique_name("alone"));
        let room = Room::default();
        nested_pair::<S>(&lock, &room).await;
        let guard = lock.lock().await.unwrap();
        assert_eq!(lock.hold_count().await, Ok(1));
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        assert_eq!(lock.is_locked().await, Ok(false));
    }
}

/// A client subscribes to a refused channel once per name, not once per wait: each refusal costs a
/// connection.
pub async fn a_refused_channel_costs_a_connection_once<S: Subject>() {
    let (server, url) = restricted(&NO_SUBSCRIBING).await;
    let client = connect(&url, watched(Duration::from_secs(60))).await;
    let lock = client.kind::<S>(unique_name("refused"));
    let guard = client.rival::<S>(lock.name()).lock().await.unwrap();
    let mut admin = server.admin().await;
    let before = connections_made(&server).await;
    for _ in 0..30 {
        let short = Duration::from_millis(20);
        let busy = lock.owned_by(&Owner::new()).try_lock_for(short).await;
        assert!(busy_at_worst(busy).is_none());
    }
    let () = redis::cmd("PING").query_async(&mut admin).await.unwrap();
    let made = connections_made(&server).await - before;
    assert!(made < 10, "{made} connections for one refused channel");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// Some channels are refused: waiters on the allowed ones are woken by messages.
pub async fn one_refused_channel_does_not_stop_messages_on_other_channels<S: Subject>() {
    let allowed = format!("&{}*", S::channel("ok:").trim_end_matches('}'));
    let (server, url) = restricted(&["+@all", "resetchannels", &allowed]).await;
    let client = connect(&url, woken_only()).await;
    let admin = connect(&server.url(), woken_only()).await;
    let names: Vec<_> = (0..20)
        .map(|number| unique_name(if number % 5 == 0 { "no" } else { "ok" }))
        .collect();
    let mut guards = Vec::new();
    for name in &names {
        guards.push(admin.rival::<S>(name).lock().await.unwrap());
    }
    // All waiters start at once, so that their subscriptions share a request.
    let (mut waiting, mut refused) = (JoinSet::new(), JoinSet::new());
    for name in &names {
        let lock = client.kind::<S>(name);
        if name.starts_with("ok") {
            waiting.spawn(got_in(lock));
        } else {
            refused.spawn(stayed_out(lock));
        }
    }
    // The refused attempts end while the locks are held: a free lock of some kinds would be granted
    // to them.
    all_done(refused).await;
    for name in names.iter().filter(|name| name.starts_with("ok")) {
        eventually("the waiter listens", GENEROUS, async || {
            is_waited_for::<S>(&server, name).await
        })
        .await;
    }
    for guard in guards {
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
    }
    all_done(waiting).await;
    nothing_left(&server, PROMPT).await;
}

async fn stayed_out<K: Kind>(lock: Lock<K>) {
    // On a busy machine the reply can be late.
    let busy = lock.try_lock_for(Duration::from_millis(50)).await;
    // A user without the right to announce releases gets an error.
    let is_out = matches!(
        busy,
        Ok(None) | Err(Error::Unavailable { .. } | Error::Redis { .. })
    );
    assert!(is_out, "{busy:?}");
}

async fn got_in<K: Kind>(lock: Lock<K>) {
    let got = timeout(GENEROUS, lock.lock())
        .await
        .expect("a message wakes the waiter");
    assert_eq!(got.unwrap().unlock().await, Ok(Released::Fully));
}

/// A user without channels cannot announce releases, so `try_lock` fails before the server grants a
/// hold (P-A9).
pub async fn p_a9_a_user_without_channels_gets_an_error_and_takes_nothing<S: Subject>() {
    let (server, url) = restricted(&["+@all", "resetchannels"]).await;
    let client = connect(&url, watched(Duration::from_secs(1))).await;
    let lock = client.kind::<S>(unique_name("mute"));
    for _ in 0..2 {
        let refused = lock.try_lock().await.map(drop);
        assert!(matches!(refused, Err(Error::Redis { .. })), "{refused:?}");
    }
    nothing_left(&server, PROMPT).await;
    let admin = connect(&server.url(), watched(Duration::from_secs(1))).await;
    let guard = admin.kind::<S>(lock.name()).lock().await.unwrap();
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// A server that speaks RESP2 only, as old versions do.
pub async fn a_server_without_resp3_wakes_waiters_too<S: Subject>() {
    let server = Server::start_with(&["--rename-command", "HELLO", ""]).await;
    let holder = connect(&server.url(), woken_only()).await;
    let waiter = connect(&server.url(), woken_only()).await;
    let (name, room) = (unique_name("resp2"), Arc::<Room>::default());
    for _ in 0..10 {
        let guard = holder.rival::<S>(&name).lock().await.unwrap();
        let (lock, room) = (waiter.kind::<S>(&name), room.clone());
        let waiting = tokio::spawn(async move { pair::<S>(&lock, &room).await });
        eventually("the task waits", GENEROUS, async || {
            is_waited_for::<S>(&server, &name).await
        })
        .await;
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        timeout(GENEROUS, waiting).await.expect("woken").unwrap();
    }
    assert_eq!(room.visits(), 10);
    alone::<S>(&waiter).await;
    nothing_left(&server, PROMPT).await;
    // Each client still has its first two connections: replies and messages were told apart.
    let clients: String = server.command(&["CLIENT", "LIST", "TYPE", "normal"]).await;
    let ours = clients.lines().filter(|line| line.contains("127.0.0.1:"));
    assert_eq!(ours.count(), 4, "{clients}");
}

/// A server that is out of memory grants no locks, but renews and releases existing holds (P-A10).
pub async fn p_a10_out_of_memory_holds_are_renewed_and_released<S: Subject>() {
    let server = Server::start().await;
    let lease = Duration::from_secs(2);
    let client = connect(&server.url(), watched(lease)).await;
    let lock = client.kind::<S>(unique_name("memory"));
    let outer = lock.lock().await.unwrap();
    let mut inner = None;
    if S::REENTRANT {
        inner = Some(lock.lock().await.unwrap());
    }
    server
        .command::<()>(&["CONFIG", "SET", "maxmemory", "1"])
        .await;
    let refused = client.kind::<S>(unique_name("memory")).lock().await;
    assert!(matches!(refused, Err(redisson_lock::Error::Redis { .. })));
    let_pass(lease * 2).await;
    assert!(!outer.is_lost());
    if let Some(inner) = inner {
        assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    }
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
    nothing_left(&server, PROMPT).await;
}

/// An administrator withdraws a right for a while: renewals fail and are retried, and the hold
/// lives on (P-R1).
pub async fn p_r1_refused_renewals_are_tried_again<S: Subject>() {
    let (server, url) = restricted(&["+@all", "&*"]).await;
    // A third of it passes before the first renewal; the rest is for a busy machine.
    let lease = Duration::from_secs(12);
    let client = connect(&url, watched(lease)).await;
    let name = unique_name("rights");
    let guard = client.kind::<S>(&name).lock().await.unwrap();
    server
        .command::<()>(&["ACL", "SETUSER", "x", "-pexpire"])
        .await;
    server.reset_calls().await;
    eventually("renewals were refused", GENEROUS, async || {
        scripts(&server).await >= 2
    })
    .await;
    let refused = guard.valid_until();
    server
        .command::<()>(&["ACL", "SETUSER", "x", "+pexpire"])
        .await;
    eventually("the hold is renewed", GENEROUS, async || {
        guard.valid_until() > refused
    })
    .await;
    assert!(!guard.is_lost() && pttl(&server, &name).await > 0);
    assert_eq!(count::<S>(&server, &name).await, 1);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
