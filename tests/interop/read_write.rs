//! Tests of read-write locks only: readers share, and a writer can become a reader.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use futures_util::future::{join, join_all};
use testbed::{Peer, eventually};
use tokio::time::{sleep, timeout};

use crate::kinds::{FAIR, READ, WRITE};
use crate::stage::{AMPLE, LONG, Pace, Stage, Version, now_ms};
use crate::worker::{Lock, Worker};

/// The limit for three turns of a writer that passes a gate.
const TURN_WITHIN: Duration = Duration::from_secs(5);
/// The limit from the request to unlock until the waiter has the lock.
const WOKEN_WITHIN: Duration = Duration::from_secs(5);

pub async fn readers_share_and_writers_do_not(version: Version) {
    let stage = version.stage().await;
    for (one, other) in stage.both_ways(&READ) {
        let (reader, other_reader) = (one, other.with(&READ));
        let writer = reader.lock.of(&WRITE).worker(reader.peer);
        let other_writer = other_reader.with(&WRITE);
        let third = other_reader.lock.worker(other_reader.peer);
        reader.lock().await;
        assert!(other_reader.try_lock().await && third.try_lock().await);
        assert!(
            !writer.try_lock().await,
            "{writer} acquired the lock beside a reader"
        );
        third.unlock().await;
        other_reader.unlock().await;
        assert!(
            !other_writer.try_lock().await,
            "{reader} still holds the lock"
        );
        reader.unlock().await;

        writer.lock().await;
        assert!(
            !reader.try_lock().await,
            "{reader} acquired the lock beside a writer"
        );
        assert!(!other_reader.try_lock().await && !other_writer.try_lock().await);
        writer.unlock().await;
        assert!(other_writer.try_lock().await);
        other_writer.unlock().await;
    }
}

/// Readers see no counter change, and writers lose no increment.
pub async fn a_counter_that_is_read_and_written(version: Version) {
    const TIMES: usize = 60;
    let stage = version.stage().await;
    let read = Lock::new(&READ);
    let write = read.of(&WRITE);
    let counter = stage.server.name("counter").await;
    let times = TIMES.to_string();
    let ask =
        |lock: &Lock, peer: &Peer, verb: &str| lock.worker(peer).ask(verb, &[&counter, &times]);
    let (mut watching, mut working) = (Vec::new(), Vec::new());
    for peer in [&stage.java, &stage.rust] {
        for _ in 0..2 {
            working.push(ask(&write, peer, "work"));
            watching.push(ask(&read, peer, "watch"));
        }
    }
    for watcher in watching {
        let changed = watcher.await.unwrap_or_else(|refused| panic!("{refused}"));
        assert_eq!(changed, ["0"], "the counter changed under a reader");
    }
    for worker in working {
        worker.await.unwrap_or_else(|refused| panic!("{refused}"));
    }
    let counted: usize = stage.server.command(&["GET", &counter]).await;
    assert_eq!(counted, 4 * TIMES, "increments were lost");
    assert_eq!(stage.pttl(&read).await, -2, "the lock is still held");
}

pub async fn a_writers_release_wakes_all_waiting_readers(version: Version) {
    let stage = version.stage().await;
    for (writer, reader) in stage.both_ways(&WRITE) {
        let lock = writer.lock.of(&READ);
        writer.lock_for(LONG).await;
        let readers = [reader.peer, reader.peer, writer.peer, writer.peer];
        let waiting = readers.map(|peer| lock.worker(peer).lock_for(LONG));
        stage.waiting_processes(&lock, 2).await;
        writer.unlock().await;
        for inside in waiting {
            let inside = timeout(WOKEN_WITHIN, inside).await;
            inside.unwrap_or_else(|_| panic!("{writer}'s unlock woke too few readers"));
        }
        assert_eq!(
            stage.fields(&lock).await.len(),
            4,
            "four readers hold the lock"
        );
    }
}

/// A Rust writer that becomes a reader publishes a message for Redisson's waiting readers (P-W10).
/// Redisson publishes none, so Rust readers acquire the lock by a poll, which comes soon here.
pub async fn a_downgrade_lets_readers_in(version: Version) {
    let stage = version.own_stage(Pace::SHORT_PLACES).await;
    for (writer, reader) in stage.both_ways(&WRITE) {
        let (own_reader, reader) = (writer.with(&READ), reader.with(&READ));
        let other_writer = reader.lock.of(&WRITE).worker(reader.peer);
        writer.lock_for(LONG).await;
        own_reader.lock_for(LONG).await;
        let waiting = reader.lock_for(LONG);
        stage.waiting(&writer.lock).await;
        writer.unlock().await;
        let inside = timeout(WOKEN_WITHIN, waiting).await;
        inside.unwrap_or_else(|_| panic!("{writer}'s downgrade did not admit {reader}"));
        assert!(own_reader.is_held().await && reader.is_held().await);
        assert!(!writer.is_held().await && !other_writer.try_lock().await);
        own_reader.unlock().await;
        assert!(
            !other_writer.try_lock().await,
            "{reader} still holds the lock"
        );
        reader.unlock().await;
        assert!(other_writer.try_lock().await);
        other_writer.unlock().await;
    }
}

pub async fn a_dead_java_reader_frees_the_writer(version: Version) {
    let stage = version.own_stage(Pace::SHORT_LEASES).await;
    a_dead_reader(&stage, &stage.java, &stage.rust, true).await;
}

pub async fn a_dead_rust_reader_frees_the_writer(version: Version) {
    let stage = version.own_stage(Pace::SHORT_LEASES).await;
    // Before 4.4.0, Redisson's readers renew all readers' holds as long as they hold the lock.
    let ends = !version.is_before(4, 4);
    a_dead_reader(&stage, &stage.rust, &stage.java, ends).await;
}

/// Two readers hold the lock, and one dies. If `ends`, its hold ends with its lease, although the
/// other one goes on. The other reader's release frees the lock, at once or within a lease (P-RW5).
async fn a_dead_reader(stage: &Stage, dies: &Peer, lives: &Peer, ends: bool) {
    let lock = Lock::new(&READ);
    let (dead, alive) = (lock.worker(dies), lock.worker(lives));
    let writer = lock.of(&WRITE).worker(lives);
    dead.lock().await;
    alive.lock().await;
    let owner = dead.owner().await;
    dies.kill();
    let marker = format!("{{{}}}:{owner}:rwlock_timeout:1", lock.name);
    let what = format!("the dead reader's marker has expired: {marker}");
    let gone = async || stage.server.command::<u64>(&["EXISTS", &marker]).await == 0;
    assert!(!gone().await, "{marker} must exist at first");
    if ends {
        eventually(&what, AMPLE, gone).await;
    }
    assert!(alive.is_held().await, "{alive} has lost its hold");
    let waiting = writer.lock_for(LONG);
    stage.waiting(&lock).await;
    let unlocked = now_ms();
    alive.unlock().await;
    let waited = waiting.await.saturating_sub(unlocked);
    let lease = Pace::SHORT_LEASES.watchdog.as_millis() as u64;
    let most = if ends { lease / 2 } else { lease * 2 };
    assert!(
        waited <= most,
        "{writer} acquired the lock after {waited} ms"
    );
    writer.unlock().await;
}

/// What docs/read-write-lock.md recommends. Without the gate a Java writer waits for as long as the readers overlap.
pub async fn a_gate_lets_a_writer_in_beside_overlapping_readers(version: Version) {
    let stage = version.stage().await;
    for (reading, writing) in [(&stage.rust, &stage.java), (&stage.java, &stage.rust)] {
        let lock = Lock::new(&READ);
        let gate = Lock {
            name: format!("{}:gate", lock.name),
            kind: &FAIR,
        };
        let over = AtomicBool::new(false);
        let readers = (0..6).map(async |number| {
            let reader = lock.worker(reading);
            let at_gate = at(&gate, &reader);
            sleep(Duration::from_millis(10 * number)).await;
            while !over.load(SeqCst) {
                at_gate.lock().await;
                reader.lock().await;
                at_gate.unlock().await;
                sleep(Duration::from_millis(60)).await;
                reader.unlock().await;
            }
        });
        let writer = async {
            let writer = lock.of(&WRITE).worker(writing);
            let at_gate = at(&gate, &writer);
            sleep(Duration::from_millis(200)).await;
            let mut turns = 0;
            let wrote = timeout(TURN_WITHIN, async {
                while turns < 3 {
                    at_gate.lock().await;
                    writer.lock().await;
                    writer.unlock().await;
                    at_gate.unlock().await;
                    turns += 1;
                }
            });
            let wrote = wrote.await;
            over.store(true, SeqCst);
            assert!(wrote.is_ok(), "{writer} had {turns} turns");
        };
        join(join_all(readers), writer).await;
    }
}

/// The same thread or task, at the gate.
fn at<'a>(gate: &Lock, worker: &Worker<'a>) -> Worker<'a> {
    Worker {
        peer: worker.peer,
        label: worker.label.clone(),
        lock: gate.clone(),
    }
}
