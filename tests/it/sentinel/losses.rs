//! Lost holds that never reached the new master, lost sentinels, and a restart of everything.

use redisson_lock::{Config, Durability, Error, LostReason, Released};
use testbed::{Server, Watched, eventually, unique_name};
use tokio::time::timeout;

use super::{config, connections, left_clean, works};
use crate::hazards::stage::{GENEROUS, PROMPT, connect, exists, scripts};

/// A lease that outlasts each test.
fn long() -> Config {
    let mut config = config();
    config.watchdog_lease = 10 * GENEROUS;
    config
}

/// P-T5: a hold that the new master lacks is lost at once and not after a lease. No other hold is
/// lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_that_did_not_reach_the_new_master_is_lost_at_once() {
    let set_up = Watched::start().await;
    let mut local = long();
    local.durability = Durability::Local;
    let client = connect(&set_up.url(), local).await;
    let servers = &set_up.replicated.servers;
    let kept = client
        .reentrant_lock(unique_name("kept"))
        .lock()
        .await
        .unwrap();
    set_up.replicated.caught_up(0).await;
    // The replicas receive nothing from now on: their connections are closed, and a paused process
    // makes no new ones.
    for replica in &servers[1..] {
        replica.pause();
    }
    servers[0]
        .command::<()>(&["CLIENT", "KILL", "TYPE", "replica"])
        .await;
    let names = ["plain", "fair", "read", "write", "fixed"].map(unique_name);
    let fixed = client.reentrant_lock(&names[4]).with_lease(10 * GENEROUS);
    let pair = client.read_write_lock(&names[2]);
    let other = client.read_write_lock(&names[3]);
    let plain = client.reentrant_lock(&names[0]).lock().await.unwrap();
    let fair = client.fair_lock(&names[1]).lock().await.unwrap();
    let read = pair.read().lock().await.unwrap();
    let write = other.write().lock().await.unwrap();
    let fixed = fixed.lock().await.unwrap();
    servers[0].kill();
    for replica in &servers[1..] {
        replica.resume();
    }
    let new = set_up.fails_over_from(0).await;
    for name in &names {
        assert!(
            !exists(&servers[new], name).await,
            "{name} was not replicated"
        );
    }
    let lost = async {
        tokio::join!(
            plain.lost(),
            fair.lost(),
            read.lost(),
            write.lost(),
            fixed.lost()
        )
    };
    let reported = timeout(PROMPT, lost)
        .await
        .expect("the losses are reported at once");
    let gone = LostReason::Gone;
    assert_eq!(reported, (gone, gone, gone, gone, gone));
    assert!(!kept.is_lost());
    assert_eq!(kept.unlock().await, Ok(Released::Fully));
    left_clean(&set_up, new, &[client]).await;
}

/// Holds survive, even if the connection to the master breaks. The client uses the sentinels again
/// after their return.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_survive_an_outage_of_all_sentinels() {
    let set_up = Watched::start().await;
    let client = connect(&set_up.url(), config()).await;
    let master = &set_up.replicated.servers[0];
    let held = client.reentrant_lock(unique_name("held"));
    let guard = held.lock().await.unwrap();
    for sentinel in &set_up.sentinels {
        sentinel.kill();
    }
    works(&client, &unique_name("meanwhile")).await;
    for kind in ["normal", "pubsub"] {
        master
            .command::<()>(&["CLIENT", "KILL", "TYPE", kind])
            .await;
    }
    works(&client, &unique_name("meanwhile")).await;
    assert!(!guard.is_lost());
    for sentinel in &set_up.sentinels {
        sentinel.restart().await;
    }
    set_up.settled().await;
    set_up.replicated.caught_up(0).await;
    master.kill();
    works(&client, &unique_name("afterwards")).await;
    assert!(!guard.is_lost());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// P-T5: the only running sentinel was down during the failover. It names the old master, which
/// runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sentinel_that_was_down_during_the_failover_is_not_believed() {
    let set_up = Watched::start().await;
    let client = connect(&set_up.url(), config()).await;
    let name = unique_name("held");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    set_up.replicated.caught_up(0).await;
    let old = &set_up.replicated.servers[0];
    let [_, other, outdated] = &set_up.sentinels[..] else {
        unreachable!()
    };
    outdated.kill();
    old.pause();
    let new = set_up.fails_over_from(0).await;
    works(&client, &unique_name("new")).await;
    set_up.sentinels[0].kill();
    other.kill();
    old.resume();
    outdated.restart().await;
    eventually(
        "no client is connected to the old master",
        GENEROUS,
        async || connections(old).await == 0,
    )
    .await;
    let before = scripts(old).await;
    let asked = async |server: &Server| -> u64 {
        server.info("stats").await["total_commands_processed"]
            .parse()
            .unwrap()
    };
    assert_eq!(
        set_up.master_by(2).await,
        0,
        "the sentinel names the old master"
    );
    // More commands than this test sends.
    let at = asked(outdated).await;
    let mut own = 0;
    eventually(
        "the client has asked the sentinel repeatedly",
        GENEROUS,
        async || {
            own += 1;
            asked(outdated).await > at + own + 12
        },
    )
    .await;
    for _ in 0..10 {
        works(&client, &unique_name("still")).await;
    }
    assert!(!guard.is_lost());
    assert!(exists(&set_up.replicated.servers[new], &name).await);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(
        scripts(old).await,
        before,
        "no client sent a command to the old master"
    );
}

/// All servers restart empty: holders learn of the loss, and waiters acquire the lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_lose_and_waiters_enter_when_all_servers_restart_empty() {
    let set_up = Watched::start().await;
    let client = connect(&set_up.url(), long()).await;
    let other = connect(&set_up.url(), long()).await;
    let name = unique_name("over");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    let waiter = other.reentrant_lock(&name);
    let waiting = tokio::spawn(async move {
        loop {
            match waiter.lock().await {
                // The replicas copy the new master's data, and may be too slow for an acknowledgement. The hold was given back.
                Err(Error::Replication { .. }) => {}
                entered => break entered,
            }
        }
    });
    let master = &set_up.replicated.servers[0];
    eventually("the task waits", GENEROUS, async || {
        let heard: (String, u32) = master
            .command(&[
                "PUBSUB",
                "NUMSUB",
                &format!("redisson_lock__channel:{{{name}}}"),
            ])
            .await;
        heard.1 == 1
    })
    .await;
    let all = || set_up.sentinels.iter().chain(&set_up.replicated.servers);
    for server in all() {
        server.kill();
    }
    for server in all() {
        server.restart().await;
    }
    assert_eq!(timeout(GENEROUS, guard.lost()).await, Ok(LostReason::Gone));
    let entered = timeout(GENEROUS, waiting)
        .await
        .expect("the waiter acquires the lock");
    assert_eq!(
        entered.unwrap().unwrap().unlock().await,
        Ok(Released::Fully)
    );
    left_clean(&set_up, 0, &[client, other]).await;
}
