//! Threads that work on orders, each order by one thread of all processes at a time: `cargo run --example blocking_worker --features
//! blocking`, in two terminals.
//!
//! The server is that of `REDIS_URL`, or `redis://127.0.0.1:6379`.

use std::{sync::Mutex, thread, time::Duration};

use redisson_lock::{Error, blocking::LockClient};

/// Handles the `orders` that no other process handles now, with this many threads. Returns the handled ones. A real worker also checks
/// under the lock that the order is not done yet.
fn work(
    locks: &LockClient,
    threads: usize,
    orders: &[u32],
    handle: impl Fn(u32) + Sync,
) -> Result<Vec<u32>, Error> {
    let (next, done) = (Mutex::new(orders.iter()), Mutex::new(Vec::new()));
    let run = || {
        loop {
            let order = next.lock().unwrap().next().copied();
            let Some(order) = order else {
                return Ok(());
            };
            // The client's own thread renews the lock, even if this thread is busy.
            let lock = locks.reentrant_lock(format!("order:{order}"));
            if let Some(guard) = lock.try_lock()? {
                handle(order);
                done.lock().unwrap().push(order);
                guard.unlock()?;
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let ended = workers.into_iter().map(|worker| worker.join().unwrap());
        ended.collect::<Result<(), Error>>()
    })?;
    Ok(done.into_inner().unwrap())
}

fn main() -> Result<(), Error> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let locks = LockClient::connect(url)?;
    let orders: Vec<u32> = (1..=20).collect();
    let done = work(&locks, 4, &orders, |order| {
        println!("order {order}");
        thread::sleep(Duration::from_millis(200));
    })?;
    println!(
        "{} of {} orders were handled here",
        done.len(),
        orders.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use testbed::Server;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn no_order_is_handled_by_two_at_a_time() {
        let server = Server::start().await;
        let url = server.url();
        let played = tokio::task::spawn_blocking(move || {
            let processes = [&url, &url].map(|url| LockClient::connect(url).unwrap());
            let orders: Vec<u32> = (1..=40).collect();
            let inside = Mutex::new(HashSet::new());
            let handle = |order: u32| {
                assert!(
                    inside.lock().unwrap().insert(order),
                    "two threads handle {order}"
                );
                thread::yield_now();
                inside.lock().unwrap().remove(&order);
            };
            let done = thread::scope(|scope| {
                let works = processes.each_ref().map(|locks| {
                    let (orders, handle) = (&orders, &handle);
                    scope.spawn(move || work(locks, 4, orders, handle).unwrap())
                });
                works.map(|work| work.join().unwrap()).concat()
            });
            let done: HashSet<_> = done.into_iter().collect();
            assert_eq!(done.len(), 40, "some order was left: {done:?}");
        });
        played.await.unwrap();
        assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
    }
}
