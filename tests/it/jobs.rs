//! `run_at_least` and its outcomes: a job that one instance runs per tick.

use std::{
    env,
    future::pending,
    process::Command,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
    time::{Duration, Instant},
};

use redisson_lock::{AtLeast, Config, Error, JobOutcome, Kind, Lock, LockClient, Owner, Released};
use testbed::{Child, Fate, Impostor, Part, Server, eventually};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use crate::{
    contract::subjects::{
        Fair, Fenced, NonReentrant, NonReentrantFair, Reentrant, Simple, Spin, Subject, Write,
    },
    hazards::stage::{connect, pttl, watched},
};

const SOON: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(100);

async fn bed() -> (Server, LockClient, LockClient) {
    let server = Server::start().await;
    let connect = async || connect(&server.url(), Config::default()).await;
    let (one, other) = (connect().await, connect().await);
    (server, one, other)
}

/// The time for which a finished job's lock is kept.
fn kept_for<T: std::fmt::Debug>(outcome: Result<JobOutcome<T>, Error>) -> Duration {
    match outcome {
        Ok(JobOutcome::Done { kept_for }) => kept_for,
        odd => panic!("the job is done: {odd:?}"),
    }
}

fn is_running<T>(outcome: &Result<JobOutcome<T>, Error>) -> bool {
    matches!(
        outcome,
        Ok(JobOutcome::Running { lease_left: Some(left) }) if *left > SOON / 2
    )
}

async fn tells_its_outcomes_apart<S: Subject>() {
    let (server, one, other) = bed().await;
    let (ours, theirs) = (S::lock(&one, "job"), S::lock(&other, "job"));
    let body = async |_: &_| {
        let seen = theirs
            .run_at_least(LONG, async |_| -> u8 { panic!("the lock is held") })
            .await;
        assert!(is_running(&seen), "{seen:?}");
        7
    };
    assert_eq!(ours.run_at_least(LONG, body).await, Ok(JobOutcome::Ran(7)));
    for lock in [&theirs, &ours] {
        let kept = kept_for(
            lock.run_at_least(LONG, async |_| -> u8 { panic!("it is done") })
                .await,
        );
        assert!(kept <= LONG && kept > LONG - SOON, "{kept:?}");
        assert!(lock.try_lock().await.unwrap().is_none());
        assert_eq!(
            (lock.is_held().await, lock.hold_count().await),
            (Ok(false), Ok(0))
        );
        assert_eq!(lock.is_locked().await, Ok(true));
    }
    assert!(pttl(&server, "job").await <= LONG.as_millis() as i64);
    assert_eq!(one.holds(), []);
    // A forced unlock takes the mark along.
    assert_eq!(theirs.force_unlock().await, Ok(true));
    assert_eq!(
        theirs.run_at_least(LONG, async |_| 8).await,
        Ok(JobOutcome::Ran(8))
    );
    assert_eq!(theirs.force_unlock().await, Ok(true));
    assert_eq!(
        ours.run_at_least(SOON, async |_| 9).await.unwrap().ran(),
        Some(9)
    );
}

macro_rules! for_each_exclusive_kind {
    ($test:ident: $($name:ident $kind:ident),+) => { $(
        #[tokio::test]
        async fn $name() {
            $test::<$kind>().await;
        }
    )+ };
}

for_each_exclusive_kind! { tells_its_outcomes_apart:
    a_reentrant_job_tells_its_outcomes_apart Reentrant,
    a_fair_job_tells_its_outcomes_apart Fair,
    a_fenced_job_tells_its_outcomes_apart Fenced,
    a_spinning_job_tells_its_outcomes_apart Spin,
    a_non_reentrant_job_tells_its_outcomes_apart NonReentrant,
    a_non_reentrant_fair_job_tells_its_outcomes_apart NonReentrantFair,
    a_simple_job_tells_its_outcomes_apart Simple,
    a_writing_job_tells_its_outcomes_apart Write
}

#[tokio::test]
async fn a_read_lock_is_no_lock_of_a_job() {
    let (server, one, _) = bed().await;
    let lock = one.read_write_lock("job").read().clone();
    for lock in [
        lock.clone().into_dyn(),
        lock.into_dyn().owned_by(&Owner::new()),
    ] {
        let refused = lock.run_at_least(LONG, async |_| ()).await;
        assert!(matches!(refused, Err(Error::Config { .. })), "{refused:?}");
    }
    assert_eq!(server.command::<u32>(&["EXISTS", "job"]).await, 0);
}

/// Starts a call that waits for the job, in a task of its own.
fn await_job<K: Kind>(
    lock: &Lock<K>,
) -> tokio::task::JoinHandle<(Result<JobOutcome<u32>, Error>, Instant)> {
    let lock = lock.clone();
    tokio::spawn(async move {
        let least = AtLeast::always(LONG);
        let seen = lock.run_at_least_for(3 * LONG, least, async |_| 1).await;
        (seen, Instant::now())
    })
}

/// Completes when scripts have been called this often beside the present ones.
async fn are_refused(server: &Server, calls: u64) {
    let count = async || crate::hazards::stage::scripts(server).await;
    let before = count().await;
    eventually("the calls are refused", SOON, async || {
        count().await >= before + calls
    })
    .await;
}

/// Two waiters in each of two clients wait for one job. They end as soon as it is done, long before the lock is free.
async fn waiters_end_with_the_job<S: Subject>() {
    let (server, one, other) = bed().await;
    let lock = S::lock(&one, "job");
    let ready = Notify::new();
    let mut waiters = Vec::new();
    let body = async |_: &_| {
        for client in [&one, &other, &one, &other] {
            waiters.push(await_job(&S::lock(client, "job")));
        }
        are_refused(&server, 2).await;
        ready.notify_one();
        Instant::now()
    };
    let ran = lock.run_at_least(LONG, body).await.unwrap().ran().unwrap();
    for waiter in waiters {
        let (seen, ended) = timeout(SOON, waiter).await.unwrap().unwrap();
        let kept = kept_for(seen);
        assert!(kept > LONG - SOON, "{kept:?}");
        assert!(ended >= ran);
    }
    // The end of a wait leaves its place in the background.
    eventually("no place is left", SOON, async || {
        let places: Vec<String> = server.command(&["KEYS", "*queue*"]).await;
        places.is_empty()
    })
    .await;
}

for_each_exclusive_kind! { waiters_end_with_the_job:
    waiters_end_with_a_reentrant_job Reentrant,
    waiters_end_with_a_fair_job Fair,
    waiters_end_with_a_spinning_job Spin,
    waiters_end_with_a_simple_job Simple,
    waiters_end_with_a_writing_job Write
}

#[tokio::test]
async fn a_waiting_instance_runs_a_job_that_failed() {
    let (server, one, other) = bed().await;
    let (lock, rival) = (one.reentrant_lock("job"), other.reentrant_lock("job"));
    let least = || AtLeast::if_ok(LONG);
    let mut waiter = None;
    let fails = async |_: &_| {
        waiter = Some(await_job(&rival));
        are_refused(&server, 2).await;
        Err::<u32, _>("no")
    };
    let ran = lock.run_at_least(least(), fails).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(Err("no"))));
    let taken_over = timeout(SOON, waiter.unwrap()).await.unwrap().unwrap().0;
    assert_eq!(taken_over, Ok(JobOutcome::Ran(1)));
    assert_eq!(rival.force_unlock().await, Ok(true));
    let ran = lock
        .run_at_least(least(), async |_| Err::<u32, _>("no"))
        .await;
    assert_eq!(ran, Ok(JobOutcome::Ran(Err("no"))));
    assert_eq!(server.command::<u32>(&["EXISTS", "job"]).await, 0);
    let ran = lock.run_at_least(least(), async |_| Ok::<_, &str>(2)).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(Ok(2))));
    kept_for(rival.run_at_least(LONG, async |_| ()).await);
    assert_eq!(rival.force_unlock().await, Ok(true));
    // Without a choice, the result changes nothing.
    let ran = lock.run_at_least(LONG, async |_| Err::<u32, _>("no")).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(Err("no"))));
    kept_for(rival.run_at_least(LONG, async |_| ()).await);
}

/// The window for hand-offs in memory is open at the end of the body.
#[tokio::test]
async fn a_waiting_task_of_the_client_is_not_handed_a_lock_that_is_kept() {
    let server = Server::start().await;
    let config = Config::default().with_local_hand_off(SOON);
    let client = connect(&server.url(), config).await;
    let lock = client.reentrant_lock("job");
    let mut waiter = None;
    let (began, least) = (Instant::now(), Duration::from_secs(2));
    let body = async |_: &_| {
        let lock = lock.owned_by(&Owner::new());
        waiter = Some(tokio::spawn(async move { lock.lock().await }));
        // The waiter begins its wait in memory.
        tokio::task::yield_now().await;
    };
    assert_eq!(
        lock.run_at_least(least, body).await,
        Ok(JobOutcome::Ran(()))
    );
    let guard = timeout(SOON, waiter.unwrap())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert!(began.elapsed() >= least, "{:?}", began.elapsed());
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}

/// A hold that the body leaves behind ends later. Its release keeps the lock for the rest of the time.
#[tokio::test]
async fn a_hold_that_outlives_the_body_leaves_a_lock_that_is_kept() {
    let (server, one, other) = bed().await;
    let (lock, rival) = (one.reentrant_lock("job"), other.reentrant_lock("job"));
    let body = async |guard: &redisson_lock::Guard<redisson_lock::Reentrant>| {
        let inner = lock.owned_by(&guard.owner()).lock().await;
        inner.unwrap()
    };
    let inner = lock.run_at_least(LONG, body).await.unwrap().ran().unwrap();
    assert_eq!(one.holds().len(), 1);
    let seen = rival.run_at_least(LONG, async |_| ()).await;
    assert!(is_running(&seen), "{seen:?}");
    assert_eq!(inner.unlock().await, Ok(Released::Fully));
    let kept = kept_for(rival.run_at_least(LONG, async |_| ()).await);
    assert!(kept <= LONG);
    assert!(pttl(&server, "job").await <= LONG.as_millis() as i64);
}

/// The same for a read hold that the body of a job on the write side leaves behind.
#[tokio::test]
async fn a_read_hold_that_outlives_the_body_leaves_a_lock_that_is_kept() {
    let (server, one, other) = bed().await;
    let [lock, rival] = [&one, &other].map(|client| client.read_write_lock("job"));
    let body = async |guard: &redisson_lock::Guard<redisson_lock::kind::Write>| {
        let reading = lock.read().owned_by(&guard.owner()).lock().await;
        reading.unwrap()
    };
    let reading = lock.write().run_at_least(LONG, body).await.unwrap();
    let reading = reading.ran().unwrap();
    kept_for(rival.write().run_at_least(LONG, async |_| ()).await);
    assert_eq!(reading.unlock().await, Ok(Released::Fully));
    let kept = kept_for(rival.write().run_at_least(LONG, async |_| ()).await);
    assert!(kept <= LONG);
    assert!(rival.read().try_lock().await.unwrap().is_none());
    assert!(pttl(&server, "job").await <= LONG.as_millis() as i64);
}

/// Extensions and long leases of the body end with it too.
#[tokio::test]
async fn the_end_of_the_body_cuts_a_longer_lease() {
    let (server, one, _) = bed().await;
    let lock = one.reentrant_lock("extended");
    let least = Duration::from_secs(30);
    let body = async |guard: &redisson_lock::Guard<_>| guard.extend(LONG).await;
    let ran = lock.run_at_least(least, body).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(Ok(()))));
    assert!((1..=30_000).contains(&pttl(&server, "extended").await));
    let lock = one.reentrant_lock("leased").with_lease(LONG);
    let ran = lock.run_at_least(least, async |_| ()).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(())));
    assert!((1..=30_000).contains(&pttl(&server, "leased").await));
}

/// A part that loses the first reply to a script that keeps a lock, and then the connection.
#[derive(Default)]
struct LosesMark(AtomicU32);

impl Part for &'static LosesMark {
    fn command(&self, _connection: usize, _words: &[&[u8]]) -> Fate {
        match self.0.compare_exchange(1, 2, SeqCst, SeqCst) {
            Ok(_) => Fate::HangUp,
            Err(_) => Fate::Pass,
        }
    }

    fn reply(&self, _connection: usize, words: &[&[u8]], reply: Vec<u8>) -> Vec<u8> {
        // The query of a job has the same word, and fewer words.
        let is_mark = words.len() == 8 && words[5] == b"run_at_least:done";
        let is_lost = is_mark && reply.starts_with(b":0");
        match is_lost && self.0.compare_exchange(0, 1, SeqCst, SeqCst).is_ok() {
            true => Vec::new(),
            false => reply,
        }
    }
}

#[tokio::test]
async fn a_mark_whose_reply_is_lost_counts() {
    let server = Server::start().await;
    let part: &'static LosesMark = Box::leak(Box::default());
    let impostor = Impostor::play(Some(server.port()), part).await;
    let client = connect(&impostor.url(), Config::default()).await;
    let lock = client.reentrant_lock("job");
    let ran = tokio::spawn(async move { lock.run_at_least(LONG, async |_| 7).await });
    eventually("the reply is lost", SOON, async || part.0.load(SeqCst) == 1).await;
    assert_eq!(client.reentrant_lock("free").is_locked().await, Ok(false));
    assert_eq!(part.0.load(SeqCst), 2);
    let ran = timeout(SOON, ran).await.unwrap().unwrap();
    assert_eq!(ran, Ok(JobOutcome::Ran(7)));
    assert_eq!(client.shutdown().await.unreleased, []);
    let other = connect(&server.url(), Config::default()).await;
    let lock = other.reentrant_lock("job");
    kept_for(lock.run_at_least(LONG, async |_| ()).await);
}

const CHILD: &str = "REDISSON_LOCK_TEST_JOB";

/// A program that is this test binary, with a job and then `end`.
fn program(this: &str, server: &Server, end: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("this binary"));
    command
        .args(["--exact", this, "--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{end} {}", server.url()));
    command
}

/// The lock is free when its time is over, however the program ends: with a job every 10 s and a least time of 3 s, it once stayed
/// held for 30 s, and each tick was skipped.
#[test]
fn the_end_of_the_program_leaves_a_lock_its_rest_of_the_time() {
    let this = "jobs::the_end_of_the_program_leaves_a_lock_its_rest_of_the_time";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Ok(given) = env::var(CHILD) {
        let (end, url) = given.split_once(' ').unwrap();
        return runtime.block_on(run_and_end(end, url));
    }
    runtime.block_on(async {
        let server = Server::start().await;
        for end in [
            "main",
            "shutdown",
            "shutdown_and_release",
            "shutdown_within",
            "exit",
        ] {
            let child = tokio::process::Command::from(program(this, &server, end))
                .kill_on_drop(true)
                .output();
            let done = timeout(SOON, child).await.unwrap().unwrap();
            assert!(done.status.success(), "{end}: {done:?}");
            let left = pttl(&server, end).await;
            assert!(left <= 3_000, "{end}: held for another {left} ms");
            eventually("the lock is free", SOON, async || {
                server.command::<u32>(&["EXISTS", end]).await == 0
            })
            .await;
        }
    });
}

async fn run_and_end(end: &str, url: &str) {
    let client = connect(url, Config::default()).await;
    let lock = client.reentrant_lock(end);
    let ran = lock.run_at_least(Duration::from_secs(3), async |_| 7).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(7)));
    let report = match end {
        "shutdown" => client.shutdown().await,
        "shutdown_and_release" => client.shutdown_and_release().await,
        "shutdown_within" => client.shutdown_within(SOON).await,
        "exit" => std::process::exit(0),
        _ => return,
    };
    assert_eq!(
        report.unreleased,
        [],
        "a lock that is kept on purpose is not left behind"
    );
}

/// The watchdog's lease of the program that is killed, and of its heirs.
const LEASE: Duration = Duration::from_secs(3);

#[test]
fn a_job_whose_process_is_killed_is_taken_over() {
    let this = "jobs::a_job_whose_process_is_killed_is_taken_over";
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if let Ok(given) = env::var(CHILD) {
        let (_, url) = given.split_once(' ').unwrap();
        return runtime.block_on(async {
            let lock = connect(url, watched(LEASE)).await.reentrant_lock("job");
            let body = async |_: &_| {
                println!("\n> runs");
                pending::<()>().await;
            };
            let _ = lock.run_at_least(LONG, body).await;
        });
    }
    runtime.block_on(async {
        let server = Server::start().await;
        let mut child = Child::spawn(program(this, &server, "killed"));
        while child.line(SOON).await != "> runs" {}
        let heir = connect(&server.url(), watched(LEASE))
            .await
            .reentrant_lock("job");
        let look = async || {
            heir.run_at_least(LONG, async |_| -> u8 { panic!("the lock is held") })
                .await
        };
        let seen = look().await;
        assert!(matches!(seen, Ok(JobOutcome::Running { .. })), "{seen:?}");
        // The watchdog of a living runner keeps the lease above its half.
        sleep(LEASE).await;
        let seen = look().await;
        assert!(matches!(seen, Ok(JobOutcome::Running { .. })), "{seen:?}");
        child.kill();
        eventually("the crash shows", SOON, async || match look().await {
            Ok(JobOutcome::Crashed { lease_left }) => lease_left <= LEASE / 2,
            Ok(JobOutcome::Running { .. }) => false,
            odd => panic!("{odd:?}"),
        })
        .await;
        let least = AtLeast::always(LONG);
        let taken_over = heir.run_at_least_for(SOON, least, async |_| 8).await;
        assert_eq!(taken_over, Ok(JobOutcome::Ran(8)));
        kept_for(look().await);
    });
}

/// Two instances with this recipe run each tick once.
#[tokio::test]
async fn each_tick_runs_once_in_instances_whose_clocks_differ() {
    let (_server, one, other) = bed().await;
    let runs = AtomicU32::new(0);
    let least = Duration::from_millis(700);
    for tick in 1..=3 {
        let instances = [&one, &other, &one, &other].into_iter().enumerate();
        let calls = instances.map(async |(number, client)| {
            // An instance's clock is late.
            sleep(Duration::from_millis(50 * number as u64)).await;
            let body = async |_: &_| {
                sleep(Duration::from_millis(100)).await;
                runs.fetch_add(1, SeqCst);
            };
            let job = client.reentrant_lock("job");
            let least = AtLeast::always(least);
            let outcome = job.run_at_least_for(SOON, least, body).await.unwrap();
            assert!(outcome.is_done(), "{outcome:?}");
        });
        futures_util::future::join_all(calls).await;
        assert_eq!(runs.load(SeqCst), tick);
        eventually("the tick is over", SOON, async || {
            one.reentrant_lock("job").is_locked().await == Ok(false)
        })
        .await;
    }
}
