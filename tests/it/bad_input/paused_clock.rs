//! A test that pauses tokio's clock and connects to a real server is told so: time limits end at once then.

use redisson_lock::{Error, LockClient};
use testbed::Server;

async fn told(url: &str) {
    let Err(Error::Config { reason, .. }) = LockClient::connect(url).await else {
        panic!("{url}: no configuration error");
    };
    assert!(reason.contains("clock is paused"), "{url}: {reason}");
}

#[tokio::test]
async fn a_paused_clock_is_named_when_a_real_server_cannot_answer_in_time() {
    let server = Server::start().await;
    let port = server.port();
    // Its answer would be in time now and then.
    server.pause();
    tokio::time::pause();
    told(&format!("redis://127.0.0.1:{port}")).await;
    told(&format!("redis-cluster://127.0.0.1:{port}")).await;
    told(&format!("redis-sentinel://127.0.0.1:{port}/mymaster")).await;
    tokio::time::resume();
    server.resume();
}
