//! The error names a paused tokio clock: with it, time limits against a real server end at once.

use redisson_lock::{Error, LockClient};
use testbed::Server;

async fn is_reported(url: &str) {
    let Err(Error::Config { reason, .. }) = LockClient::connect(url).await else {
        panic!("{url}: no configuration error");
    };
    assert!(reason.contains("clock is paused"), "{url}: {reason}");
}

#[tokio::test]
async fn a_paused_clock_is_named_when_a_real_server_cannot_answer_in_time() {
    let server = Server::start().await;
    let port = server.port();
    // A running server would sometimes answer in time.
    server.pause();
    tokio::time::pause();
    is_reported(&format!("redis://127.0.0.1:{port}")).await;
    is_reported(&format!("redis-cluster://127.0.0.1:{port}")).await;
    is_reported(&format!("redis-sentinel://127.0.0.1:{port}/mymaster")).await;
    tokio::time::resume();
    server.resume();
}
