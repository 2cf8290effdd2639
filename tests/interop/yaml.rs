//! A Java and a Rust service that are started from the same file.

use std::time::Duration;

use redisson_lock::LockClient;
use testbed::Server;

use crate::stage::Version;

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
