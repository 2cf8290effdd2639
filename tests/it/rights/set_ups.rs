//! The further rights of deployments in which the client has to find the master.

use std::time::Duration;

use redisson_lock::{Config, Durability, Error, LockClient, Owner, Released};
use testbed::{Clustered, Replicated, Server, Watched, eventually, slot_of};
use tokio::time::timeout;

use super::{PASSWORD, admit_with, all_rights, rights, with_user};

const SURE: Duration = Duration::from_secs(30);
/// The limit for steps that a missing right may prevent.
const UNSURE: Duration = Duration::from_secs(2);
const USER: &str = "app";

async fn admit_to_all(servers: &[Server], rights: &[String]) {
    for server in servers {
        admit_with(server, USER, rights).await;
    }
}

fn without(all: &[String], right: &str) -> Vec<String> {
    let remaining = all.iter().filter(|other| **other != right);
    remaining.cloned().collect()
}

/// A client that waits for servers and replicas as long as a busy machine needs.
async fn patient(url: &str) -> LockClient {
    let mut config = Config::default();
    config.command_wait = SURE;
    config.replica_wait = SURE;
    let builder = LockClient::builder().url(url).config(config);
    builder.build().await.expect("the user may connect")
}

/// Acquires and releases a lock, and checks that the client asks a sentinel that the URL does not
/// name.
async fn works(url: &str, unnamed: Option<&Server>, limit: Duration) -> Result<(), String> {
    let all = async {
        let mut config = Config::default();
        config.command_wait = limit;
        let builder = LockClient::builder().url(url).config(config);
        let client = builder
            .build()
            .await
            .map_err(|error| crate::in_full(&error))?;
        let guard = client.reentrant_lock("app:42").lock().await;
        let guard = guard.map_err(|error| crate::in_full(&error))?;
        if let Some(sentinel) = unnamed {
            eventually(
                "the client asks the unnamed sentinel",
                2 * SURE,
                async || {
                    let clients: String = sentinel.command(&["CLIENT", "LIST"]).await;
                    clients.contains(&format!("user={USER}"))
                },
            )
            .await;
        }
        assert_eq!(guard.unlock().await, Ok(Released::Fully));
        client.shutdown().await;
        Ok(())
    };
    let done = timeout(limit, all).await;
    done.unwrap_or_else(|_| Err("not in time".into()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_where_sentinels_are_asked() {
    let set_up = Watched::start().await;
    let servers = &set_up.replicated.servers;
    let on_servers = [all_rights(&["reentrant"]), rights("sentinel")].concat();
    let on_sentinels = rights("sentinel: on every sentinel");
    admit_to_all(servers, &on_servers).await;
    admit_to_all(&set_up.sentinels, &on_sentinels).await;
    let named = set_up.sentinels[0].port();
    let url = format!(
        "redis-sentinel://{USER}:{PASSWORD}@127.0.0.1:{named}/{}\
         ?sentinelUsername={USER}&sentinelPassword={PASSWORD}",
        Watched::SERVICE
    );
    let works = async |limit| works(&url, Some(&set_up.sentinels[1]), limit).await;

    for right in rights("sentinel") {
        admit_to_all(servers, &without(&on_servers, &right)).await;
        assert!(works(UNSURE).await.is_err(), "{right} is not needed");
    }
    admit_to_all(servers, &on_servers).await;
    for right in on_sentinels.iter().filter(|word| word.starts_with('+')) {
        // Without `MYID`, sentinels are told apart by their addresses.
        let enough = right == "+sentinel|myid";
        admit_to_all(&set_up.sentinels, &without(&on_sentinels, right)).await;
        let limit = if enough { SURE } else { UNSURE };
        assert_eq!(works(limit).await.is_ok(), enough, "without {right}");
    }
    admit_to_all(&set_up.sentinels, &on_sentinels).await;
    assert_eq!(works(SURE).await, Ok(()));

    // The rights suffice after a failover too.
    let client = patient(&url).await;
    let guard = client.reentrant_lock("app:42").lock().await.unwrap();
    set_up.replicated.caught_up(0).await;
    set_up.order_failover().await;
    set_up.fails_over_from(0).await;
    let other = client.reentrant_lock("app:43");
    // The old master may grant a lock before it learns of its successor, and loses it then.
    let released = async {
        loop {
            match other.lock().await.unwrap().unlock().await {
                Err(Error::Lost { .. }) => {}
                released => return released,
            }
        }
    };
    let released = timeout(SURE, released).await;
    assert_eq!(
        released.expect("the new master grants"),
        Ok(Released::Fully)
    );
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_where_servers_are_asked() {
    let set_up = Replicated::start(1).await;
    let all = [all_rights(&["reentrant"]), rights("replicated")].concat();
    let url = with_user(&set_up.url(), USER);
    for right in rights("replicated") {
        admit_to_all(&set_up.servers, &without(&all, &right)).await;
        let tried = works(&url, None, UNSURE).await;
        assert!(tried.is_err(), "{right} is not needed");
    }
    admit_to_all(&set_up.servers, &all).await;
    assert_eq!(works(&url, None, SURE).await, Ok(()));
}

/// Uses each right of a cluster: the list of nodes, a message within a shard, a slot that moves.
async fn works_on(cluster: &Clustered, limit: Duration) -> Result<(), String> {
    let text = |error: redisson_lock::Error| crate::in_full(&error);
    let mut config = Config::default();
    config.command_wait = limit;
    config.max_poll_interval = 30 * SURE;
    config.watchdog_lease = 30 * SURE;
    let builder = LockClient::builder().url(with_user(&cluster.url(), USER));
    let client = builder.config(config).build().await.map_err(text)?;
    let name = cluster.name_on(0, "app").await;
    let lock = client.reentrant_lock(&name);
    let guard = lock.lock().await.map_err(text)?;
    let listeners = async || -> usize {
        let list = ["PUBSUB", "SHARDCHANNELS", &format!("*{name}*")];
        let channels: Vec<String> = cluster.servers[0].command(&list).await;
        channels.len()
    };
    let waiting = lock.owned_by(&Owner::new());
    let waiting = async { waiting.lock().await?.unlock().await };
    let releasing = async {
        eventually("the waiter listens", 2 * SURE, async || {
            listeners().await == 1
        })
        .await;
        guard.unlock().await
    };
    tokio::try_join!(waiting, releasing).map_err(text)?;
    eventually("no client subscribes", 2 * SURE, async || {
        listeners().await == 0
    })
    .await;
    cluster.begin_move(slot_of(&name), 1).await;
    let guard = lock.lock().await.map_err(text)?;
    guard.unlock().await.map_err(text)?;
    client.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_on_a_cluster() {
    let cluster = Clustered::masters(2).await;
    let mut all = [all_rights(&["reentrant"]), rights("cluster")].concat();
    // The rights of a single server serve clusters that send messages to all nodes.
    all.retain(|right| !["+publish", "+subscribe", "+unsubscribe"].contains(&&**right));
    let works = async |limit| {
        let done = timeout(limit, works_on(&cluster, limit)).await;
        done.unwrap_or_else(|_| Err("not in time".into()))
    };
    admit_to_all(&cluster.servers, &all).await;
    assert_eq!(works(SURE).await, Ok(()));
    for right in rights("cluster") {
        admit_to_all(&cluster.servers, &without(&all, &right)).await;
        match works(UNSURE).await {
            Err(problem) => println!("{right}: {problem}"),
            Ok(()) => panic!("{right} is not needed"),
        }
    }
}

/// Without the right to `PING`, the client cannot check its subscription. It does not reconnect
/// over and over for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_on_a_cluster_keeps_its_connection_without_the_right_to_look_at_it() {
    let cluster = Clustered::masters(1).await;
    let mut all = [all_rights(&["reentrant"]), rights("cluster")].concat();
    all.push("+ping".to_owned());
    admit_to_all(&cluster.servers, &all).await;
    let client = LockClient::connect(with_user(&cluster.url(), USER))
        .await
        .unwrap();
    let lock = client.reentrant_lock("app:42");
    let guard = lock.lock().await.unwrap();
    let waiter = lock.owned_by(&Owner::new());
    let waiting = tokio::spawn(async move { waiter.lock().await?.unlock().await });
    let server = &cluster.servers[0];
    let listener = async || -> Option<String> {
        let list = ["CLIENT", "LIST", "TYPE", "PUBSUB"];
        let clients: String = server.command(&list).await;
        Some(clients.split_once(' ')?.0.to_owned())
    };
    eventually("the waiter listens", SURE, async || {
        listener().await.is_some()
    })
    .await;
    let before = listener().await;
    server.reset_calls().await;
    let looked = async || server.calls().await.get("ping") >= Some(&4);
    eventually("the client checks several times", SURE, looked).await;
    assert_eq!(listener().await, before);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let entered = timeout(SURE, waiting)
        .await
        .expect("a message wakes the waiter");
    assert_eq!(entered.unwrap(), Ok(Released::Fully));
}

/// A user without the right to `WAIT` acquires the lock without acknowledgements, unless replicas are demanded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_rights_to_wait_for_replicas() {
    let set_up = Replicated::start(1).await;
    let parts = ["reentrant", "replicated", "durability"];
    let all = all_rights(&parts);
    let url = with_user(&set_up.url(), USER);
    for (right, acknowledgements) in [("", Some(1)), ("+wait", None)] {
        admit_to_all(&set_up.servers, &without(&all, right)).await;
        let client = patient(&url).await;
        for durability in [Durability::Auto, Durability::All] {
            let lock = client.reentrant_lock("app:42").with_durability(durability);
            let locked = timeout(SURE, lock.lock())
                .await
                .expect("the call ends in time");
            if acknowledgements.is_none() && durability == Durability::All {
                let error = locked.unwrap_err().to_string();
                assert!(error.contains("NOPERM"), "{error}");
                continue;
            }
            let guard = locked.unwrap();
            assert_eq!(
                guard.acknowledgements(),
                acknowledgements,
                "without {right:?}"
            );
            assert_eq!(guard.unlock().await, Ok(Released::Fully));
        }
    }
}

/// Servers without `WAITAOF` receive it at most once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_right_to_wait_for_disks() {
    let set_up = Replicated::start_with(1, &["--appendonly", "yes"]).await;
    let known: Vec<redis::Value> = set_up.servers[0]
        .command(&["COMMAND", "INFO", "waitaof"])
        .await;
    let is_known = known != [redis::Value::Nil];
    let mut parts = vec!["reentrant", "replicated", "durability"];
    parts.extend(is_known.then_some("wait_for_disk"));
    admit_to_all(&set_up.servers, &all_rights(&parts)).await;
    let mut config = Config::default();
    config.wait_for_disk = true;
    config.replica_wait = SURE;
    let builder = LockClient::builder().url(with_user(&set_up.url(), USER));
    let client = builder.config(config).build().await.unwrap();
    set_up.servers[0].reset_calls().await;
    let lock = client.reentrant_lock("app:42");
    let guard = timeout(SURE, lock.lock())
        .await
        .expect("the call ends in time");
    let guard = guard.unwrap();
    assert_eq!(guard.acknowledgements(), Some(1));
    let calls = set_up.servers[0].calls().await;
    assert_eq!(calls.contains_key("waitaof"), is_known, "{calls:?}");
    assert_eq!(calls.contains_key("wait"), !is_known, "{calls:?}");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
