//! Nodes and sentinels that redirect a client in circles, or to many addresses.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redisson_lock::{Config, Error, LockClient};
use tokio::task::JoinSet;

use super::{Fate, Impostor, why, within};

fn config() -> Config {
    let mut config = Config::default();
    config.command_wait = Duration::from_millis(500);
    config.outage_wait = Duration::from_millis(500);
    config
}

fn bulk(text: &str) -> Fate {
    Fate::Answer(format!("${}\r\n{text}\r\n", text.len()).into_bytes())
}

/// A node that sends these replies to `CLUSTER NODES` and to scripts, with its own port for `PORT`.
async fn node(nodes: String, answer: &'static str) -> Impostor {
    let port = Arc::new(OnceLock::new());
    let own = port.clone();
    let node = Impostor::start(None, move |words| {
        let filled = |text: &str| text.replace("PORT", &format!("{}", own.get().unwrap_or(&0)));
        match words {
            [b"CLUSTER", ..] => bulk(&filled(&nodes)),
            [b"PUBSUB", ..] => Fate::text("-ERR unknown subcommand\r\n"),
            [b"EVALSHA" | b"EVAL", ..] => Fate::text(&filled(answer)),
            _ => Fate::Pass,
        }
    });
    let node = node.await;
    let _ = port.set(node.address.port());
    node
}

async fn client_of(node: &Impostor) -> Result<LockClient, Error> {
    let url = format!("redis-cluster://{}", node.address);
    within(LockClient::builder().url(url).config(config()).build()).await
}

const ALL: &str = "aaa 127.0.0.1:PORT@1 myself,master - 0 0 1 connected 0-16383\n";

#[tokio::test]
async fn endless_redirections_end_with_an_error() {
    for answer in [
        "-MOVED 5 127.0.0.1:PORT\r\n",
        "-MOVED 5 127.0.0.1:1\r\n",
        "-ASK 5 127.0.0.1:PORT\r\n",
        "-ASK 5 127.0.0.1:1\r\n",
    ] {
        let node = node(ALL.into(), answer).await;
        let client = client_of(&node).await.unwrap();
        let lock = client.reentrant_lock("a");
        for error in [
            within(lock.try_lock()).await.err(),
            within(lock.is_locked()).await.err(),
        ] {
            assert!(
                matches!(error, Some(Error::Unavailable { .. })),
                "{answer}: {error:?}"
            );
        }
        assert!(
            node.connections() <= 10,
            "{answer}: {} connections",
            node.connections()
        );
        within(client.shutdown()).await;
    }
}

/// Two nodes, each of which redirects to the other.
#[tokio::test]
async fn a_circle_of_two_nodes_ends_in_an_error() {
    let ports = Arc::new(OnceLock::<[u16; 2]>::new());
    let start = |index: usize| {
        let ports = ports.clone();
        Impostor::start(None, move |words| {
            let [one, other] = *ports.get().unwrap();
            let there = [other, one][index];
            match words {
                [b"CLUSTER", ..] => bulk(&format!(
                    "aaa 127.0.0.1:{one}@1 master - 0 0 1 connected 0-8191\n\
                     bbb 127.0.0.1:{other}@1 master - 0 0 2 connected 8192-16383\n"
                )),
                [b"PUBSUB", ..] => Fate::text("-ERR unknown subcommand\r\n"),
                [b"EVALSHA" | b"EVAL", ..] => {
                    Fate::text(&format!("-MOVED 5 127.0.0.1:{there}\r\n"))
                }
                _ => Fate::Pass,
            }
        })
    };
    let nodes = [start(0).await, start(1).await];
    ports
        .set([nodes[0].address.port(), nodes[1].address.port()])
        .unwrap();
    let client = client_of(&nodes[0]).await.unwrap();
    let error = within(client.reentrant_lock("a").try_lock())
        .await
        .unwrap_err();
    let why = why(&error);
    assert!(why.contains("MOVED"), "{why}");
    assert!(nodes.iter().all(|node| node.connections() <= 8));
}

#[tokio::test]
async fn maps_of_slots_that_make_no_sense_end_in_an_error() {
    let endless: String = (0..100_000)
        .map(|node| {
            format!(
                "n{node} 127.0.0.1:{} master - 0 0 1 connected\n",
                node % 65_535 + 1
            )
        })
        .collect();
    let mut cases = JoinSet::new();
    for (nodes, expected) in [
        (
            "aaa 127.0.0.1:PORT@1 master - 0 0 1 connected 0-10\n",
            "no known node",
        ),
        (
            "aaa 127.0.0.1:1@1 master - 0 0 1 connected 0-16383\n",
            "refused",
        ),
        (
            "aaa 127.0.0.1:99999@1 master - 0 0 1 connected 0-16383\n",
            "no known node",
        ),
        (
            "aaa 127.0.0.1:PORT@1 master - 0 0 1 connected 9-3 99999 x-y\n",
            "no known node",
        ),
        ("", "no known node"),
        (&endless, "no known node"),
    ] {
        let nodes = nodes.to_owned();
        cases.spawn(async move {
            let shown = nodes[..nodes.len().min(80)].to_owned();
            let node = node(nodes, "-ERR this is no server\r\n").await;
            let error = client_of(&node).await.unwrap_err();
            let why = why(&error);
            assert!(why.contains(expected), "{shown}: {why}");
            // `connect` waits 10 s for the slots, and asks five times a second.
            assert!(node.connections() <= 120, "{shown}: {}", node.connections());
        });
    }
    while let Some(done) = cases.join_next().await {
        done.unwrap();
    }
}

#[tokio::test]
async fn report_of_several_owners_of_a_slot_is_refused() {
    let two = format!("{ALL}bbb 127.0.0.1:1@1 master - 0 0 2 connected 0-16383\n");
    let node = node(two, "-ERR this is no server\r\n").await;
    let why = why(&client_of(&node).await.unwrap_err());
    assert!(why.contains("not a list of nodes"), "{why}");
}

/// A sentinel that reports the master at `port`, and this many other sentinels.
async fn sentinel(port: u16, count: usize) -> Impostor {
    Impostor::start(None, move |words| match words {
        [b"SENTINEL", b"MASTER", ..] => Fate::text(&format!(
            "%3\r\n+flags\r\n+master\r\n+config-epoch\r\n+1\r\n+num-other-sentinels\r\n+{}\r\n",
            u64::MAX
        )),
        [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", ..] => {
            Fate::text(&format!("*2\r\n+127.0.0.1\r\n+{port}\r\n"))
        }
        [b"SENTINEL", b"SENTINELS", ..] => {
            let mut all = format!("*{count}\r\n");
            for other in 0..count {
                all += &format!(
                    "%3\r\n+runid\r\n+{other}\r\n+ip\r\n+127.0.0.1\r\n+port\r\n+{}\r\n",
                    1 + other % 1000
                );
            }
            Fate::text(&all)
        }
        [b"SENTINEL", b"MYID"] => Fate::text("+me\r\n"),
        _ => Fate::Pass,
    })
    .await
}

#[tokio::test]
async fn a_hostile_sentinel_causes_a_bounded_number_of_connections() {
    // The impostor answers `OK` to everything, `ROLE` included.
    let stranger = Impostor::start(None, |_| Fate::Pass).await;
    let sentinel = sentinel(stranger.address.port(), 50_000).await;
    let url = format!("redis-sentinel://{}/mymaster", sentinel.address);
    let error = within(LockClient::connect(&url)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let lazy = LockClient::builder()
        .url(&url)
        .config(config())
        .lazy(true)
        .build();
    let began = std::time::Instant::now();
    let client = within(lazy).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    // One is the first client's. The pauses of the other begin with 5 ms and double up to 1 s: nine attempts fit into the first 1.3 s.
    let most = 10 + began.elapsed().as_secs() as usize;
    let connections = stranger.connections();
    assert!(connections <= most, "{connections} of {most}");
    let error = within(client.reentrant_lock("a").try_lock())
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    // The client takes too long to read a list of 50,000 entries, and asks for it once a second.
    let most = 4 + began.elapsed().as_secs() as usize;
    let connections = sentinel.connections();
    assert!(connections <= most, "{connections} of {most}");
}
