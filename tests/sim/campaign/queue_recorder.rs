//! Records the queue of a fair lock on the server, so that the rules can compare it with the order of grants.

use std::{sync::Arc, time::Duration};

use histories::{
    actor::Scene,
    log::{Side, Spot, What},
};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Frame, RawConnection},
};
use tokio::time::sleep;

const LOOK_EVERY: Duration = Duration::from_millis(3);

/// Records the queues until the history is over.
pub async fn record(server: InMemoryRedis, scene: Arc<Scene>) {
    let connection = server.raw().await.expect("the server is up");
    while !scene.is_over() {
        for name in 0..scene.names.len() {
            look(&connection, &scene, name).await;
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn look(connection: &RawConnection, scene: &Scene, name: usize) {
    let spot = Spot {
        owner: 0,
        names: 1 << name,
        side: Side::Alone,
    };
    let queue = format!("redisson_lock_queue:{{{}}}", scene.names[name]);
    scene.log.note(spot, What::Looks);
    let entries = match connection.send("LRANGE", &[&*queue, "0", "-1"]).await {
        Ok(Frame::List(entries)) => entries,
        other => panic!("a queue is a list, not {other:?}"),
    };
    // An empty queue shows no order.
    if !entries.is_empty() {
        scene
            .log
            .note(spot, What::Queue(entries.iter().map(owner).collect()));
    }
}

/// The number of an owner, which follows the id of its client.
fn owner(entry: &Frame) -> u64 {
    let Frame::Text(text) = entry else {
        panic!("an owner is a text, not {entry:?}");
    };
    let text = String::from_utf8_lossy(text);
    let number = text
        .rsplit(':')
        .next()
        .and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{text} is no owner"))
}
