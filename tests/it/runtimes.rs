//! Several runtimes: the client's runtime ends or is blocked while holders, waiters and guards live
//! on other ones, or a caller's runtime ends before the client's.

use std::{
    pin::pin,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use futures_util::poll;
use redisson_lock::{Config, Error, LockClient, LostReason, Owner};
use testbed::{Proxy, Server, eventually};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    task::yield_now,
};

use crate::hostile::log_lines::LogLines;

/// The limit for steps that take milliseconds.
const SOON: Duration = Duration::from_secs(20);
const HOUR: Duration = Duration::from_secs(3600);

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

fn multi_thread() -> Runtime {
    let mut builder = Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Runs a program, and drops the runtime at its end.
fn main_of<T>(runtime: Runtime, program: impl Future<Output = T>) -> T {
    runtime.block_on(program)
}

async fn connect(url: &str) -> LockClient {
    LockClient::connect(url).await.unwrap()
}

/// A client on its own runtime, which ends with this value.
struct Elsewhere {
    runtime: Runtime,
    client: LockClient,
}

impl Elsewhere {
    async fn new(server: &Server) -> Self {
        let url = server.url();
        let made = tokio::task::spawn_blocking(move || {
            let runtime = multi_thread();
            let client = runtime.block_on(connect(&url));
            Self { runtime, client }
        });
        made.await.unwrap()
    }
}

async fn is_free(server: &Server, name: &str) {
    eventually("the lock is free", SOON, async || {
        server.command::<u32>(&["EXISTS", name]).await == 0
    })
    .await;
}

/// A program that returns from `main` without a shutdown ends its connections in no fixed order. Its log names no trouble.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_of_main_without_a_shutdown_is_no_trouble() {
    let server = Server::start().await;
    let (lines, keep) = LogLines::record(tracing::Level::INFO);
    drop(keep);
    let url = server.url();
    let recorded = lines.clone();
    let programs = move || {
        let _keep = tracing::subscriber::set_default(recorded.clone());
        for round in 0..100 {
            let mut builder = match round % 2 {
                0 => Builder::new_current_thread(),
                _ => Builder::new_multi_thread(),
            };
            let recorded = recorded.clone();
            let runtime = builder.enable_all().on_thread_start(move || {
                // The thread ends with the runtime.
                std::mem::forget(tracing::subscriber::set_default(recorded.clone()));
            });
            main_of(runtime.build().unwrap(), async {
                let client = connect(&url).await;
                let guard = client.reentrant_lock("a").lock().await.unwrap();
                let waiting = client.reentrant_lock("a").owned_by(&Owner::new());
                let waiting = tokio::spawn(async move { waiting.lock().await.map(drop) });
                let latch = client.count_down_latch("b");
                latch.try_set_count(1).await.unwrap();
                tokio::spawn(async move { latch.wait().await });
                guard.unlock().await.unwrap();
                waiting.await.unwrap().unwrap();
                let guard = client.fair_lock("c").lock().await.unwrap();
                if round % 3 == 0 {
                    guard.unlock().await.unwrap();
                }
            });
        }
    };
    tokio::task::spawn_blocking(programs).await.unwrap();
    assert_eq!(lines.with(""), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_main_drops_last_is_released() {
    let server = Server::start().await;
    for runtime in [current_thread, multi_thread] {
        let url = server.url();
        let began = Instant::now();
        let program = async move {
            let client = connect(&url).await;
            let outer = client.reentrant_lock("a").lock().await.unwrap();
            let _inner = client.reentrant_lock("a").lock().await.unwrap();
            let _fair = client.fair_lock("b").lock().await.unwrap();
            drop(outer);
        };
        tokio::task::spawn_blocking(move || main_of(runtime(), program))
            .await
            .unwrap();
        assert_eq!(server.command::<u32>(&["EXISTS", "a", "b"]).await, 0);
        assert!(began.elapsed() < Duration::from_secs(25));
    }
}

/// A request that is under way when the runtime ends may never arrive.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_that_is_lost_as_its_runtime_ends_is_sent_again() {
    release_that_is_lost_as_its_runtime_ends_is_sent_again(false).await;
}

/// The next waiter's request may follow the release at once. The client then knows of no owner with
/// the lock.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_with_a_waiter_behind_it_is_sent_again_as_its_runtime_ends() {
    release_that_is_lost_as_its_runtime_ends_is_sent_again(true).await;
}

async fn release_that_is_lost_as_its_runtime_ends_is_sent_again(is_awaited: bool) {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let (url, faults) = (proxy.url(), proxy.faults());
    let program = async move {
        let config = Config::default().with_local_hand_off(Duration::ZERO);
        let client = LockClient::builder().url(&url).config(config).build();
        let client = client.await.unwrap();
        let lock = client.reentrant_lock("a");
        let guard = lock.lock().await.unwrap();
        if is_awaited {
            let (waits, waiting) = (lock.clone(), tokio::sync::oneshot::channel());
            let (begun, begins) = waiting;
            tokio::spawn(async move {
                let mut waits = pin!(waits.lock());
                let _: bool = poll!(&mut waits).is_ready();
                begun.send(()).unwrap();
                let _guard = waits.await;
            });
            begins.await.unwrap();
        }
        faults.lose_next_request();
        drop(guard);
        while faults.lost_requests() == 0 {
            tokio::task::yield_now().await;
            // Blocks the runtime, so that it ends before it notices that its connection is cut.
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    tokio::task::spawn_blocking(move || main_of(current_thread(), program))
        .await
        .unwrap();
    assert_eq!(server.command::<u32>(&["EXISTS", "a"]).await, 0);
}

/// Permits have no lease that would end them.
#[tokio::test(flavor = "multi_thread")]
async fn permits_dropped_as_their_runtime_ends_are_released() {
    let server = Server::start().await;
    let (lines, keep) = LogLines::record(tracing::Level::INFO);
    drop(keep);
    for runtime in [current_thread, multi_thread] {
        let (url, recorded) = (server.url(), lines.clone());
        let program = async move {
            let client = connect(&url).await;
            let pool = client.semaphore("pool");
            pool.try_set_permits(9).await.unwrap();
            let ends = client.permit_expirable_semaphore("ends");
            ends.try_set_permits(1).await.unwrap();
            let of_task = pool.acquire().await.unwrap();
            tokio::spawn(async move {
                std::future::pending::<()>().await;
                drop(of_task);
            });
            let released = pool.acquire().await.unwrap();
            let outlives = pool.acquire().await.unwrap();
            let _ended = ends.with_lease(SOON).acquire().await.unwrap();
            let _last = pool.acquire_many(4).await.unwrap();
            tokio::spawn(released.release());
            drop(pool.acquire().await.unwrap());
            outlives
        };
        let ends = move || {
            let _keep = tracing::subscriber::set_default(recorded);
            drop(main_of(runtime(), program));
        };
        tokio::task::spawn_blocking(ends).await.unwrap();
        let left: String = server.command(&["GET", "pool"]).await;
        let left = (
            left,
            server.command::<u32>(&["EXISTS", "{ends}:timeout"]).await,
        );
        assert_eq!(left, ("9".to_owned(), 0), "{:?}", lines.with(""));
    }
}

/// The end of a runtime may send two releases at once, by two threads. The server refuses a release under a result key that a later
/// one has used.
#[tokio::test(flavor = "multi_thread")]
async fn releases_as_a_runtime_ends_share_no_result_key() {
    let server = Server::start().await;
    let proxy = Proxy::start(server.port()).await;
    let (url, faults) = (proxy.url(), proxy.faults());
    let program = async move {
        let pool = connect(&url).await.semaphore("pool");
        pool.try_set_permits(2).await.unwrap();
        let (dropped, outlives) = (pool.acquire().await.unwrap(), pool.acquire().await.unwrap());
        let mut release = pin!(dropped.release());
        faults.lose_next_request();
        while faults.lost_requests() == 0 {
            let _: bool = poll!(&mut release).is_ready();
            yield_now().await;
            // Blocks the runtime, so that it ends before it notices that its connection is cut.
            std::thread::sleep(Duration::from_millis(1));
        }
        outlives
    };
    tokio::task::spawn_blocking(move || drop(main_of(current_thread(), program)))
        .await
        .unwrap();
    let left: String = server.command(&["GET", "pool"]).await;
    assert_eq!(left, "2");
    let keys: Vec<String> = server.command(&["KEYS", "*"]).await;
    assert_eq!(keys.len(), 3, "the semaphore, and the results: {keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_of_a_task_that_its_runtime_ends_is_released() {
    let server = Server::start().await;
    for runtime in [current_thread, multi_thread] {
        let url = server.url();
        let program = async move {
            let client = connect(&url).await;
            let (sender, receiver) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                let _guard = client.reentrant_lock("a").lock().await.unwrap();
                let _ = sender.send(());
                std::future::pending::<()>().await;
            });
            receiver.await.unwrap();
        };
        tokio::task::spawn_blocking(move || main_of(runtime(), program))
            .await
            .unwrap();
        assert_eq!(server.command::<u32>(&["EXISTS", "a"]).await, 0);
    }
}

/// A stopped server does not make a program hang at its end.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_runtime_waits_for_no_server_for_long() {
    let server = Server::start().await;
    let url = server.url();
    let (sender, receiver) = mpsc::channel();
    let (stopped, go_on) = mpsc::channel::<()>();
    let program = async move {
        let client = connect(&url).await;
        let guards = [
            client.reentrant_lock("a").lock().await.unwrap(),
            client.reentrant_lock("b").lock().await.unwrap(),
        ];
        sender.send(()).unwrap();
        go_on.recv().unwrap();
        drop(guards);
        Instant::now()
    };
    let ends = tokio::task::spawn_blocking(move || main_of(current_thread(), program).elapsed());
    tokio::task::spawn_blocking(move || receiver.recv().unwrap())
        .await
        .unwrap();
    server.pause();
    stopped.send(()).unwrap();
    let took = ends.await.unwrap();
    server.resume();
    assert!(took < Duration::from_secs(15), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_clients_runtime_ends_its_holds_and_waits() {
    let server = Server::start().await;
    let rival = connect(&server.url()).await;
    let _held = rival.reentrant_lock("held").lock().await.unwrap();
    let Elsewhere { runtime, client } = Elsewhere::new(&server).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let token = guard.cancellation_token();
    let waits = |name: &'static str| {
        let lock = client.reentrant_lock(name).owned_by(&Owner::new());
        tokio::spawn(async move { lock.lock().await.map(|_guard| ()) })
    };
    let (waiter, second) = (waits("held"), waits("a"));
    let runs = client.reentrant_lock("b").owned_by(&Owner::new());
    let (begin, begun) = tokio::sync::oneshot::channel();
    let run = tokio::spawn(async move {
        let body = async |_: &_| {
            let _ = begin.send(());
            std::future::pending::<()>().await;
        };
        runs.run(body).await
    });
    begun.await.unwrap();
    tokio::task::spawn_blocking(move || drop(runtime))
        .await
        .unwrap();
    let reported = async {
        assert_eq!(guard.lost().await, LostReason::RuntimeEnded);
        token.cancelled().await;
        assert_eq!(waiter.await.unwrap(), Err(Error::RuntimeEnded));
        assert_eq!(second.await.unwrap(), Err(Error::RuntimeEnded));
        let lost = run.await.unwrap();
        assert!(
            matches!(
                lost,
                Err(Error::Lost {
                    reason: LostReason::RuntimeEnded,
                    ..
                })
            ),
            "{lost:?}"
        );
        assert_eq!(
            client.reentrant_lock("c").lock().await.err(),
            Some(Error::RuntimeEnded)
        );
        assert_eq!(
            client.reentrant_lock("c").is_locked().await,
            Err(Error::RuntimeEnded)
        );
        let report = client.shutdown().await;
        assert_eq!(report.unreleased.len(), 2, "{report:?}");
    };
    tokio::time::timeout(SOON, reported)
        .await
        .expect("all reports arrive");
    drop(guard);
    is_free(&server, "a").await;
}

/// An operation that is under way ends with its client.
#[tokio::test(flavor = "multi_thread")]
async fn no_operation_outlives_the_runtime_of_its_client() {
    let server = Server::start().await;
    for _ in 0..5 {
        let Elsewhere { runtime, client } = Elsewhere::new(&server).await;
        let tasks: Vec<_> = (0..40)
            .map(|task| {
                let lock = client
                    .reentrant_lock(format!("{}", task % 8))
                    .owned_by(&Owner::new());
                tokio::spawn(async move {
                    let (mut rounds, mut ended) = (0, Ok(()));
                    while ended.is_ok() {
                        rounds += 1;
                        ended = match rounds % 3 {
                            0 => lock.is_locked().await.map(drop),
                            1 => lock.try_lock().await.map(drop),
                            _ => match lock.lock().await {
                                Ok(guard) => guard.unlock().await.map(drop),
                                Err(error) => Err(error),
                            },
                        };
                    }
                    ended
                })
            })
            .collect();
        let calls = server.calls().await;
        eventually("all tasks send requests", SOON, async || {
            server.calls().await != calls
        })
        .await;
        tokio::task::spawn_blocking(move || drop(runtime))
            .await
            .unwrap();
        for task in tasks {
            let ended = tokio::time::timeout(SOON, task)
                .await
                .expect("the task ends in time")
                .unwrap();
            assert!(
                matches!(
                    ended,
                    Err(Error::RuntimeEnded | Error::Lost { .. } | Error::Unavailable { .. })
                ),
                "{ended:?}"
            );
        }
    }
}

/// The client's runtime is blocked, so its watchdog reports nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_is_reported_on_the_runtime_of_its_listener() {
    let server = Server::start().await;
    let (blocks, blocked) = mpsc::channel();
    let (heard, goes_on) = mpsc::channel::<()>();
    let (send, client) = tokio::sync::oneshot::channel();
    let url = server.url();
    let lease = Config::default().with_watchdog_lease(Duration::from_secs(1));
    let blocking = std::thread::spawn(move || {
        current_thread().block_on(async {
            let client = LockClient::builder()
                .url(url)
                .config(lease)
                .build()
                .await
                .unwrap();
            let guards = [
                client.reentrant_lock("a").lock().await.unwrap(),
                client.reentrant_lock("b").lock().await.unwrap(),
            ];
            let group = client.multi_lock(["c", "d"]).lock().await.unwrap();
            assert!(send.send((guards, group)).is_ok());
            blocks.send(()).unwrap();
            // The wait times out if no loss is reported.
            goes_on.recv_timeout(SOON)
        })
    });
    let ([one, other], group) = client.await.unwrap();
    blocked.recv().unwrap();
    let (token, groups) = (other.cancellation_token(), group.cancellation_token());
    assert_eq!(one.lost().await, LostReason::Expired);
    assert_eq!(group.lost().await, LostReason::Expired);
    token.cancelled().await;
    groups.cancelled().await;
    heard.send(()).unwrap();
    assert_eq!(
        blocking.join().unwrap(),
        Ok(()),
        "the loss was reported too late"
    );
}

/// A client in a static, used by several `#[tokio::test]`.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_whose_runtime_is_gone_names_the_runtime_in_its_error() {
    let server = Server::start().await;
    let Elsewhere { runtime, client } = Elsewhere::new(&server).await;
    tokio::task::spawn_blocking(move || drop(runtime))
        .await
        .unwrap();
    let error = client.reentrant_lock("a").lock().await.unwrap_err();
    assert_eq!(error, Error::RuntimeEnded);
    assert!(error.to_string().contains("runtime"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_outside_of_a_runtime_name_the_missing_runtime_in_their_error() {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let dropped = client.reentrant_lock("b").lock().await.unwrap();
    let group = client.multi_lock(["c", "d"]).lock().await.unwrap();
    let url = server.url();
    // The call asks for a lock whose dropped guard is not released yet.
    server.pause();
    drop(dropped);
    let errors = std::thread::spawn(move || {
        use futures_util::FutureExt;
        assert_eq!(group.lost().now_or_never(), None);
        let lock = client.reentrant_lock("a");
        [
            LockClient::connect(&url).now_or_never().unwrap().err(),
            lock.lock().now_or_never().unwrap().err(),
            client
                .multi_lock(["x", "y"])
                .try_lock()
                .now_or_never()
                .unwrap()
                .err(),
            lock.is_locked().now_or_never().unwrap().err(),
            client
                .reentrant_lock("b")
                .is_locked()
                .now_or_never()
                .unwrap()
                .err(),
            guard.extend(HOUR).now_or_never().unwrap().err(),
            guard.unlock().now_or_never().unwrap().err(),
        ]
    })
    .join()
    .unwrap();
    server.resume();
    for error in errors {
        let error = error.expect("the call fails without a runtime");
        assert!(matches!(error, Error::Config { .. }), "{error:?}");
        assert!(error.to_string().contains("tokio runtime"), "{error}");
    }
    is_free(&server, "a").await;
}

/// A timer of the ended runtime would panic on the client's runtime, and end the operation there.
#[tokio::test(flavor = "multi_thread")]
async fn refused_releases_outlive_the_runtime_of_their_caller() {
    let server = Server::start().await;
    let demand = async |replicas| {
        let demand = ["CONFIG", "SET", "min-replicas-to-write", replicas];
        server.command::<()>(&demand).await;
    };
    let client = connect(&server.url()).await;
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    let pool = client.semaphore("pool");
    pool.try_set_permits(1).await.unwrap();
    let permit = pool.acquire().await.unwrap();
    demand("1").await;
    server.reset_calls().await;
    let caller = multi_thread();
    caller.spawn(guard.unlock());
    caller.spawn(permit.release());
    eventually("both releases are refused", SOON, async || {
        server.calls().await.get("evalsha") >= Some(&6)
    })
    .await;
    // Each pauses before it is sent again.
    end(caller).await;
    demand("0").await;
    is_free(&server, "a").await;
    eventually("the permit is released", SOON, async || {
        server.command::<String>(&["GET", "pool"]).await == "1"
    })
    .await;
}

/// As above, for the timer of an answer.
#[tokio::test(flavor = "multi_thread")]
async fn unanswered_extension_outlives_the_runtime_of_its_caller() {
    let server = Server::start().await;
    let config = Config::default().with_command_wait(SOON);
    let client = LockClient::builder().url(server.url()).config(config);
    let client = client.build().await.unwrap();
    let guard = Arc::new(client.reentrant_lock("a").lock().await.unwrap());
    server.pause();
    let caller = multi_thread();
    let (extended, (begin, begun)) = (guard.clone(), tokio::sync::oneshot::channel());
    caller.spawn(async move {
        let mut extending = pin!(extended.extend(HOUR));
        let _ = begin.send(poll!(&mut extending).is_pending());
        extending.await
    });
    assert!(begun.await.unwrap());
    end(caller).await;
    server.resume();
    eventually("the hold is extended", SOON, async || {
        guard.valid_until() > Instant::now() + HOUR / 2
    })
    .await;
}

async fn end(runtime: Runtime) {
    let ended = tokio::task::spawn_blocking(move || drop(runtime));
    ended.await.unwrap();
}

/// The task of a token ends with its hold, and not with the lease.
#[test]
fn token_of_a_released_guard_leaves_no_task() {
    let (home, caller) = (multi_thread(), current_thread());
    let (_server, client) = home.block_on(server_and_client());
    caller.block_on(async {
        let lock = client.reentrant_lock("a").with_lease(HOUR);
        let guard = lock.lock().await.unwrap();
        let token = guard.cancellation_token();
        yield_now().await;
        assert_eq!(tasks(), 1);
        guard.unlock().await.unwrap();
        eventually("the token's task ends", SOON, async || tasks() == 0).await;
        assert!(!token.is_cancelled());
    });
}

#[test]
fn token_of_a_released_permit_leaves_no_task() {
    let (home, caller) = (multi_thread(), current_thread());
    let (_server, client) = home.block_on(server_and_client());
    caller.block_on(async {
        let pool = client.permit_expirable_semaphore("pool");
        pool.try_set_permits(1).await.unwrap();
        let permit = pool.with_lease(HOUR).acquire().await.unwrap();
        let token = permit.cancellation_token();
        yield_now().await;
        assert_eq!(tasks(), 1);
        permit.release().await.unwrap();
        eventually("the token's task ends", SOON, async || tasks() == 0).await;
        assert!(!token.is_cancelled());
    });
}

async fn server_and_client() -> (Server, LockClient) {
    let server = Server::start().await;
    let client = connect(&server.url()).await;
    (server, client)
}

/// The number of tasks of the present runtime.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}
