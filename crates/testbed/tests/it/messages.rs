//! Published messages.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use redis::{AsyncConnectionConfig, Client};
use tokio::time::timeout;

use crate::bed::{Bed, incr};
use crate::{A_WHILE, SOON};

/// Publishes a message, and says whether it arrives within `limit`.
async fn hears(bed: &Bed, limit: Duration, mut message: impl AsyncFnMut()) -> bool {
    let receivers: u64 = bed.server.command(&["PUBLISH", "news", "hello"]).await;
    assert_eq!(receivers, 1);
    timeout(limit, message()).await.is_ok()
}

async fn next_message(pubsub: &mut redis::aio::PubSub) {
    pubsub
        .on_message()
        .next()
        .await
        .expect("the connection is open");
}

#[tokio::test]
async fn muted_messages_are_dropped_in_resp2() {
    let bed = Bed::new().await;
    let client = Client::open(bed.proxy.url()).expect("the URL is good");
    let mut pubsub = client
        .get_async_pubsub()
        .await
        .expect("the proxy lets us in");
    bed.faults.mute_messages(true);
    pubsub.subscribe("news").await.expect("confirmations pass");
    assert!(!hears(&bed, 2 * A_WHILE, async || next_message(&mut pubsub).await).await);
    bed.faults.mute_messages(false);
    assert!(hears(&bed, SOON, async || next_message(&mut pubsub).await).await);
}

#[tokio::test]
async fn muted_messages_are_dropped_in_resp3() {
    let bed = Bed::new().await;
    let client = Client::open(format!(
        "redis://127.0.0.1:{}/?protocol=resp3",
        bed.proxy.port()
    ))
    .expect("the URL is good");
    let (sender, mut pushes) = tokio::sync::mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(sender);
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .expect("we are let in");
    connection.subscribe("news").await.expect("it is sent");
    let confirmed = timeout(SOON, pushes.recv())
        .await
        .expect("confirmations pass")
        .expect("the connection is open");
    assert_eq!(confirmed.kind, redis::PushKind::Subscribe);
    bed.faults.mute_messages(true);
    assert!(!hears(&bed, 2 * A_WHILE, async || drop(pushes.recv().await)).await);
    bed.faults.mute_messages(false);
    assert!(hears(&bed, SOON, async || drop(pushes.recv().await)).await);
    bed.faults.lose_next_reply();
    assert!(
        incr(&mut connection, "x").await.is_err(),
        "pushes have shifted the replies"
    );
    assert_eq!(bed.faults.lost_replies(), 1);
}

#[tokio::test]
async fn delayed_replies_delay_messages() {
    let bed = Bed::new().await;
    let client = Client::open(bed.proxy.url()).expect("the URL is good");
    let mut pubsub = client
        .get_async_pubsub()
        .await
        .expect("the proxy lets us in");
    pubsub.subscribe("news").await.expect("it is confirmed");
    bed.faults.delay_replies(A_WHILE);
    let start = Instant::now();
    assert!(hears(&bed, SOON, async || next_message(&mut pubsub).await).await);
    assert!(start.elapsed() >= A_WHILE);
}
