//! A master that sentinels watch over, or that its replicas know: found, lost, and found again.

use std::{sync::Arc, time::Duration};

use redisson_lock::{Config, Error, LockClient, LostReason, Released};
use testbed::{Replicated, Watched, eventually, unique_name};
use tokio::{task::JoinSet, time::timeout};

use crate::hazards::stage::{GENEROUS, Room, all_done, connect};

fn config() -> Config {
    let mut config = Config::default();
    config.command_wait = GENEROUS;
    config
}

async fn visit(client: &LockClient, name: &str, room: &Room) {
    let guard = client.reentrant_lock(name).lock().await.unwrap();
    room.visit().await;
    let _ = guard.unlock().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_is_found_by_any_sentinel_that_is_up() {
    let set_up = Watched::start().await;
    set_up.sentinels[0].kill();
    set_up.sentinels[1].pause();
    let client = connect(&set_up.url(), config()).await;
    let name = unique_name("found");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    let on_master: u32 = set_up.replicated.servers[0]
        .command(&["EXISTS", &name])
        .await;
    assert_eq!(on_master, 1);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    set_up.sentinels[1].resume();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_sentinels_do_not_know_is_an_error() {
    let set_up = Watched::start().await;
    let url = set_up.url().replace(Watched::SERVICE, "another");
    let unknown = LockClient::connect(&url).await;
    assert!(
        matches!(&unknown, Err(Error::Unavailable { reason, .. }) if reason.contains("another")),
        "{unknown:?}"
    );
    for sentinel in &set_up.sentinels {
        sentinel.kill();
    }
    let nobody = LockClient::connect(set_up.url()).await;
    assert!(
        matches!(&nobody, Err(Error::Unavailable { reason, .. }) if reason.contains("sentinels")),
        "{nobody:?}"
    );
}

/// By order, by the master's death, and by its sleep: holds that the new master has go on, waiters get in, and an old
/// master that wakes up is not believed.
async fn survives(fail: impl AsyncFn(&Watched, usize), recover: impl AsyncFn(&Watched, usize)) {
    let set_up = Watched::start().await;
    let client = connect(&set_up.url(), config()).await;
    let other = connect(&set_up.url(), config()).await;
    let (held, waited) = (unique_name("held"), unique_name("waited"));
    let guard = client.reentrant_lock(&held).lock().await.unwrap();
    let holder = client.reentrant_lock(&waited).lock().await.unwrap();
    let waiter = other.reentrant_lock(&waited);
    let waiting = tokio::spawn(async move { waiter.lock().await });
    eventually("it waits", GENEROUS, async || {
        let channels: Vec<String> = set_up.replicated.servers[0]
            .command(&["PUBSUB", "CHANNELS"])
            .await;
        !channels.is_empty()
    })
    .await;
    // Both replicas have both holds.
    set_up.replicated.caught_up(0).await;

    fail(&set_up, 0).await;
    let new = set_up.fails_over_from(0).await;
    let room = Room::default();
    timeout(GENEROUS, visit(&client, &unique_name("new"), &room))
        .await
        .expect("the new master is found");
    assert!(!guard.is_lost(), "the hold is on the new master");
    assert_eq!(holder.unlock().await, Ok(Released::Fully));
    let entered = timeout(GENEROUS, waiting)
        .await
        .expect("the waiter is woken");
    let entered = entered.unwrap().unwrap();
    recover(&set_up, 0).await;
    let on_new: u32 = set_up.replicated.servers[new]
        .command(&["EXISTS", &waited])
        .await;
    assert_eq!(on_new, 1);
    assert_eq!(entered.unlock().await, Ok(Released::Fully));
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_order() {
    survives(
        async |set_up, _| set_up.order_failover().await,
        async |_, _| {},
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_the_masters_death() {
    survives(
        async |set_up, old| set_up.replicated.servers[old].kill(),
        async |_, _| {},
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t5_a_failover_by_the_masters_sleep() {
    survives(
        async |set_up, old| set_up.replicated.servers[old].pause(),
        async |set_up, old| {
            let server = &set_up.replicated.servers[old];
            server.resume();
            eventually("the old master follows", 2 * GENEROUS, async || {
                let info = server.info("replication").await;
                info.get("role").is_some_and(|role| role == "slave")
            })
            .await;
        },
    )
    .await;
}

/// P-T5: what the new master does not have is lost at once, not after a lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p_t5_a_hold_that_did_not_reach_the_new_master_is_lost_at_once() {
    let set_up = Watched::start().await;
    let client = connect(&set_up.url(), config()).await;
    let name = unique_name("unreplicated");
    // The replicas hear nothing from here on, and the sentinels do.
    for replica in &set_up.replicated.servers[1..] {
        replica.pause();
    }
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    set_up.replicated.servers[0].kill();
    for replica in &set_up.replicated.servers[1..] {
        replica.resume();
    }
    let new = set_up.fails_over_from(0).await;
    let has: u32 = set_up.replicated.servers[new]
        .command(&["EXISTS", &name])
        .await;
    if has == 0 {
        let told = timeout(GENEROUS / 2, guard.lost()).await;
        assert_eq!(told, Ok(LostReason::Gone));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_sentinels_for_a_while_everything_goes_on() {
    let set_up = Watched::start().await;
    let client = connect(&set_up.url(), config()).await;
    let name = unique_name("alone");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    for sentinel in &set_up.sentinels {
        sentinel.kill();
    }
    let room = Room::default();
    for _ in 0..20 {
        visit(&client, &unique_name("meanwhile"), &room).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(!guard.is_lost());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// Tasks of several clients while the master changes twice: one inside at a time, by what the servers kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_goes_on_through_two_failovers() {
    let set_up = Arc::new(Watched::start().await);
    let room = Arc::<Room>::default();
    let name = unique_name("counter");
    let stop = tokio_util::sync::CancellationToken::new();
    let mut tasks = JoinSet::new();
    for _ in 0..3 {
        let client = connect(&set_up.url(), config()).await;
        let (room, name, stop) = (room.clone(), name.clone(), stop.clone());
        tasks.spawn(async move {
            let mut visits = 0;
            while !stop.is_cancelled() {
                // A write that the new master never had lets another in: then this hold is lost, and does not count.
                let guard = client.reentrant_lock(&name).lock().await.unwrap();
                if !guard.is_lost() {
                    room.visit().await;
                    visits += 1;
                }
                let _ = guard.unlock().await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            visits
        });
    }
    let mut master = 0;
    for _ in 0..2 {
        let before = room.visits();
        eventually("they work", GENEROUS, async || room.visits() > before + 20).await;
        set_up.order_failover().await;
        master = set_up.fails_over_from(master).await;
        let after = room.visits();
        eventually("they work again", GENEROUS, async || {
            room.visits() > after + 20
        })
        .await;
        set_up.replicated.all_follow(master).await;
        set_up.settled().await;
    }
    stop.cancel();
    let visits: u64 = all_done(tasks).await.into_iter().sum();
    assert_eq!(visits, room.visits());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replicated_set_up_is_followed() {
    let set_up = Replicated::start(2).await;
    let client = connect(&set_up.url(), config()).await;
    let name = unique_name("followed");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    set_up.caught_up(0).await;
    // An operator changes the master by hand.
    let new = &set_up.servers[1];
    new.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    let port = new.port().to_string();
    for other in [0, 2] {
        let server = &set_up.servers[other];
        server
            .command::<()>(&["REPLICAOF", "127.0.0.1", &port])
            .await;
    }
    let room = Room::default();
    timeout(GENEROUS, visit(&client, &unique_name("new"), &room))
        .await
        .expect("the new master is found");
    let on_new: u32 = new.command(&["EXISTS", &name]).await;
    assert_eq!(on_new, 1);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let on_new: u32 = new.command(&["EXISTS", &name]).await;
    assert_eq!(on_new, 0);
}
