//! `try_run`, `run_at_least`, and the result of a body.

use std::time::{Duration, Instant};

use redisson_lock::{Config, Error, JobOutcome, LockClient, MultiLock, Owner};
use testbed::{Server, eventually};

use crate::{hostile::log_lines::LogLines, witness::busy_at_worst};

const SOON: Duration = Duration::from_secs(20);

async fn bed() -> (Server, LockClient, LockClient) {
    let server = Server::start().await;
    let connect = async || LockClient::connect(server.url()).await.unwrap();
    let (one, other) = (connect().await, connect().await);
    (server, one, other)
}

#[tokio::test]
async fn a_job_runs_unless_the_lock_is_held() {
    let (_server, one, other) = bed().await;
    let (lock, rival) = (one.reentrant_lock("job"), other.reentrant_lock("job"));
    let inner = async |_: &_| rival.try_run(async |_| panic!("the lock is held")).await;
    let ran: Option<Result<Option<()>, Error>> = lock.try_run(inner).await.unwrap();
    assert_eq!(ran, Some(Ok(None)));
    assert_eq!(rival.try_run(async |_| 7).await, Ok(Some(7)));
    assert_eq!(lock.is_locked().await, Ok(false));
    let again = lock.try_run(async |_| lock.hold_count().await).await;
    assert_eq!(again, Ok(Some(Ok(1))));
}

/// A body that is no `async` closure may work before it returns its future.
#[tokio::test]
async fn all_of_a_job_runs_as_the_owner_of_the_hold() {
    let (_server, one, other) = bed().await;
    let owner = Owner::new();
    let lock = one.reentrant_lock("job").owned_by(&owner);
    let body = || {
        let at_once = Owner::current();
        async move { [at_once, Owner::current()] }
    };
    assert_eq!(lock.run(|_: &_| body()).await, Ok([owner; 2]));
    let group = MultiLock::of([lock, other.reentrant_lock("further")]).owned_by(&owner);
    assert_eq!(group.run(|_: &_| body()).await, Ok([owner; 2]));
}

#[tokio::test]
async fn a_job_waits_for_a_held_lock_as_long_as_it_may() {
    let (_server, one, other) = bed().await;
    let (lock, rival) = (one.reentrant_lock("job"), other.reentrant_lock("job"));
    let guard = lock.lock().await.unwrap();
    let short = Duration::from_millis(1);
    let tried = rival.try_run_for(short, async |_| panic!("the lock is held"));
    assert_eq!(busy_at_worst(tried.await), None::<()>);
    let (ran, released) = tokio::join!(
        rival.try_run_for(SOON, async |_| lock.is_locked().await),
        guard.unlock()
    );
    assert_eq!((ran, released.is_ok()), (Ok(Some(Ok(true))), true));
    assert_eq!(lock.is_locked().await, Ok(false));
}

#[tokio::test]
async fn a_job_of_a_group_runs_unless_a_member_is_held() {
    let (_server, one, other) = bed().await;
    let (group, member) = (one.multi_lock(["a", "b"]), other.reentrant_lock("b"));
    let guard = member.lock().await.unwrap();
    let tried = group.try_run(async |_| panic!("a member is held")).await;
    assert_eq!(tried, Ok(None::<()>));
    let (ran, released) = tokio::join!(
        group.try_run_for(SOON, async |_| member.is_locked().await),
        guard.unlock()
    );
    assert_eq!((ran, released.is_ok()), (Ok(Some(Ok(true))), true));
    let lost = group.try_run(async |_| member.force_unlock().await).await;
    assert_eq!(lost.unwrap_err().take_result(), Some(Ok::<_, Error>(true)));
    assert_eq!(member.is_locked().await, Ok(false));
}

#[tokio::test]
async fn a_task_ends_with_its_client() {
    let (_server, one, _) = bed().await;
    assert!(!one.is_closed());
    let (clone, waiting) = (one.clone(), one.clone());
    let waiting = tokio::spawn(async move { waiting.closed().await });
    clone.shutdown().await;
    tokio::time::timeout(SOON, waiting).await.unwrap().unwrap();
    assert!(one.is_closed());
    one.closed().await;
}

#[tokio::test]
async fn the_result_of_a_body_that_lost_the_lock_is_kept() {
    let (_server, one, other) = bed().await;
    let (lock, rival) = (one.reentrant_lock("job"), other.reentrant_lock("job"));
    let body = async |_: &_| {
        assert_eq!(rival.force_unlock().await, Ok(true));
        vec![1, 2, 3]
    };
    let lost = lock.run(body).await.unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    assert_eq!(lost.clone(), lost);
    assert_eq!(lost.take_result::<&str>(), None);
    assert_eq!(lost.take_result(), Some(vec![1, 2, 3]));
    let tried = lock.try_run(body).await.unwrap_err();
    assert_eq!(tried.take_result(), Some(vec![1, 2, 3]));
    let group = one.multi_lock(["job", "other"]);
    let lost = group.run(async |_| rival.force_unlock().await).await;
    assert_eq!(lost.unwrap_err().take_result(), Some(Ok::<_, Error>(true)));
}

/// The same for kinds without re-entry.
#[tokio::test]
async fn a_lock_stays_for_the_least_time_and_no_longer() {
    let (server, one, other) = bed().await;
    let least = Duration::from_secs(2);
    macro_rules! stays {
        ($kind:ident) => {{
            let name = stringify!($kind);
            let began = Instant::now();
            let ran = one.$kind(name).run_at_least(least, async |_| 7).await;
            assert_eq!(ran, Ok(JobOutcome::Ran(7)));
            assert!(began.elapsed() < least, "the call returns at once");
            let skipped = other.$kind(name).run_at_least(least, async |_| 8).await;
            assert!(
                matches!(skipped, Ok(JobOutcome::Done { .. })),
                "{skipped:?}"
            );
            // The owner of the run is refused too.
            assert_eq!(one.$kind(name).try_run(async |_| 9).await, Ok(None));
            let guard = other.$kind(name).try_lock_for(SOON).await.unwrap();
            let waited = began.elapsed();
            assert!(waited >= least, "{waited:?}");
            assert!(waited < least + Duration::from_secs(3), "{waited:?}");
            guard.unwrap().unlock().await.unwrap();
        }};
    }
    stays!(reentrant_lock);
    stays!(fair_lock);
    stays!(simple_lock);
    stays!(non_reentrant_lock);
    let lock = one.reentrant_lock("long");
    let body = async |_: &_| tokio::time::sleep(Duration::from_millis(200)).await;
    let least = Duration::from_millis(100);
    assert_eq!(
        lock.run_at_least(least, body).await,
        Ok(JobOutcome::Ran(()))
    );
    assert_eq!(server.command::<u32>(&["EXISTS", "long"]).await, 0);
}

/// The body may outlast the lock's lease, and the least time may be the longest lease allowed.
#[tokio::test]
async fn the_least_time_is_a_lease_too() {
    let (server, one, other) = bed().await;
    let lock = one
        .reentrant_lock("job")
        .with_lease(Duration::from_millis(300));
    let (began, least) = (Instant::now(), Duration::from_millis(1500));
    let body = async |_: &_| tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(
        lock.run_at_least(least, body).await,
        Ok(JobOutcome::Ran(()))
    );
    let next = other
        .reentrant_lock("job")
        .try_lock_for(SOON)
        .await
        .unwrap();
    assert!(began.elapsed() >= least);
    next.unwrap().unlock().await.unwrap();
    let century = Duration::from_secs(100 * 365 * 24 * 60 * 60);
    for name in ["a", "b"] {
        let lock = one.reentrant_lock(name);
        let lock = if name == "a" {
            lock.with_lease(SOON)
        } else {
            lock
        };
        let ran = lock.run_at_least(century, async |_| 1).await;
        assert_eq!(ran, Ok(JobOutcome::Ran(1)));
        let left = server.command::<u64>(&["PTTL", name]).await;
        assert!(u128::from(left) > century.as_millis() / 2, "{left}");
    }
}

/// The least time outlives the process, which ends with the job.
#[tokio::test(flavor = "multi_thread")]
async fn the_least_time_outlives_the_process() {
    let (server, _one, other) = bed().await;
    let (url, least) = (server.url(), Duration::from_secs(100));
    let process = tokio::task::spawn_blocking(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(async {
            let client = LockClient::connect(url).await.unwrap();
            let lock = client.reentrant_lock("job");
            lock.run_at_least(least, async |_| ()).await.unwrap()
        })
    });
    assert_eq!(process.await.unwrap(), JobOutcome::Ran(()));
    let left = other.reentrant_lock("job").remaining_lease().await;
    assert!(left.unwrap().unwrap() > least - SOON);
}

/// The README recommends this shutdown before `process::exit`.
#[tokio::test]
async fn the_least_time_outlives_a_shutdown_that_releases() {
    let (_server, one, other) = bed().await;
    let least = Duration::from_secs(100);
    let job = one.reentrant_lock("job");
    let ran = job.run_at_least(least, async |_| 7).await;
    assert_eq!(ran, Ok(JobOutcome::Ran(7)));
    one.reentrant_lock("held").lock().await.unwrap().leak();
    let report = one.shutdown_and_release().await;
    assert_eq!(report.unreleased, []);
    let left = other.reentrant_lock("job").remaining_lease().await;
    assert!(left.unwrap().unwrap() > least - SOON);
    assert_eq!(other.reentrant_lock("held").is_locked().await, Ok(false));
}

#[tokio::test]
async fn a_dropped_job_frees_the_lock_at_once() {
    let (server, one, _other) = bed().await;
    let lock = one.reentrant_lock("job").owned_by(&Owner::new());
    let ran = lock.run_at_least(SOON * 3, async |_| std::future::pending::<()>().await);
    let dropped = tokio::time::timeout(Duration::from_millis(200), ran).await;
    assert!(dropped.is_err());
    eventually("the lock is free", SOON, async || {
        server.command::<u32>(&["EXISTS", "job"]).await == 0
    })
    .await;
    let bad = lock.run_at_least(Duration::ZERO, async |_| ()).await;
    assert!(matches!(bad, Err(Error::Config { .. })), "{bad:?}");
}

/// The lines of a release that is refused, and of one that is given up.
const REFUSED: &str = "the server refuses a release";
const UNRELEASED: &str = "was not released";

/// Takes the right to release from every connection.
async fn forbid_releases(server: &Server) {
    let words = ["ACL", "SETUSER", "default", "-evalsha", "-eval"];
    server.command::<()>(&words).await;
}

/// The caller gets the result of the body, so only the log can show that the lock is still held.
#[tokio::test]
async fn a_refused_release_after_a_body_is_logged() {
    let (server, one, other) = bed().await;
    let group = one.multi_lock(["a", "b"]);
    for subject in ["run", "try_run", "group", "leader"] {
        let (lines, _keep) = LogLines::record(tracing::Level::DEBUG);
        let body = async || forbid_releases(&server).await;
        let lock = other.reentrant_lock(subject);
        match subject {
            "run" => lock.run(async |_| body().await).await.unwrap(),
            "try_run" => lock.try_run(async |_| body().await).await.unwrap().unwrap(),
            "group" => group.run(async |_| body().await).await.unwrap(),
            _ => {
                let election = other.election(subject);
                let led = election.lead("me", SOON, |_| body()).await;
                led.unwrap();
            }
        }
        let told = lines.with(REFUSED);
        let expected = if subject == "group" { 2 } else { 1 };
        assert!(told.len() >= expected, "{subject}: {told:?}");
        assert!(told[0].contains("NOPERM"), "{subject}: {told:?}");
        let allow = ["ACL", "SETUSER", "default", "+@all"];
        server.command::<()>(&allow).await;
    }
    // The caller of `unlock` gets the error itself.
    let (lines, _keep) = LogLines::record(tracing::Level::DEBUG);
    let guard = one.reentrant_lock("unlock").lock().await.unwrap();
    forbid_releases(&server).await;
    let refused = guard.unlock().await;
    assert!(matches!(refused, Err(Error::Redis { .. })), "{refused:?}");
    assert_eq!(lines.with(UNRELEASED), [""; 0]);
}

/// A body ends in an outage: its caller waits no longer than `command_wait`, and the release goes on without it.
#[tokio::test]
async fn a_release_that_is_refused_after_its_callers_wait_is_logged() {
    let server = Server::start().await;
    let wait = Duration::from_millis(200);
    let config = Config::default().with_command_wait(wait);
    let client = LockClient::builder().url(server.url()).config(config);
    let client = client.build().await.unwrap();
    let (lines, _keep) = LogLines::record(tracing::Level::DEBUG);
    let body = async |_: &_| {
        let pause = ["CLIENT", "PAUSE", "2000", "WRITE"];
        server.command::<()>(&pause).await;
        7
    };
    assert_eq!(client.reentrant_lock("a").run(body).await, Ok(7));
    assert_eq!(lines.with(REFUSED), [""; 0], "the release goes on");
    forbid_releases(&server).await;
    eventually("the refusal is logged", SOON, async || {
        !lines.with(REFUSED).is_empty()
    })
    .await;
}
