//! Each right is needed: without it, an operation of the kind fails.

use std::{collections::BTreeSet, time::Duration};

use redisson_lock::{Config, LockClient};
use testbed::{Server, eventually};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::{EVERY_CLIENT, admit_with, all_rights, rights, steps};
use crate::contract::subjects::{
    Fair, Fenced, NonReentrant, NonReentrantFair, Read, Reentrant, Simple, Spin, Subject, Write,
};

/// The limit for steps that must happen.
const SURE: Duration = Duration::from_secs(20);
/// The limit for steps that a missing right may prevent.
const UNSURE: Duration = Duration::from_secs(1);

const NAME: &str = "app:42";

/// Returns the first operation of the kind that a user with `rights` cannot do to the lock `name`.
async fn problem<S: Subject>(
    server: &Server,
    rights: &[String],
    name: &str,
    limit: Duration,
) -> Option<String> {
    // A waiter of an earlier call could still acquire the lock.
    eventually(
        "the connections of the last call are closed",
        SURE,
        async || connections(server).await.is_empty(),
    )
    .await;
    server.command::<()>(&["FLUSHALL"]).await;
    let url = admit_with(server, "tried", rights).await;
    let works = async {
        steps::all_of(S::NAME, server, &url, name).await?;
        server.command::<()>(&["SCRIPT", "FLUSH"]).await;
        lives::<S>(server, &url, name, limit).await
    };
    works.await.err()
}

/// The life of a lock between two clients. Only a message wakes the waiter.
async fn lives<S: Subject>(
    server: &Server,
    url: &str,
    name: &str,
    limit: Duration,
) -> Result<(), String> {
    let text = |error: redisson_lock::Error| crate::in_full(&error);
    let holder = connect(url).await.map_err(text)?;
    let waiter = connect(url).await.map_err(text)?;
    let connected = connections(server).await;
    let guard = S::Rival::lock(&holder, name).lock().await.map_err(text)?;
    let lock = S::lock(&waiter, name);
    let waiting = tokio::spawn(async move { lock.lock().await?.unlock().await });
    let waiting = AbortOnDropHandle::new(waiting);
    let pattern = format!("*{name}*");
    let listeners = async || -> usize {
        let channels: Vec<String> = server.command(&["PUBSUB", "CHANNELS", &pattern]).await;
        channels.len()
    };
    let listens = async || !S::LISTENS || listeners().await == 1;
    in_time("the waiter listens", limit, listens).await?;
    guard.unlock().await.map_err(text)?;
    let entered = timeout(limit, waiting).await;
    let entered = entered.map_err(|_| "the waiter is not woken")?;
    entered.expect("no panic").map_err(text)?;
    in_time("the waiter no longer listens", limit, async || {
        listeners().await == 0
    })
    .await?;
    let guard = S::lock(&holder, name).lock().await.map_err(text)?;
    S::lock(&waiter, name).force_unlock().await.map_err(text)?;
    drop(guard);
    // Connections of the earlier steps may have been about to close.
    if !connections(server).await.is_subset(&connected) {
        return Err("a connection had to be replaced".into());
    }
    Ok(())
}

async fn connect(url: &str) -> Result<LockClient, redisson_lock::Error> {
    let mut config = Config::default();
    config.max_poll_interval = 30 * SURE;
    config.watchdog_lease = 30 * SURE;
    LockClient::builder().url(url).config(config).build().await
}

async fn in_time(
    what: &str,
    limit: Duration,
    condition: impl AsyncFnMut() -> bool,
) -> Result<(), String> {
    let done = timeout(limit, eventually(what, 2 * SURE, condition)).await;
    done.map_err(|_| format!("not in time: {what}"))
}

/// The user's connections, by number.
async fn connections(server: &Server) -> BTreeSet<String> {
    let clients: String = server.command(&["CLIENT", "LIST"]).await;
    let tried = clients.lines().filter(|line| line.contains("user=tried"));
    tried
        .filter_map(|line| line.split(' ').next().map(str::to_owned))
        .collect()
}

/// All rights are enough. Without any one of those of `part`, an operation fails.
async fn each_is_needed<S: Subject>(part: &str) {
    let server = Server::start().await;
    let all = all_rights(&[S::NAME]);
    assert_eq!(problem::<S>(&server, &all, NAME, SURE).await, None);
    let mut idle = Vec::new();
    for right in rights(part) {
        let mut remaining = all.clone();
        remaining.retain(|other| *other != right);
        // The page's first words take rights away.
        if !right.starts_with(['+', '~', '&']) {
            continue;
        }
        match problem::<S>(&server, &remaining, NAME, UNSURE).await {
            Some(problem) => println!("{right}: {problem}"),
            None => idle.push(right),
        }
    }
    assert_eq!(idle, [""; 0], "{}: nothing needs these", S::NAME);
}

/// For names with their own braces, patterns lack the brace that the page puts before a name.
async fn names_with_braces_need_other_patterns<S: Subject>() {
    let server = Server::start().await;
    let all = all_rights(&[S::NAME]);
    for (name, prefix) in [("app:{42}", "app:"), ("{app}:42", "{app}:")] {
        let refused = problem::<S>(&server, &all, name, UNSURE).await;
        assert!(refused.is_some(), "{name}");
        let adapted = all
            .iter()
            .map(|right| right.replace("{app:", "app:").replace("app:", prefix));
        let adapted: Vec<_> = adapted.collect();
        let admitted = problem::<S>(&server, &adapted, name, SURE).await;
        assert_eq!(admitted, None, "{name}");
    }
}

macro_rules! kinds {
    ($($kind:ident: $subject:ident;)+) => {
        $(mod $kind {
            use super::*;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn each_is_needed() {
                super::each_is_needed::<$subject>($subject::NAME).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn names_with_braces_need_other_patterns() {
                super::names_with_braces_need_other_patterns::<$subject>().await;
            }
        })+
    };
}

kinds! {
    reentrant: Reentrant;
    fair: Fair;
    fenced: Fenced;
    spin: Spin;
    non_reentrant: NonReentrant;
    non_reentrant_fair: NonReentrantFair;
    read: Read;
    write: Write;
    simple: Simple;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_right_of_all_kinds_is_needed() {
    each_is_needed::<Reentrant>(EVERY_CLIENT).await;
}
