//! The incident of docs/operations.md, "A lock is not free: what now": a Java holder hangs.

use std::{path::PathBuf, process::Command, time::Duration};

use metrics_exporter_prometheus::PrometheusBuilder;
use redisson_lock::{Config, LockClient, Owner};
use testbed::{Server, eventually, is_documented};

use crate::{kinds::REENTRANT, stage::Version, worker::Lock};

const PAGE: &str = "docs/operations.md";

/// The tool, which `make programs` builds beside the tests.
fn tool() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let tool = test.ancestors().nth(2).expect("target/debug").join("rlock");
    assert!(tool.exists(), "{tool:?} is missing: cargo build -p rlock");
    tool
}

/// The tool's output, with the exit code.
fn printed(server: &Server, words: &[&str]) -> String {
    let mut command = Command::new(tool());
    let output = command
        .args(words)
        .env("REDIS_URL", server.url())
        .output()
        .expect("the tool runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redisson_4_7_0_holder_that_hangs_is_found_and_forced() {
    let server = Server::start().await;
    let text = format!(
        "singleServerConfig:
  address: \"{}\"
  clientName: orders-7
  connectionMinimumIdleSize: 1
  subscriptionConnectionMinimumIdleSize: 1
codec: !<org.redisson.client.codec.StringCodec> {{}}
",
        server.url()
    );
    let file = server.dir().join("redisson.yaml");
    std::fs::write(&file, &text).unwrap();
    let java = Version::newest().that_is_built().java_peer_of(&file).await;
    let lock = Lock {
        name: "order:42".into(),
        kind: &REENTRANT,
    };
    let hangs = lock.worker(&java);
    hangs.lock().await;

    // The tool finds the holder and names its client.
    let shown = printed(&server, &["show", "order:42"]);
    let owner = format!("{}:", java.client_id());
    assert!(
        shown.contains(&owner) && shown.contains("orders-7"),
        "{shown}"
    );
    is_documented(PAGE, "rlock show order:42", &shown);
    // The recorder of the whole process: background threads of the runtime set the gauges.
    let page = PrometheusBuilder::new().install_recorder().unwrap();
    let config = Config::default().with_lock_name_label(true);
    let rust = LockClient::builder().url(server.url()).config(config);
    let rust = rust.build().await.unwrap();
    let wanted = rust.reentrant_lock("order:42");
    let holders = wanted.holders().await.unwrap();
    assert!(holders[0].owner.starts_with(&owner), "{holders:?}");
    assert_eq!(
        holders[0].client_id().unwrap().to_string(),
        java.client_id()
    );

    // The dashboard shows a wait that does not end.
    let waiter = tokio::spawn(async move { wanted.owned_by(&Owner::new()).lock().await });
    let series = "redisson_lock_oldest_wait_seconds{kind=\"reentrant\",name=\"order:42\"} ";
    let age = || -> Option<f64> {
        let text = page.render();
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map(|age| age.parse().expect("a number ends the line"))
    };
    let is_stuck = async || age().is_some_and(|age| age >= 5.0);
    eventually("the wait shows", Duration::from_secs(30), is_stuck).await;

    // The tool forces the lock open, and the waiter acquires it.
    let forced = printed(&server, &["unlock", "order:42", "--force", "--yes"]);
    is_documented(PAGE, "rlock unlock order:42 --force --yes", &forced);
    let guard = waiter.await.unwrap().unwrap();

    // Java learns of the loss when it unlocks, and the new hold stays.
    let refused = hangs.ask("unlock", &[]).await.unwrap_err();
    eventually("the wait is over", Duration::from_secs(30), async || {
        age() == Some(0.0)
    })
    .await;
    assert_eq!(refused.class, "IllegalMonitorStateException");
    let page = std::fs::read_to_string(PAGE).unwrap();
    let expected = "attempt to unlock lock, not locked by current thread by node id: ";
    assert!(refused.message.starts_with(expected), "{}", refused.message);
    assert!(
        page.contains(expected.trim_end()),
        "the page quotes Java's error"
    );
    guard.unlock().await.unwrap();
}
