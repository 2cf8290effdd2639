//! A Java and a Rust service that start from the same file.

use std::{collections::BTreeSet, time::Duration};

use redisson_lock::{LockClient, RedissonConfig};
use testbed::{Clustered, Server, eventually};

use crate::stage::{AMPLE, Version};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_4_7_0_and_rust_start_from_the_same_file() {
    let server = Server::start_with(&["--requirepass", "s3cret"]).await;
    let text = format!(
        "singleServerConfig:
  address: \"redis://127.0.0.1:${{REDISSON_LOCK_TEST_PORT:-{}}}\"
  database: 2
  password: s3cret
  timeout: 2500
  connectionMinimumIdleSize: 1
codec: !<org.redisson.client.codec.StringCodec> {{}}
lockWatchdogTimeout: 20000
",
        server.port()
    );
    let file = server.dir().join("redisson.yaml");
    std::fs::write(&file, &text).unwrap();
    let java = Version::newest().that_is_built().java_peer_of(&file).await;
    let rust = LockClient::from_redisson_yaml(text).await.unwrap();

    let lock = rust.reentrant_lock("order:42");
    let guard = lock.lock().await.unwrap();
    let java = async |verb: &str| {
        let answer = java.ask("a", &[verb, "reentrant:order:42"]).await;
        answer.unwrap()[0].clone()
    };
    assert_eq!(java("trylock").await, "false");
    let left: u64 = java("ttl").await.parse().unwrap();
    assert!(left <= 20_000, "{left}");
    guard.unlock().await.unwrap();
    assert_eq!(java("trylock").await, "true");
    assert!(lock.try_lock().await.unwrap().is_none());
    let left = lock.remaining_lease().await.unwrap().unwrap();
    assert!(left <= Duration::from_secs(20), "{left:?}");
}

/// No node can be reached at its announced port. The file's `natMapper` has the real one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_4_7_0_and_rust_reach_a_cluster_behind_a_nat() {
    let cluster = Clustered::masters(2).await;
    let names = [
        cluster.name_on(0, "nat").await,
        cluster.name_on(1, "nat").await,
    ];
    let mut pairs = String::new();
    // No server listens on these ports.
    for (announced, server) in (1..).zip(&cluster.servers) {
        let port = announced.to_string();
        server
            .command::<()>(&["CONFIG", "SET", "cluster-announce-port", &port])
            .await;
        let pair = format!("      '127.0.0.1:{port}': '127.0.0.1:{}'\n", server.port());
        pairs.push_str(&pair);
    }
    for server in &cluster.servers {
        eventually("all nodes announce other ports", AMPLE, async || {
            let nodes: String = server.command(&["CLUSTER", "NODES"]).await;
            nodes.contains("127.0.0.1:1@") && nodes.contains("127.0.0.1:2@")
        })
        .await;
    }
    let text = |mapper: &str| {
        format!(
            "clusterServersConfig:
  nodeAddresses: ['redis://127.0.0.1:{}']
  masterConnectionMinimumIdleSize: 1
  retryAttempts: 2
  retryDelay: !<org.redisson.config.ConstantDelay> {{ delay: PT0.5S }}
{mapper}codec: !<org.redisson.client.codec.StringCodec> {{}}
",
            cluster.servers[0].port()
        )
    };
    let mapped = text(&format!(
        "  natMapper: !<org.redisson.config.HostPortNatMapper>\n    hostsPortMap:\n{pairs}"
    ));
    let file = cluster.servers[0].dir().join("redisson.yaml");
    std::fs::write(&file, &mapped).unwrap();
    let java = Version::newest().that_is_built().java_peer_of(&file).await;
    let rust = LockClient::from_redisson_yaml(mapped).await.unwrap();
    let unmapped = LockClient::from_redisson_yaml(text("")).await;
    let error = unmapped.expect_err("no node listens on the announced port");
    assert!(error.is_unavailable(), "{error:?}");
    assert!(error.to_string().contains("address_map"), "{error}");
    for name in names {
        let (lock, kind) = (rust.reentrant_lock(&name), format!("reentrant:{name}"));
        let guard = lock.lock().await.unwrap();
        let java = async |verb: &str| java.ask("a", &[verb, &kind]).await.unwrap()[0].clone();
        assert_eq!(java("trylock").await, "false");
        guard.unlock().await.unwrap();
        assert_eq!(java("trylock").await, "true");
        assert!(lock.try_lock().await.unwrap().is_none());
    }
}

/// The programs that accept a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Accepts {
    Both,
    Neither,
    /// Redisson alone: a documented difference (docs/from-redisson.md).
    Java,
    /// This crate alone: likewise.
    Rust,
}

/// Files in the forms of docs/from-redisson.md. `{}` is the start of a file.
const FORMS: &[(Accepts, &str)] = {
    use Accepts::{Both, Java, Neither, Rust};
    &[
        (Both, "{}  timeout: 3_000"),
        (Both, "{}  timeout: '3_000'"),
        (Both, "{}  timeout: +2000"),
        (Both, "{}  timeout: 0x7d0"),
        (Both, "{}  timeout: 03720"),
        (Both, "{}  timeout: 0b11111010000"),
        (Both, "{}  timeout: 1:30"),
        (Both, "{}  timeout: _300_"),
        (Both, "{}  timeout: !!int 2000"),
        (Both, "{}  timeout: 2000 # ms"),
        (Neither, "{}  timeout: 0o17"),
        (Neither, "{}  timeout: 1e3"),
        (Neither, "{}  timeout: 2.0"),
        (Neither, "{}  timeout: 3,000"),
        (Neither, "{}  timeout: 'true'"),
        (Java, "{}  timeout: -5"),
        (Rust, "{}  timeout: 2500ms"),
        (Rust, "{}  timeout: ~"),
        (Both, "{}lockWatchdogTimeout: 60_000"),
        (Both, "{}lockWatchdogTimeout: ${NOT_SET:-60_000}"),
        (Neither, "{}lockWatchdogTimeout: ${NOT_SET}"),
        (Both, "{}lockWatchdogTimeout: >-\n  60000"),
        (Rust, "{}lockWatchdogTimeout: 30s"),
        (Both, "{}checkLockSyncedSlaves: no"),
        (Both, "{}checkLockSyncedSlaves: Off"),
        (Both, "{}checkLockSyncedSlaves: 'false'"),
        (Neither, "{}checkLockSyncedSlaves: n"),
        (Neither, "{}checkLockSyncedSlaves: 0"),
        (Both, "{}  clientName: 1_000"),
        (Both, "{}  clientName: yes"),
        (Both, "{}  clientName: ~"),
        (Both, "{}  database: 1_0"),
        (Both, "{}  <<: {timeout: 2000}"),
        (Both, "{}  timeout: 1000\n  <<: {timeout: 2000}"),
        (Both, "{}  <<: [{timeout: 2000}, {timeout: 1, database: 4}]"),
        (
            Both,
            "singleServerConfig:\n  address: &a redis://127.0.0.1:6379\n  clientName: *a",
        ),
        (Java, "{}  timeout: 1000\n  timeout: 2000"),
        (Rust, "{}nosuch: 1"),
        (Both, "\u{feff}{}"),
        (Both, "---\n{}...\n"),
        (Neither, "{}---\n{}"),
        (
            Neither,
            "singleServerConfig:\n\taddress: redis://127.0.0.1:6379",
        ),
        (
            Both,
            "singleServerConfig:\n  address: redis://127.0.0.1:6379/0",
        ),
        (
            Both,
            "singleServerConfig:\n  address: redis://127.0.0.1:6379/",
        ),
        (
            Both,
            "singleServerConfig:\n  address: redis://127.0.0.1:6379/5",
        ),
        (
            Both,
            "singleServerConfig:\n  address: [redis://127.0.0.1:6379]",
        ),
        (
            Both,
            "{\"singleServerConfig\": {\"address\": \"redis://127.0.0.1:6379\", \"timeout\": 2000}}",
        ),
    ]
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_4_7_0_and_rust_read_the_same_forms() {
    let server = Server::start().await;
    let file = server.dir().join("redisson.yaml");
    let start = format!("singleServerConfig:\n  address: {}\n", server.url());
    std::fs::write(&file, &start).unwrap();
    let java = Version::newest().that_is_built().java_peer_of(&file).await;
    let start = "singleServerConfig:\n  address: redis://127.0.0.1:6379\n";
    for (accepts, form) in FORMS {
        let text = form.replace("{}", start);
        let rust = RedissonConfig::from_yaml(&text);
        let java = java.ask("a", &["yaml", &text]).await;
        let found = match (&java, &rust) {
            (Ok(_), Ok(_)) => Accepts::Both,
            (Ok(_), Err(_)) => Accepts::Java,
            (Err(_), Ok(_)) => Accepts::Rust,
            (Err(_), Err(_)) => Accepts::Neither,
        };
        assert_eq!(found, *accepts, "{text}: {java:?}, {rust:?}");
        if let (Ok(written), Ok(rust)) = (java, rust) {
            let read = RedissonConfig::from_yaml(&written[0]).unwrap();
            assert_eq!(read.config(), rust.config(), "{text}: {written:?}");
        }
    }
}

/// The sections of servers, each with the settings that it needs.
const SECTIONS: [(&str, &str); 5] = [
    ("singleServerConfig", "address: redis://127.0.0.1:6379"),
    (
        "sentinelServersConfig",
        "masterName: mymaster\n  sentinelAddresses: [redis://127.0.0.1:6379]",
    ),
    (
        "clusterServersConfig",
        "nodeAddresses: [redis://127.0.0.1:6379]",
    ),
    (
        "replicatedServersConfig",
        "nodeAddresses: [redis://127.0.0.1:6379]",
    ),
    (
        "masterSlaveServersConfig",
        "masterAddress: redis://127.0.0.1:6379",
    ),
];

/// Settings of older versions, and mistakes.
const NOT_OF_4_7: &str = "credentialsReapplyInterval decodeInExecutor failedAttempts pingTimeout reconnectionTimeout retryInterval
    retryIntervalMax slaveFailsInterval sslKeyManagerFactory sslTrustManagerFactory useLinuxNativeEpoll nosuch Timeout";

/// Each setting of each section, in each section and in the file itself: `unknown` lists what Redisson refuses, and no other one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_4_7_0_refuses_the_settings_that_are_unknown_here() {
    let server = Server::start().await;
    let file = server.dir().join("redisson.yaml");
    std::fs::write(
        &file,
        format!("singleServerConfig:\n  address: {}\n", server.url()),
    )
    .unwrap();
    let java = Version::newest().that_is_built().java_peer_of(&file).await;
    let java = async |words: &[&str]| java.ask("a", words).await;
    let mut names: BTreeSet<String> = NOT_OF_4_7.split_whitespace().map(str::to_owned).collect();
    for class in [
        "Config",
        "BaseConfig",
        "BaseMasterSlaveServersConfig",
        "SingleServerConfig",
        "SentinelServersConfig",
        "ClusterServersConfig",
        "ReplicatedServersConfig",
        "MasterSlaveServersConfig",
    ] {
        let class = format!("org.redisson.config.{class}");
        let setters = java(&["methods", &class, "set[A-Z].*"]).await.unwrap();
        for setter in &setters {
            let name = setter.split('(').next().unwrap().trim_start_matches("set");
            names.insert(format!("{}{}", name[..1].to_lowercase(), &name[1..]));
        }
    }
    assert!(names.len() > 100, "{names:?}");
    let mut refused_here = BTreeSet::new();
    for (section, needed) in SECTIONS {
        for name in &names {
            let text = |is_inside: bool, value: &str| {
                let indent = if is_inside { "  " } else { "" };
                format!("{section}:\n  {needed}\n{indent}{name}: {value}\n")
            };
            for (is_inside, path) in [(false, name.clone()), (true, format!("{section}.{name}"))] {
                if needed.contains(&format!("{name}:")) || name == section {
                    continue;
                }
                // An unknown name is refused before its value is read.
                let asked = java(&["yaml", &text(is_inside, "1")]).await;
                let is_refused = asked.is_err_and(|error| error.message.contains("isWritable"));
                let values = [
                    "1",
                    "30000",
                    "true",
                    "text",
                    "[]",
                    "AUTO",
                    "!<a.DefaultNameMapper> {}",
                    "!<a.DefaultNatMapper> {}",
                    "!<a.DefaultCommandMapper> {}",
                    "!<a.DefaultCredentialsResolver> {}",
                    "{}",
                ];
                let mut read = values
                    .iter()
                    .map(|value| RedissonConfig::from_yaml(text(is_inside, value)));
                match read.find_map(Result::ok) {
                    Some(read) => {
                        let is_unknown = read.unknown().contains(&path);
                        assert_eq!(is_unknown, is_refused, "{path}: {:?}", read.unknown());
                    }
                    None if is_refused => {}
                    None => drop(refused_here.insert(name.clone())),
                }
            }
        }
    }
    // A value above is right for each setting that Redisson knows.
    assert_eq!(refused_here, BTreeSet::new());
}
