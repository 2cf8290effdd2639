//! The blocking API, and clients on their own threads.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use redisson_lock::{
    AnyLock, AtLeast, Config, Error, JobOutcome, LostReason, Owner, Reentrant, Released,
    blocking::{Guard, LockClient, MultiGuard, MultiLock, RedLock},
};
use testbed::{Proxy, Server, eventually};

use crate::{hostile::log_lines::LogLines, witness::busy_at_worst};

/// The limit for steps that take milliseconds.
const SOON: Duration = Duration::from_secs(20);

/// Runs `program` on a thread without a runtime.
async fn plainly<T: Send + 'static>(program: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = tokio::sync::oneshot::channel();
    thread::spawn(move || done.send(program()));
    result.await.expect("the program panicked")
}

fn watched(lease: Duration) -> Config {
    Config::default().with_watchdog_lease(lease)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_is_an_owner_and_threads_exclude_each_other() {
    let server = Server::start().await;
    let url = server.url();
    plainly(move || {
        let client = LockClient::connect(url).unwrap();
        let lock = client.reentrant_lock("a");
        let outer = lock.lock().unwrap();
        let inner = lock.lock().unwrap();
        assert_eq!(lock.hold_count(), Ok(2));
        let other = lock.clone();
        let busy = thread::spawn(move || other.try_lock().unwrap().is_none());
        assert!(busy.join().unwrap(), "another thread is another owner");
        assert_eq!(inner.unlock(), Ok(Released::StillHeld { holds: 1 }));
        drop(outer);
        assert_eq!(lock.is_locked(), Ok(false));

        let inside = Arc::new(AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..25 {
                        let alone = |_: &_| {
                            assert_eq!(inside.fetch_add(1, SeqCst), 0, "two owners are inside");
                            thread::yield_now();
                            inside.fetch_sub(1, SeqCst);
                        };
                        lock.run(alone).unwrap();
                    }
                });
            }
        });
    })
    .await;
}

/// A dropped guard of every kind leaves the lock free.
#[tokio::test(flavor = "multi_thread")]
async fn every_kind_is_free_once_its_guard_is_dropped() {
    let server = Server::start().await;
    let url = server.url();
    plainly(move || {
        let client = LockClient::connect(&url).unwrap();
        let other = LockClient::connect(&url).unwrap();
        macro_rules! is_free_again {
            ($lock:ident) => {{
                let guard = client.$lock(stringify!($lock)).try_lock().unwrap().unwrap();
                let rival = other.$lock(stringify!($lock));
                assert!(rival.try_lock().unwrap().is_none(), stringify!($lock));
                assert!(!guard.is_lost());
                drop(guard);
                assert!(
                    rival.try_lock_for(SOON).unwrap().is_some(),
                    stringify!($lock)
                );
            }};
        }
        is_free_again!(reentrant_lock);
        is_free_again!(fair_lock);
        is_free_again!(fenced_lock);
        is_free_again!(spin_lock);
        is_free_again!(non_reentrant_lock);
        is_free_again!(non_reentrant_fair_lock);
        is_free_again!(simple_lock);

        let both = client.read_write_lock("rw");
        let reads = both.read().lock().unwrap();
        assert!(
            other
                .read_write_lock("rw")
                .write()
                .try_lock()
                .unwrap()
                .is_none()
        );
        drop(reads);
        drop(
            other
                .read_write_lock("rw")
                .write()
                .try_lock()
                .unwrap()
                .unwrap(),
        );

        let group = client.multi_lock(["x", "y"]).lock().unwrap();
        assert!(other.reentrant_lock("y").try_lock().unwrap().is_none());
        drop(group);
        assert!(other.red_lock(["x", "y"]).try_lock().unwrap().is_some());

        client.reentrant_lock("left").lock().unwrap().leak();
        assert_eq!(client.reentrant_lock("left").unlock(), Ok(Released::Fully));
        let fenced = client.fenced_lock("fenced").lock().unwrap();
        assert!(fenced.token() > 0);
    })
    .await;
    eventually("no lock is held", SOON, async || {
        server
            .command::<Vec<String>>(&["KEYS", "*"])
            .await
            .iter()
            .all(|key| key.contains("token"))
    })
    .await;
}

const CHILD_URL: &str = "REDISSON_LOCK_TEST_EXIT_URL";

/// The process, and the client's thread with it, ends right after the last drop. The test runs
/// itself again as a child process.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_dropped_before_the_process_ends_is_released() {
    if let Ok(url) = std::env::var(CHILD_URL) {
        return plainly(move || drop_and_exit(&url)).await;
    }
    let server = Server::start().await;
    let this = "blocking::a_guard_dropped_before_the_process_ends_is_released";
    for _ in 0..5 {
        let child = tokio::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", this, "--nocapture"])
            .env(CHILD_URL, server.url())
            .kill_on_drop(true)
            .output();
        let done = tokio::time::timeout(SOON, child).await.unwrap().unwrap();
        assert_eq!(done.status.code(), Some(7), "{done:?}");
        assert_eq!(server.command::<u32>(&["EXISTS", "a", "b"]).await, 0);
    }
}

/// A thread-local may be dropped when no tokio context is left on its thread.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_in_a_thread_local_is_released() {
    type Kept = (Guard<Reentrant>, MultiGuard);
    thread_local! {
        static KEPT: std::cell::RefCell<Option<Kept>> = const { std::cell::RefCell::new(None) };
    }
    let server = Server::start().await;
    let client = {
        let url = server.url();
        plainly(move || LockClient::connect(url).unwrap()).await
    };
    let (lock, group) = (client.reentrant_lock("a"), client.multi_lock(["b", "c"]));
    // Thread-locals are dropped in turn, the first one last: this one before tokio's context or after it.
    for is_before_tokio in [false, true] {
        let (lock, group) = (lock.clone(), group.clone());
        let thread = thread::spawn(move || {
            if is_before_tokio {
                drop(tokio::runtime::Handle::try_current());
            }
            KEPT.with_borrow_mut(|kept| *kept = None);
            let guards = (lock.lock().unwrap(), group.lock().unwrap());
            KEPT.with_borrow_mut(|kept| *kept = Some(guards));
        });
        tokio::task::spawn_blocking(move || thread.join().unwrap())
            .await
            .unwrap();
        eventually("the locks are released", SOON, async || {
            server.command::<u32>(&["EXISTS", "a", "b", "c"]).await == 0
        })
        .await;
    }
    plainly(move || drop(client)).await;
}

/// The drop of one guard waits for its release, that of the other queues it.
fn drop_and_exit(url: &str) {
    let client = LockClient::connect(url).unwrap();
    let guard = client.reentrant_lock("a").lock().unwrap();
    let asynchronous = client.asynchronous().clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let held = runtime
        .block_on(asynchronous.reentrant_lock("b").lock())
        .unwrap();
    drop((client, asynchronous, guard, held));
    std::process::exit(7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_hold_is_an_error_that_keeps_the_result_of_the_body() {
    let server = Server::start().await;
    let url = server.url();
    plainly(move || {
        let client = LockClient::connect(&url).unwrap();
        let other = LockClient::connect(&url).unwrap();
        let lock = client.reentrant_lock("a");
        let ran = lock.run(|_| {
            assert_eq!(other.reentrant_lock("a").force_unlock(), Ok(true));
            String::from("done")
        });
        let lost = ran.unwrap_err();
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        assert_eq!(lost.take_result::<u32>(), None, "of another type");
        assert_eq!(lost.take_result::<String>().as_deref(), Some("done"));
        assert_eq!(lost.take_result::<String>(), None, "the result is taken");

        let guard = lock.with_lease(Duration::from_millis(100)).lock().unwrap();
        assert_eq!(guard.lost(), LostReason::Expired);
        assert!(guard.is_lost());
        assert!(matches!(guard.unlock(), Err(Error::Lost { .. })));
    })
    .await;
}

/// Neither the drop of a guard nor `run` returns the error of the release.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_release_that_no_caller_sees_is_logged() {
    let server = Server::start().await;
    let url = server.url();
    plainly(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let right = |right: &str| {
            let words = ["ACL", "SETUSER", "default", right];
            runtime.block_on(server.command::<()>(&words));
        };
        let forbid = || right("-@scripting");
        let is_logged = |case: &str, release: &dyn Fn(&LockClient)| {
            let client = LockClient::connect(&url).unwrap();
            let (lines, _keep) = LogLines::record(tracing::Level::WARN);
            release(&client);
            let told = lines.with("the server refuses a release");
            assert_eq!(told.len(), 1, "{case}: {told:?}");
            assert!(told[0].contains("NOPERM"), "{case}: {told:?}");
            right("+@all");
        };
        is_logged("run", &|client| {
            let ran = client.reentrant_lock("run").run(|_| forbid());
            ran.unwrap();
        });
        is_logged("run of a group", &|client| {
            let ran = client.multi_lock(["a", "b"]).run(|_| forbid());
            ran.unwrap();
        });
        is_logged("drop", &|client| {
            let _guard = client.reentrant_lock("drop").lock().unwrap();
            forbid();
        });
        is_logged("drop of a group", &|client| {
            let _guard = client.multi_lock(["c", "d"]).lock().unwrap();
            forbid();
        });
        is_logged("drop of a term", &|client| {
            let _term = client.election("term").campaign("me").unwrap();
            forbid();
        });
        is_logged("drop of permits", &|client| {
            let pool = client.semaphore("pool");
            pool.try_set_permits(1).unwrap();
            let _permit = pool.acquire().unwrap();
            forbid();
        });
        is_logged("drop of a permit with a lease", &|client| {
            let pool = client.permit_expirable_semaphore("leases");
            pool.try_set_permits(1).unwrap();
            let _permit = pool.with_lease(Duration::from_secs(30)).acquire().unwrap();
            forbid();
        });
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_keeps_its_lock_for_the_least_time() {
    let server = Server::start().await;
    let url = server.url();
    plainly(move || {
        let client = LockClient::connect(&url).unwrap();
        let other = LockClient::connect(&url).unwrap();
        let (lock, rival) = (client.reentrant_lock("a"), other.reentrant_lock("a"));
        let (least, began) = (Duration::from_secs(1), Instant::now());
        let nested = |guard: &Guard<Reentrant>| lock.owned_by(&guard.owner()).try_run(|_| 7);
        let ran = lock.run_at_least(least, nested);
        assert_eq!(ran, Ok(JobOutcome::Ran(Ok(Some(7)))));
        let done = rival.run_at_least(least, |_| 8);
        assert!(matches!(done, Ok(JobOutcome::Done { .. })), "{done:?}");
        let waits = AtLeast::if_ok(least);
        let done = rival.run_at_least_for(SOON, waits, |_| Err::<u8, _>(8));
        assert!(matches!(done, Ok(JobOutcome::Done { .. })), "{done:?}");
        assert!(began.elapsed() < least, "the job was done at once");
        let wait = Duration::from_millis(1);
        let busy = lock.owned_by(&Owner::new()).try_run_for(wait, |_| 8);
        assert_eq!(busy_at_worst(busy), None);
        let again = lock.try_run(|_| 9);
        assert_eq!(again, Ok(None), "the thread that ran it is refused too");
        let guard = rival.lock().unwrap();
        let waited = began.elapsed();
        assert!(waited >= least, "{waited:?}");
        guard.unlock().unwrap();
        let failed = lock.run_at_least(AtLeast::if_ok(least), |_| Err::<u8, _>(8));
        assert_eq!(failed, Ok(JobOutcome::Ran(Err(8))));
        assert_eq!(rival.is_locked(), Ok(false));
        let short = lock.run_at_least(Duration::ZERO, |_| ());
        assert!(matches!(short, Err(Error::Config { .. })), "{short:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_thread_leads_at_a_time() {
    let server = Server::start().await;
    let url = server.url();
    plainly(move || {
        let client = LockClient::connect(&url).unwrap();
        let other = LockClient::connect(&url).unwrap();
        let (ours, theirs) = (client.election("leaders"), other.election("leaders"));
        assert_eq!(theirs.leader(), Ok(None));
        let term = ours.campaign("one").unwrap();
        assert_eq!((term.identity(), term.is_lost()), ("one", false));
        let leader = theirs.leader().unwrap().unwrap();
        assert_eq!((&*leader.identity, leader.token), ("one", term.token()));
        let waits = thread::spawn(move || theirs.campaign("two").unwrap());
        let before = term.token();
        term.resign().unwrap();
        let next = waits.join().unwrap();
        assert!(next.token() > before && next.valid_until() > Instant::now());
        let token = next.cancellation_token();
        assert_eq!(client.fenced_lock("leaders").force_unlock(), Ok(true));
        assert!(matches!(
            next.lost(),
            LostReason::Gone | LostReason::Expired
        ));
        // Another thread cancels the token.
        let began = Instant::now();
        while !token.is_cancelled() {
            assert!(began.elapsed() < SOON);
            thread::yield_now();
        }
        drop(next);
        let mut seen = ours.observe().map(|leader| leader.unwrap());
        assert_eq!(seen.next(), Some(None));
        let third = ours.campaign("three").unwrap();
        let observed = seen.next().flatten().unwrap();
        assert_eq!(
            (&*observed.identity, observed.token),
            ("three", third.token())
        );
        drop(third);
        assert_eq!(ours.leader(), Ok(None), "a dropped term has ended");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unlock_each_reports_each_release() {
    let server = Server::start().await;
    let url = server.url();
    plainly(move || {
        let client = LockClient::connect(&url).unwrap();
        let guard = client.multi_fenced_lock(["a", "b"]).lock().unwrap();
        assert_eq!((guard.token_of("a"), guard.token_of("c")), (Some(1), None));
        let token = guard.cancellation_token();
        assert!(!token.is_cancelled());
        let each = guard.unlock_each();
        let each: Vec<_> = each.iter().map(|(name, done)| (&**name, done)).collect();
        let released = Ok(Released::Fully);
        assert_eq!(each, [("a", &released), ("b", &released)]);
        let (group, other) = (client.multi_lock(["a", "b"]), Owner::new());
        let busy = |_: &_| group.owned_by(&other).try_run(|_| 1);
        assert_eq!(group.try_run_for(SOON, busy), Ok(Some(Ok(None))));
        assert_eq!(group.try_run(|_| 2), Ok(Some(2)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_group_has_locks_of_several_servers() {
    let servers = [
        Server::start().await,
        Server::start().await,
        Server::start().await,
    ];
    let urls = servers.each_ref().map(Server::url);
    plainly(move || {
        // Each server has a 50th of the lease to answer: on a busy machine, a live server may take longer than 0.6 s.
        let config = watched(Duration::from_secs(150));
        let connect = || {
            urls.each_ref().map(|url| {
                let builder = redisson_lock::LockClient::builder();
                let builder = builder.url(url).config(config.clone());
                builder.build_blocking().unwrap()
            })
        };
        let (ours, theirs) = (connect(), connect());
        let of = |clients: &[LockClient]| {
            RedLock::of(clients.iter().map(|client| client.reentrant_lock("a")))
        };
        let guard = of(&ours).lock().unwrap();
        // A majority waits for a slow server for 10 ms.
        let is_locked = |client: &&LockClient| client.reentrant_lock("a").is_locked().unwrap();
        assert!(theirs.iter().filter(is_locked).count() >= 2);
        assert!(of(&theirs).try_lock().unwrap().is_none());
        assert_eq!(of(&ours[..2]).run(|_| 7), Ok(7), "the thread re-enters");
        assert_eq!(guard.unlock(), Ok(Released::Fully));
        // One of three is missing.
        let held = ours[0].reentrant_lock("a").lock().unwrap();
        // A late grant to the first group may still be given back.
        let majority = of(&theirs).try_lock_for(SOON).unwrap().unwrap();
        assert_eq!(majority.names().count(), 2);
        drop(majority);
        let read = theirs[1].read_write_lock("b");
        let (first, second) = (theirs[0].reentrant_lock("a"), read.read());
        let all = MultiLock::of([AnyLock::from(&first), AnyLock::from(second)]);
        assert!(all.try_lock().unwrap().is_none());
        drop(held);
        let asynchronous = redisson_lock::MultiLock::of([first]);
        drop(all.lock().unwrap());
        MultiLock::from(asynchronous).lock().unwrap().leak();
        let of_thread = theirs[0].reentrant_lock("a").unlock();
        assert_eq!(of_thread, Ok(Released::Fully));
        let empty = MultiLock::of([] as [AnyLock; 0]).lock().unwrap_err();
        assert!(matches!(empty, Error::Config { .. }), "{empty:?}");
    })
    .await;
}

/// A call uses the timers of one client's runtime, which ends with the client's last handle: the guard keeps each handle until
/// all locks are released.
#[tokio::test(flavor = "multi_thread")]
async fn a_guard_of_a_group_is_the_last_user_of_its_clients() {
    let (quick, slow) = (Server::start().await, Server::start().await);
    let urls = [quick.url(), slow.url()];
    let guard = plainly(move || {
        let clients = urls.map(|url| LockClient::connect(url).unwrap());
        let locks = clients.map(|client| client.reentrant_lock("a"));
        MultiLock::of(locks).lock().unwrap()
    })
    .await;
    let pause = ["CLIENT", "PAUSE", "1500", "WRITE"];
    slow.command::<()>(&pause).await;
    assert_eq!(plainly(|| guard.unlock()).await, Ok(Released::Fully));
}

/// A waiter on a thread ends with the client, whose runtime must not end before the waiter's
/// timers.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_ends_the_calls_of_all_threads() {
    let server = Server::start().await;
    let url = server.url();
    let other = redisson_lock::LockClient::connect(&url).await.unwrap();
    let _held = other.reentrant_lock("a").lock().await.unwrap();
    for _ in 0..10 {
        let url = url.clone();
        let client = plainly(move || LockClient::connect(url).unwrap()).await;
        let (waiting, late) = (client.clone(), client.clone());
        let waits = thread::spawn(move || waiting.reentrant_lock("a").try_lock_for(SOON).map(drop));
        eventually("the task waits", SOON, async || {
            let channels = server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]);
            !channels.await.is_empty()
        })
        .await;
        plainly(move || client.shutdown_and_release()).await;
        assert_eq!(waits.join().unwrap(), Err(Error::Closed));
        let later = plainly(move || late.reentrant_lock("a").lock().map(drop)).await;
        assert_eq!(later, Err(Error::Closed));
        eventually("no subscription is left", SOON, async || {
            let channels = server.command::<Vec<String>>(&["PUBSUB", "CHANNELS"]);
            channels.await.is_empty()
        })
        .await;
    }
}

/// `spawn_blocking`, a task and a passed-on owner: the surroundings of a call change nothing but
/// the thread.
#[tokio::test(flavor = "multi_thread")]
async fn blocking_calls_work_on_the_threads_of_a_runtime() {
    let server = Server::start().await;
    let url = server.url();
    let client = tokio::task::spawn_blocking(move || LockClient::connect(url).unwrap())
        .await
        .unwrap();
    let guard = client.reentrant_lock("a").lock().unwrap();
    let rival = client.clone();
    let in_pool = tokio::task::spawn_blocking(move || {
        let _guard = rival.reentrant_lock("b").lock().unwrap();
        rival.reentrant_lock("a").try_lock().unwrap().is_none()
    });
    assert!(in_pool.await.unwrap());
    // More operations than a task's cooperative budget.
    for _ in 0..200 {
        drop(client.reentrant_lock("c").lock().unwrap());
    }
    drop(guard);
    let session = Owner::new();
    let held = client
        .reentrant_lock("s")
        .owned_by(&session)
        .lock()
        .unwrap();
    let again = client.clone();
    let entered = tokio::task::spawn_blocking(move || {
        let lock = again.reentrant_lock("s").owned_by(&session);
        lock.try_lock().unwrap().is_some()
    });
    assert!(entered.await.unwrap());
    held.unlock().unwrap();
}

/// A task that blocks the only thread of its client's runtime would wait without end, so it panics. Another thread may wait.
#[tokio::test]
async fn a_task_does_not_wait_for_its_own_thread() {
    let server = Server::start().await;
    let client = redisson_lock::LockClient::connect(server.url()).await;
    let client = client.unwrap();
    let lock = redisson_lock::blocking::Lock::from(client.reentrant_lock("a"));
    let waits = lock.clone();
    let blocked = tokio::spawn(async move { waits.try_lock_for(SOON).map(drop) });
    assert!(blocked.await.is_err_and(|error| error.is_panic()));
    let guard = tokio::task::spawn_blocking(move || lock.lock().unwrap());
    drop(guard.await.unwrap());
    assert!(
        client
            .reentrant_lock("a")
            .try_lock()
            .await
            .unwrap()
            .is_some()
    );
}

/// The connection's task is the next one of the thread that waits for it: another thread must run it.
#[test]
fn a_task_waits_on_the_only_worker_of_its_clients_runtime() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = runtime.block_on(Server::start());
    let url = server.url();
    let task = runtime.spawn(async {
        let client = redisson_lock::LockClient::connect(url).await;
        let lock = redisson_lock::blocking::Lock::from(client.unwrap().reentrant_lock("a"));
        lock.lock().unwrap().unlock().unwrap();
        drop(lock.lock().unwrap());
        assert_eq!(lock.is_locked(), Ok(false));
    });
    let (done, result) = std::sync::mpsc::channel();
    runtime.spawn(async move { done.send(task.await) });
    // Without workers, the runtime has no timers either.
    let result = result.recv_timeout(SOON);
    runtime.shutdown_background();
    result.expect("the task ends").unwrap();
}

/// A reader yields to readers that wait. The scheduler of a thread that waits would keep such a wake-up.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_within_an_async_task_yields_to_other_threads() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    // Readers wait for each other's answers.
    proxy.faults().delay_replies(Duration::from_millis(5));
    let url = proxy.url();
    let reading = plainly(move || {
        let client = LockClient::connect(url).unwrap();
        let read = || {
            let lock = client.read_write_lock("a").read().clone();
            for _ in 0..100 {
                lock.lock().unwrap().unlock().unwrap();
            }
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(read);
            }
            runtime.unwrap().block_on(async { read() });
        });
    });
    tokio::time::timeout(SOON, reading)
        .await
        .expect("all readers are served");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_starts_before_its_server_waits_for_it() {
    let server = Server::start().await;
    server.kill();
    let within = |wait| {
        let builder = redisson_lock::LockClient::builder().url(server.url());
        let building = plainly(move || builder.retry_start(wait).build_blocking());
        tokio::time::timeout(2 * SOON, building)
    };
    let refused = within(Duration::from_millis(700)).await.unwrap();
    assert!(matches!(refused, Err(Error::Unavailable { .. })));
    let (client, ()) = tokio::join!(within(SOON), server.restart());
    let client = client.unwrap().unwrap();
    plainly(move || client.shutdown()).await;
}

/// The temporary runtime of `connect` ends within the task, where tokio panics if its drop has to wait.
#[tokio::test]
async fn a_client_connects_within_an_async_task() {
    let server = Server::start().await;
    let client = LockClient::connect(server.url()).unwrap();
    client.reentrant_lock("a").lock().unwrap().unlock().unwrap();
    let refused = LockClient::connect("redis://127.0.0.1:1").unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
}

#[tokio::test]
async fn work_that_blocks_everything_does_not_starve_the_watchdog() {
    let server = Server::start().await;
    let lease = Duration::from_secs(2);
    let client = redisson_lock::LockClient::builder()
        .url(server.url())
        .config(watched(lease))
        .own_runtime(true)
        .build()
        .await
        .unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    // This is the runtime's only thread, and no other code runs meanwhile.
    let blocked = Instant::now();
    while blocked.elapsed() < lease + lease / 2 {
        std::hint::spin_loop();
    }
    assert!(!guard.is_lost());
    guard.unlock().await.unwrap();
}

/// One client for several runtimes, as in a static that several `#[tokio::test]` use.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_with_its_own_runtime_outlives_the_one_it_was_built_on() {
    let server = Server::start().await;
    let url = server.url();
    plainly(move || {
        let runtime = || {
            let mut builder = tokio::runtime::Builder::new_current_thread();
            builder.enable_all().build().unwrap()
        };
        let building = redisson_lock::LockClient::builder()
            .url(url)
            .own_runtime(true);
        let client = runtime().block_on(building.build()).unwrap();
        let lock = client.reentrant_lock("a").owned_by(&Owner::new());
        let guard = runtime().block_on(lock.lock()).unwrap();
        let busy = runtime().block_on(client.reentrant_lock("a").try_lock());
        assert!(busy.unwrap().is_none());
        assert_eq!(runtime().block_on(guard.unlock()), Ok(Released::Fully));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_reports_a_bad_url_and_an_unreachable_server() {
    plainly(|| {
        let error = LockClient::connect("nonsense").unwrap_err();
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        let error = LockClient::connect("redis://127.0.0.1:1").unwrap_err();
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_share_permits_and_wait_for_latches() {
    let server = Server::start().await;
    let url = server.url();
    plainly(move || {
        let client = LockClient::connect(url).unwrap();
        let (pool, ready) = (client.semaphore("pool"), client.count_down_latch("ready"));
        assert!(pool.try_set_permits(2).unwrap());
        assert!(ready.try_set_count(8).unwrap());
        let (inside, most) = (AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let permit = pool.acquire().unwrap();
                        assert_eq!(permit.name(), "pool");
                        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, SeqCst);
                        drop(permit);
                    }
                    ready.count_down().unwrap();
                });
            }
            ready.wait().unwrap();
        });
        assert!(most.into_inner() <= 2);
        // A drop waits for the reply.
        assert_eq!(pool.available_permits(), Ok(2));
        assert!(pool.try_acquire_many(3).unwrap().is_none());
        pool.acquire_many(2).unwrap().leak();
        let tried = pool.try_acquire_for(Duration::from_millis(50));
        assert!(busy_at_worst(tried).is_none());
        pool.release(2).unwrap();
        let ends = client.permit_expirable_semaphore("ends");
        ends.set_permits(1).unwrap();
        let permit = ends.with_lease(SOON).acquire().unwrap();
        assert_eq!(permit.name(), "ends");
        assert!(ends.with_lease(SOON).try_acquire().unwrap().is_none());
        let id = permit.id().to_owned();
        assert!(ends.update_lease(&id, 2 * SOON).unwrap());
        assert!(permit.release().unwrap());
        assert!(!ends.release(&id).unwrap());
        assert_eq!(ready.wait_for(Duration::ZERO), Ok(true));
    })
    .await;
}

/// The provider runs on the client's own thread, and may block a thread of tokio's pool.
#[tokio::test(flavor = "multi_thread")]
async fn a_provider_of_credentials_serves_a_blocking_client() {
    let server = Server::start_with(&["--requirepass", "s3cret"]).await;
    let url = server.url();
    let visit = plainly(move || {
        let builder = redisson_lock::LockClient::builder().url(url);
        let builder = builder.credentials_provider(|_| async {
            let reading = tokio::task::spawn_blocking(|| "s3cret".to_owned());
            let password = reading.await.map_err(|error| error.to_string())?;
            Ok::<_, String>(redisson_lock::Credentials::new("", password))
        });
        let client = builder.build_blocking()?;
        client.reentrant_lock("a").lock()?.unlock()
    });
    assert_eq!(visit.await, Ok(Released::Fully));
}
