//! Credentials that a callback gives for each connection: counted, refused, late, and tokens that end.

mod counts;
mod failures;
mod subscribers;
mod tokens;

use std::{collections::HashMap, time::Duration};

use redisson_lock::{LockClient, Owner, Released};
use testbed::{Impostor, Part, Server};

const SOON: Duration = Duration::from_secs(20);

async fn within<T>(future: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(SOON, future).await;
    done.expect("the call ends in time")
}

/// Acquires a lock, waits for it in another client, and hands it over by a message.
async fn hand_over(clients: [&LockClient; 2], name: &str) {
    let lock = clients[0].reentrant_lock(name);
    let guard = within(lock.lock()).await.unwrap();
    let other = clients[1].reentrant_lock(name).owned_by(&Owner::new());
    let waiter = tokio::spawn(async move { other.lock().await?.unlock().await });
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(within(waiter).await.unwrap(), Ok(Released::Fully));
}

/// An impostor in front of each server, which plays the part that `part` makes of the server's port. The map leads from ports of
/// servers to ports of impostors.
async fn behind<P: Part>(
    servers: impl IntoIterator<Item = &Server>,
    part: impl Fn(u16) -> P,
) -> (Vec<Impostor>, HashMap<u16, u16>) {
    let (mut impostors, mut ports) = (Vec::new(), HashMap::new());
    for server in servers {
        let impostor = Impostor::play(Some(server.port()), part(server.port())).await;
        ports.insert(server.port(), impostor.port());
        impostors.push(impostor);
    }
    (impostors, ports)
}
