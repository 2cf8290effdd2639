//! The server's cost of a release, by the number of readers.

use super::Shelf;
use crate::scripts::READ_RELEASE;

const READERS: [u32; 3] = [10, 1_000, 5_000];
const ROUNDS: usize = 200;

/// The shortest time of a reader's release beside this many further readers, in microseconds of the
/// server. Other programs on the machine slow most calls, and so the median.
async fn release_beside(readers: u32) -> f64 {
    let shelf = Shelf::new().await;
    let server = &shelf.witness.server;
    let mut admin = server.admin().await;
    for threads in (0..readers).collect::<Vec<_>>().chunks(1_000) {
        let mut pipe = redis::pipe();
        for thread in threads {
            let owner = format!("33333333-3333-4333-8333-333333333333:{thread}");
            pipe.hset(&shelf.name, &owner, 1).ignore();
            pipe.pset_ex(shelf.marker(&owner, 1), 1, 30_000).ignore();
        }
        pipe.hset(&shelf.name, "mode", "read").ignore();
        pipe.pexpire(&shelf.name, 30_000).ignore();
        let () = pipe.query_async(&mut admin).await.unwrap();
    }
    let lock = shelf.lock(&shelf.witness.a_client().await);
    // From now on the server caches the scripts.
    let first = lock.read().lock().await.unwrap();
    first.unlock().await.unwrap();
    for (setting, value) in [
        ("slowlog-log-slower-than", "0"),
        ("slowlog-max-len", "10000"),
    ] {
        let () = server.command(&["CONFIG", "SET", setting, value]).await;
    }
    let release: String = server.command(&["SCRIPT", "LOAD", READ_RELEASE]).await;
    let () = server.command(&["SLOWLOG", "RESET"]).await;
    for _ in 0..ROUNDS {
        let guard = lock.read().lock().await.unwrap();
        guard.unlock().await.unwrap();
    }
    let log: Vec<(u64, u64, u64, Vec<String>, String, String)> =
        server.command(&["SLOWLOG", "GET", "-1"]).await;
    let releases = log
        .iter()
        .filter(|entry| entry.3[0] == "EVALSHA" && entry.3[1] == release);
    let micros: Vec<u64> = releases.map(|entry| entry.2).collect();
    assert!(micros.len() >= ROUNDS, "{} releases", micros.len());
    *micros.iter().min().unwrap() as f64
}

/// Each release once looked at all other readers: 10 us beside 10 of them, 521 us beside 5,000.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_costs_as_much_beside_many_readers_as_beside_a_few() {
    let mut costs = Vec::new();
    for readers in READERS {
        costs.push(release_beside(readers).await);
    }
    println!("{costs:?} us beside {READERS:?} readers");
    assert!(costs[2] <= 3.0 * costs[0], "{costs:?} us");
}

/// P-RW6: another program's fields may have any count. A negative one once let the next one pass the bound of the look-ups.
#[tokio::test]
async fn no_count_makes_the_list_of_holders_cost_much() {
    let shelf = Shelf::new().await;
    let (server, name) = (&shelf.witness.server, &shelf.name);
    let counts = [
        "HSET", name, "mode", "read", "a:1", "-1000000", "b:2", "1000000",
    ];
    let () = server.command(&counts).await;
    let lock = shelf.lock(&shelf.witness.a_client().await);
    server.reset_calls().await;
    assert_eq!(lock.read().holders().await.unwrap().len(), 1);
    let looks = server.calls().await["pttl"];
    assert!(looks <= 10_000 + 10, "{looks}");
}
