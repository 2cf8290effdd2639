//! Fencing tokens: a later holder has a greater one, in either language.

use std::time::Duration;

use crate::kinds::FENCED;
use crate::stage::{LONG, Version};
use crate::worker::Lock;

pub async fn tokens_rise_over_alternate_holders(version: Version) {
    let stage = version.stage().await;
    let lock = Lock::new(&FENCED);
    let counter = format!("redisson_lock_token:{{{}}}", lock.name);
    let mut last = 0;
    for round in 0..10 {
        for peer in [&stage.java, &stage.rust] {
            let holder = lock.worker(peer);
            let token = holder.token().await;
            assert!(
                token > last,
                "{holder}, round {round}: {token} after {last}"
            );
            let counted: i64 = stage.server.command(&["GET", &counter]).await;
            assert_eq!(token, counted, "{holder}, round {round}");
            last = token;
            holder.unlock().await;
        }
    }
}

/// Waiters pass the lock on, with leases and wait limits, and after forced releases.
pub async fn tokens_rise_over_waiters(version: Version) {
    let stage = version.stage().await;
    for (holder, waiter) in stage.both_ways(&FENCED) {
        let first = holder.token().await;
        let waiting = waiter.ask("trylock", &["20000", &LONG.as_millis().to_string()]);
        stage.waiting(&holder.lock).await;
        holder.unlock().await;
        let second = waiting.await.unwrap_or_else(|refused| panic!("{refused}"));
        let second: i64 = second[3].parse().expect("a token");
        assert!(second > first, "{waiter}: {second} after {first}");
        // The requested lease applies (Redisson's `lockAndGetToken` once ignored it).
        assert!(stage.pttl(&holder.lock).await > Duration::from_secs(500).as_millis() as i64);
        assert!(holder.force_unlock().await);
        let third = holder.token().await;
        assert!(third > second, "{holder}: {third} after {second}");
        holder.unlock().await;
    }
}
