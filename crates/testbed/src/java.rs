//! The Java service with Redisson: `tests/interop/peer`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use crate::peer::Peer;

/// The folder of the build of `tools/build-peer.sh` for a Redisson version.
fn build(version: &str) -> PathBuf {
    let here = env!("CARGO_MANIFEST_DIR");
    [
        here, "..", "..", "tests", "interop", "peer", "target", version,
    ]
    .iter()
    .collect()
}

/// Checks whether the Java service with Redisson `version` can start. The error names the missing program and the remedy.
pub fn check(version: &str) -> Result<(), String> {
    if !build(version).join("peer.jar").exists() {
        return Err(format!(
            "the Java peer with Redisson {version} is not built: run `tools/build-peer.sh {version}`"
        ));
    }
    static RUNS: OnceLock<bool> = OnceLock::new();
    if *RUNS.get_or_init(runs) {
        Ok(())
    } else {
        Err("there is no working `java`: install a JDK 17 or later".to_owned())
    }
}

fn runs() -> bool {
    let mut command = Command::new("java");
    command
        .arg("-version")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Starts the Java service with Redisson `version` on the server at `url`, with the given watchdog timeout or Redisson's own. Panics
/// if it does not become ready.
pub async fn start(version: &str, url: &str, watchdog: Option<Duration>) -> Peer {
    let watchdog = watchdog.map(|watchdog| watchdog.as_millis().to_string());
    start_with(version, &[&[url], watchdog.as_deref().as_slice()].concat()).await
}

/// As [`start`], with all settings of the service: the URL, also `redis-sentinel://..` or `redis-cluster://..`, the watchdog timeout
/// in ms, and Redisson's `shardedSubscriptionMode`.
pub async fn start_with(version: &str, args: &[&str]) -> Peer {
    let build = build(version);
    let mut classes = build.join("peer.jar").into_os_string();
    classes.push(":");
    classes.push(build.join("lib").join("*"));
    let mut command = Command::new("java");
    command
        .args(["-Xms32m", "-Xmx96m", "-Xss512k", "-XX:+UseSerialGC"])
        .args(["-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"])
        .arg("-cp")
        .arg(classes)
        .arg("Peer")
        .args(args);
    let peer = Peer::start("Java", command).await;
    assert_eq!(peer.version(), version, "the build has another Redisson");
    peer
}
