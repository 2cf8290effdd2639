//! A master and its replicas without sentinels. The servers report their roles.

use redisson_lock::{LockClient, Released};
use testbed::{Replicated, Server, eventually, unique_name};

use super::{config, works};
use crate::hazards::stage::{GENEROUS, connect, exists, scripts, why};

/// An operator makes `new` the master, and `replicas` follow it.
async fn promote(set_up: &Replicated, new: usize, replicas: &[usize]) {
    let server = &set_up.servers[new];
    server.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    for replica in replicas {
        follow(set_up, *replica, new).await;
    }
}

async fn follow(set_up: &Replicated, follower: usize, master: usize) {
    let port = set_up.servers[master].port().to_string();
    let order = ["REPLICAOF", "127.0.0.1", &port];
    set_up.servers[follower].command::<()>(&order).await;
}

/// The servers that have the lock.
async fn servers_with(set_up: &Replicated, name: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for (index, server) in set_up.servers.iter().enumerate() {
        if exists(server, name).await {
            found.push(index);
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_is_moved_by_hand() {
    let set_up = Replicated::start(2).await;
    let client = connect(&set_up.url(), config()).await;
    let name = unique_name("followed");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    set_up.caught_up(0).await;
    promote(&set_up, 1, &[0, 2]).await;
    works(&client, &unique_name("new")).await;
    assert!(exists(&set_up.servers[1], &name).await);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert!(!exists(&set_up.servers[1], &name).await);
}

/// A server that is dead or does not answer delays no client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_and_then_the_master_die() {
    let set_up = Replicated::start(2).await;
    set_up.servers[2].pause();
    let client = connect(&set_up.url(), config()).await;
    works(&client, &unique_name("asleep")).await;
    set_up.servers[2].kill();
    works(&client, &unique_name("dead")).await;
    set_up.servers[0].kill();
    promote(&set_up, 1, &[]).await;
    works(&client, &unique_name("new")).await;
    for server in &set_up.servers {
        server.kill();
    }
    let error = LockClient::connect(set_up.url()).await.unwrap_err();
    assert!(why(&error).contains("servers"), "{error:?}");
}

/// P-T5: the old master resumes as a master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_master_that_resumes_is_not_believed() {
    let set_up = Replicated::start(2).await;
    let client = connect(&set_up.url(), config()).await;
    let name = unique_name("held");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    set_up.caught_up(0).await;
    set_up.servers[0].pause();
    // The other replica still follows the paused master.
    promote(&set_up, 1, &[]).await;
    works(&client, &unique_name("new")).await;
    set_up.servers[0].resume();
    for _ in 0..5 {
        let newcomer = connect(&set_up.url(), config()).await;
        let busy = newcomer.reentrant_lock(&name).try_lock().await.unwrap();
        assert!(busy.is_none(), "a newcomer sees the hold");
        let own = unique_name("own");
        let _own = newcomer.reentrant_lock(&own).lock().await.unwrap();
        assert_eq!(servers_with(&set_up, &own).await, [1]);
    }
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// P-T5: the old master resumes while its successor does not answer. A client that missed its
/// master once was moved to the old one, and new clients began there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_old_master_is_not_believed_while_its_successor_is_silent() {
    let set_up = Replicated::start(2).await;
    let client = connect(&set_up.url(), config()).await;
    set_up.caught_up(0).await;
    set_up.servers[0].pause();
    promote(&set_up, 1, &[2]).await;
    works(&client, &unique_name("new")).await;
    eventually("the replica follows the new master", GENEROUS, async || {
        set_up.servers[2].info("replication").await["master_link_status"] == "up"
    })
    .await;
    set_up.servers[1].pause();
    set_up.servers[0].resume();
    let name = unique_name("held");
    let locking = tokio::spawn({
        let lock = client.reentrant_lock(&name);
        async move { lock.lock().await }
    });
    // Each of them waits a second for the silent server, and the client asks in between.
    for _ in 0..3 {
        let error = LockClient::connect(set_up.url()).await.unwrap_err();
        assert!(why(&error).contains("latest failover"), "{error:?}");
    }
    set_up.servers[1].resume();
    let guard = locking.await.unwrap().unwrap();
    assert!(!exists(&set_up.servers[0], &name).await);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// A replica was promoted, follows its old master again, and has not got its data yet: it shows the ancestry of its own time as a
/// master. New clients were refused for as long as that lasted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_not_in_step_tells_of_no_failover() {
    let set_up = Replicated::start(1).await;
    set_up.caught_up(0).await;
    let replica = &set_up.servers[1];
    replica.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    // No server is there, as if the synchronisation failed.
    replica
        .command::<()>(&["REPLICAOF", "127.0.0.1", "1"])
        .await;
    let client = LockClient::connect(set_up.url()).await.unwrap();
    works(&client, &unique_name("held")).await;
}

/// Two unrelated masters: the client uses the one with more replicas. If they have equally many,
/// new clients are refused, and existing clients keep their master.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_unrelated_masters_the_client_uses_the_one_with_more_replicas_or_neither() {
    let set_up = Replicated::start(1).await;
    let stranger = Server::start().await;
    let url = format!("{}&node=127.0.0.1:{}", set_up.url(), stranger.port());
    let client = connect(&url, config()).await;
    let name = unique_name("held");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    set_up.caught_up(0).await;
    assert_eq!(servers_with(&set_up, &name).await, [0, 1]);
    set_up.servers[1].kill();
    let error = LockClient::connect(&url).await.unwrap_err();
    let both = [stranger.port(), set_up.servers[0].port()].map(|port| format!("127.0.0.1:{port}"));
    assert!(
        both.iter().all(|one| why(&error).contains(one)),
        "{error:?}"
    );
    works(&client, &unique_name("still")).await;
    assert!(exists(&set_up.servers[0], &name).await);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(scripts(&stranger).await, 0);
}
