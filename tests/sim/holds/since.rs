//! Since when a lock is held, as far as anything tells. Under a paused clock.

use std::time::{Duration, SystemTime};

use redisson_lock::{Owner, Since};
use redisson_lock_test::InMemoryRedis;
use tokio::time::sleep;

use crate::support::polling_client;

const HELD: Duration = Duration::from_secs(100);

#[tokio::test(start_paused = true)]
async fn a_client_knows_its_own_holds_exactly() {
    let server = InMemoryRedis::new();
    let client = polling_client(&server).await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    let guard = lock.lock().await.unwrap();
    sleep(HELD).await;
    // A re-entry, a renewal and a reconnection begin nothing.
    let _inner = lock.lock().await.unwrap();
    server.disconnect();
    sleep(HELD).await;
    let holder = &lock.holders().await.unwrap()[0];
    assert_eq!(holder.since, Since::At(guard.since()));
    assert_eq!(holder.since, Since::At(client.holds()[0].since));
    let age = holder.since.at_most().unwrap();
    assert!(age >= 2 * HELD && age < 2 * HELD + Duration::from_secs(1));
    assert!(holder.to_string().contains(", held for 200."), "{holder}");
    // Each side of a read-write lock has its own time.
    let both = client.read_write_lock("b");
    let writes = both.write().lock().await.unwrap();
    sleep(HELD).await;
    let reads = both.read().lock().await.unwrap();
    for holder in both.read().holders().await.unwrap() {
        let since = match holder.writes {
            true => writes.since(),
            false => reads.since(),
        };
        assert_eq!(holder.since, Since::At(since));
    }
}

#[tokio::test(start_paused = true)]
async fn the_id_of_another_client_bounds_the_age_of_its_holds() {
    let before = SystemTime::now() - Duration::from_millis(1);
    let server = InMemoryRedis::new();
    let (one, other) = (polling_client(&server).await, polling_client(&server).await);
    let _guard = other.reentrant_lock("a").lock().await.unwrap();
    let found = &one.reentrant_lock("a").holders().await.unwrap()[0];
    assert!(
        matches!(found.since, Since::NotBefore(made) if made >= before && made <= SystemTime::now()),
        "{:?}",
        found.since
    );
    assert_eq!(found.client_name, None);
}

#[tokio::test(start_paused = true)]
async fn nothing_tells_the_age_of_a_hold_of_java() {
    let server = InMemoryRedis::new();
    let raw = server.raw().await.unwrap();
    let java = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47";
    raw.send("HSET", &["a", java, "1"]).await.unwrap();
    let client = polling_client(&server).await;
    let found = &client.reentrant_lock("a").holders().await.unwrap()[0];
    assert_eq!((found.since, &found.client_name), (Since::Unknown, &None));
    assert_eq!(found.since.at_most(), None);
    assert_eq!(found.to_string(), format!("{java}, without expiry"));
}
