use testbed::{Clustered, eventually, slot_of};

use crate::SOON;

/// A key's value as `node` gives it, or the refusal.
async fn get(cluster: &Clustered, node: usize, key: &str) -> redis::RedisResult<Option<String>> {
    let mut connection = cluster.servers[node].admin().await;
    redis::cmd("GET")
        .arg(key)
        .query_async(&mut connection)
        .await
}

#[tokio::test]
async fn a_slot_moves_with_its_keys() {
    let cluster = Clustered::masters(2).await;
    let name = cluster.name_on(0, "order").await;
    let slot = slot_of(&name);
    let told: u16 = cluster.servers[1]
        .command(&["CLUSTER", "KEYSLOT", &name])
        .await;
    assert_eq!((told, cluster.owner_of(slot).await), (slot, 0));
    cluster.servers[0].command::<()>(&["SET", &name, "1"]).await;
    let refusal = get(&cluster, 1, &name).await.unwrap_err();
    assert_eq!(refusal.code(), Some("MOVED"));

    let half_way = cluster.begin_move(slot, 1).await;
    assert_eq!(get(&cluster, 0, &name).await, Ok(Some("1".into())));
    cluster.move_keys(half_way).await;
    let refusal = get(&cluster, 0, &name).await.unwrap_err();
    assert_eq!(refusal.code(), Some("ASK"));
    cluster.end_move(half_way).await;
    assert_eq!(get(&cluster, 1, &name).await, Ok(Some("1".into())));
    let refusal = get(&cluster, 0, &name).await.unwrap_err();
    assert_eq!(refusal.code(), Some("MOVED"));

    cluster.move_slot(slot, 0).await;
    cluster.settled().await;
    assert_eq!(get(&cluster, 0, &name).await, Ok(Some("1".into())));
}

#[tokio::test]
async fn a_replica_takes_over_by_order_and_from_the_dead() {
    let cluster = Clustered::start().await;
    for node in 0..6 {
        assert_eq!(cluster.is_master(node).await, node < 3);
    }
    let name = cluster.name_on(0, "order").await;
    cluster.servers[0].command::<()>(&["SET", &name, "1"]).await;
    let replica = cluster.replica_of(0).await;
    assert_eq!(replica, 3);
    cluster.order_failover(replica).await;
    cluster.takes_over(replica).await;
    cluster.settled().await;
    assert_eq!(cluster.replica_of(replica).await, 0);
    assert_eq!(get(&cluster, replica, &name).await, Ok(Some("1".into())));

    cluster.kill(replica);
    cluster.takes_over(0).await;
    assert_eq!(cluster.owner_of(slot_of(&name)).await, 0);
    assert_eq!(get(&cluster, 0, &name).await, Ok(Some("1".into())));
    cluster.restart(replica).await;
    cluster.settled().await;
    assert_eq!(cluster.replica_of(0).await, replica);
}

#[tokio::test]
async fn a_paused_master_is_a_replica_when_it_wakes_up() {
    let cluster = Clustered::start().await;
    cluster.pause(1);
    cluster.takes_over(4).await;
    cluster.resume(1);
    eventually("it follows", 3 * SOON, async || !cluster.is_master(1).await).await;
    cluster.settled().await;
}

#[tokio::test]
async fn a_whole_cluster_comes_back() {
    let cluster = Clustered::start_with(3, false, &["--appendonly", "yes"]).await;
    let name = cluster.name_on(2, "order").await;
    cluster.servers[2].command::<()>(&["SET", &name, "1"]).await;
    for node in 0..3 {
        cluster.kill(node);
    }
    for node in 0..3 {
        cluster.restart(node).await;
    }
    cluster.settled().await;
    assert_eq!(get(&cluster, 2, &name).await, Ok(Some("1".into())));
}
