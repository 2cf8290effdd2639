//! Checks that a release wakes a waiter of another client, with the scripts, messages and subscriptions of a real lock.

use std::time::{Duration, Instant};

use redisson_lock::{Config, Error, LockClient};

use super::Findings;
use crate::{Failure, servers::Servers};

/// The poll interval of the waiter. It is so long that a poll is not mistaken for a message.
const POLL: Duration = Duration::from_secs(20);
/// The longest time that a message may take.
const ARRIVES_WITHIN: Duration = Duration::from_secs(3);
/// The time between the start of the wait and the release. A waiter that subscribes later enters too, without a message: it asks
/// again after it has subscribed. A new connection and a subscription are a few round trips, each of 200 ms to a far server.
const LISTENS_WITHIN: Duration = Duration::from_secs(1);

pub async fn look(servers: &Servers, name: &str, findings: &mut Findings) -> Result<(), Failure> {
    let mut config = Config::default();
    config.max_poll_interval = POLL;
    let client = async || {
        let builder = servers.builder()?.config(config.clone());
        Ok::<_, Failure>(builder.build().await?)
    };
    let (holder, waiter) = match (client().await, client().await) {
        (Ok(holder), Ok(waiter)) => (holder, waiter),
        (Err(error), _) | (_, Err(error)) => {
            findings.problem(
                "messages",
                format!("the client cannot connect: {}", error.message),
                "See the other findings.",
            );
            return Ok(());
        }
    };
    let looked = pass(&holder, &waiter, name, findings).await;
    holder.shutdown_and_release().await;
    waiter.shutdown_and_release().await;
    if let Err(error) = looked {
        let to_do = "See the other findings, or check another name by --name.";
        findings.problem(
            "messages",
            format!("acquiring and releasing the lock {name:?} failed: {error}"),
            to_do,
        );
    }
    Ok(())
}

async fn pass(
    holder: &LockClient,
    waiter: &LockClient,
    name: &str,
    findings: &mut Findings,
) -> Result<(), Error> {
    let lease = POLL * 2;
    let lock = holder.reentrant_lock(name).with_lease(lease);
    let Some(held) = lock.try_lock().await? else {
        findings.note(
            "messages",
            format!("not checked: another owner holds {name:?}"),
        );
        return Ok(());
    };
    let lock = waiter.reentrant_lock(name).with_lease(lease);
    let waiting = tokio::spawn(async move {
        let guard = lock.try_lock_for(ARRIVES_WITHIN + LISTENS_WITHIN).await?;
        Ok::<_, Error>(guard.map(|guard| (guard, Instant::now())))
    });
    tokio::time::sleep(LISTENS_WITHIN).await;
    let released = Instant::now();
    held.unlock().await?;
    match waiting.await {
        Ok(Ok(Some((guard, entered)))) => {
            let after = entered.saturating_duration_since(released).as_secs_f64() * 1e3;
            findings.fine("messages", format!("a release woke a waiter of another client after {after:.1}ms"));
            guard.unlock().await?;
        }
        Ok(Err(error)) => return Err(error),
        Ok(Ok(None)) | Err(_) => findings.problem(
            "messages",
            format!("a release did not wake a waiter of another client within {ARRIVES_WITHIN:?}"),
            "Waiters poll every 5 s instead. Check the rights to channels (&..), and that each proxy forwards \
             pub/sub.",
        ),
    }
    Ok(())
}
