//! Elections during outages of the server.

use std::{future::ready, time::Duration};

use redisson_lock::{Error, Leader};
use redisson_lock_test::InMemoryRedis;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{log_lines::LogLines, polling_client};

const PAUSE: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(600);

/// `lead` used to return the first campaign's `Error::Unavailable`: an outage ended the campaigns of all instances.
#[tokio::test(start_paused = true)]
async fn a_candidate_campaigns_again_after_an_outage() {
    let (lines, _keep) = LogLines::record(tracing::Level::WARN);
    let server = InMemoryRedis::new();
    let election = polling_client(&server).await.election("leaders");
    server.stop();
    let leads = tokio::spawn(async move {
        let body = |leader: Leader| ready(leader.identity);
        election.lead("a", PAUSE, body).await
    });
    sleep(LONG).await;
    assert!(!leads.is_finished(), "{leads:?}");
    let failed = lines.with("a campaign failed");
    assert!((5..=10).contains(&failed.len()), "{failed:?}");
    assert!(failed[0].contains("leaders"), "{failed:?}");
    server.start();
    let led = timeout(LONG, leads).await.unwrap().unwrap();
    assert_eq!(led.as_deref(), Ok("a"));
}

/// Repetition does not help against any other error.
#[tokio::test(start_paused = true)]
async fn permanent_error_ends_the_campaigns() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let began = Instant::now();
    let lead = async |identity: &str| {
        let election = client.election("leaders");
        election.lead(identity, PAUSE, |_| ready(())).await
    };
    let nameless = lead("").await;
    assert!(
        matches!(nameless, Err(Error::Config { .. })),
        "{nameless:?}"
    );
    client.shutdown().await;
    assert_eq!(lead("a").await, Err(Error::Closed));
    assert!(began.elapsed() < PAUSE);
}
