//! A group of locks whose members are contended by many tasks, or by other groups. Under a paused clock.

use std::time::Duration;

use redisson_lock::{Config, LockClient, Owner};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Delivering, Fate, Faults},
};
use tokio::time::{Instant, sleep};

/// A network with a short delay each way.
struct Distant;

const WAY: Duration = Duration::from_micros(100);

impl Faults for Distant {
    fn sending(&mut self, _connection: u64, _command: &'static str) -> Fate {
        Fate {
            delay: WAY,
            ending: None,
        }
    }

    fn answering(&mut self, _connection: u64) -> Duration {
        WAY
    }

    fn delivering(&mut self, _connection: u64) -> Delivering {
        Delivering::After(WAY)
    }
}

const NAMES: [&str; 2] = ["a", "b"];
const TASKS: usize = 8;
const WORK: Duration = Duration::from_millis(1);
const LASTING: Duration = Duration::from_secs(6);

/// Spawns tasks that acquire each lock again and again.
fn crowd(client: &LockClient) {
    for name in NAMES {
        for _ in 0..TASKS {
            let lock = client.reentrant_lock(name).owned_by(&Owner::new());
            tokio::spawn(async move {
                loop {
                    let guard = lock.lock().await.unwrap();
                    sleep(WORK).await;
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
}

/// How often a group is acquired within [`LASTING`], and its longest wait. With `polls`, it calls `try_lock` after such pauses.
async fn entries(local_hand_off: Duration, polls: Option<Duration>) -> (u32, Duration) {
    let server = InMemoryRedis::new();
    server.set_faults(Distant);
    let config = Config::default().with_local_hand_off(local_hand_off);
    let crowded = server.client_with(config.clone()).await.unwrap();
    let client = server.client_with(config).await.unwrap();
    let group = client.multi_lock(NAMES);
    crowd(&crowded);
    let (began, mut entered, mut longest) = (Instant::now(), 0, Duration::ZERO);
    while began.elapsed() < LASTING {
        let since = Instant::now();
        let guard = match polls {
            None => group.lock().await.unwrap(),
            Some(pause) => match group.try_lock().await.unwrap() {
                Some(guard) => guard,
                None => {
                    sleep(pause).await;
                    continue;
                }
            },
        };
        longest = longest.max(since.elapsed());
        entered += 1;
        sleep(WORK).await;
        guard.unlock().await.unwrap();
    }
    (entered, longest)
}

#[tokio::test(start_paused = true)]
async fn a_group_enters_beside_crowds_at_its_members() {
    let (with, longest) = entries(Config::default().local_hand_off, None).await;
    let (without, _) = entries(Duration::ZERO, None).await;
    // Contended locks are seldom free at the same time: a group that kept no members was acquired six times in 20 s.
    assert!(2 * with >= without && with > 60, "{with} and {without}");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
    // A group that calls `try_lock` every millisecond.
    let (with, _) = entries(Config::default().local_hand_off, Some(WORK)).await;
    let (without, _) = entries(Duration::ZERO, Some(WORK)).await;
    assert!(2 * with >= without && with > 30, "{with} and {without}");
}

/// Two clients acquire overlapping groups of three locks.
#[tokio::test(start_paused = true)]
async fn groups_that_overlap_do_not_wait_for_each_other_in_a_circle() {
    const GROUPS: [&[&str]; 4] = [&["a", "b", "c"], &["a", "c"], &["b", "c"], &["a", "b"]];
    const ENTRIES: usize = 100;
    let server = InMemoryRedis::new();
    server.set_faults(Distant);
    let mut tasks = Vec::new();
    for _client in 0..2 {
        // Without hand-offs in memory, each group sends attempts to the server.
        let config = Config::default().with_local_hand_off(Duration::ZERO);
        let client = server.client_with(config).await.unwrap();
        for names in GROUPS {
            let group = client
                .multi_lock(names.iter().copied())
                .owned_by(&Owner::new());
            tasks.push(tokio::spawn(async move {
                let mut longest = Duration::ZERO;
                for _ in 0..ENTRIES {
                    let since = Instant::now();
                    let guard = group.lock().await.unwrap();
                    longest = longest.max(since.elapsed());
                    sleep(WORK).await;
                    guard.unlock().await.unwrap();
                }
                longest
            }));
        }
    }
    let began = Instant::now();
    let mut longest = Duration::ZERO;
    for task in tasks {
        longest = longest.max(task.await.unwrap());
    }
    // Groups that kept members in any order took 45 s, with longest waits of 5 to 9 s.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(15), "{took:?}");
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}
