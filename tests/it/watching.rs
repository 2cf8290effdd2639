//! How code that works under a hold learns of its loss, besides `lost` and the token.

use std::{sync::mpsc, time::Duration};

use redisson_lock::{
    AnyLock, Config, Error, LockClient, LostReason, MultiLock, Owner, RedLock, blocking,
};
use testbed::Server;

/// The limit for steps that take milliseconds.
const SOON: Duration = Duration::from_secs(20);

async fn connect(server: &Server) -> LockClient {
    LockClient::connect(server.url()).await.unwrap()
}

/// The calls of callbacks, in their order.
struct Calls {
    sender: mpsc::Sender<(&'static str, LostReason)>,
    calls: mpsc::Receiver<(&'static str, LostReason)>,
}

impl Calls {
    fn new() -> Self {
        let (sender, calls) = mpsc::channel();
        Self { sender, calls }
    }

    fn by(&self, name: &'static str) -> impl FnOnce(LostReason) + Send + use<> {
        let sender = self.sender.clone();
        move |reason| sender.send((name, reason)).expect("the test listens")
    }

    /// The next call, for which the thread blocks as a body would.
    fn next(&self) -> (&'static str, LostReason) {
        self.calls.recv_timeout(SOON).expect("a callback is called")
    }

    /// Ends when no callback can be called any more.
    fn assert_no_more(self) {
        drop(self.sender);
        let more = self.calls.recv_timeout(SOON);
        assert_eq!(more, Err(mpsc::RecvTimeoutError::Disconnected));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_is_called_once_at_the_loss_and_never_after_a_release() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let calls = Calls::new();
    let lock = client.reentrant_lock("a");
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    for (guard, name) in [(&outer, "outer"), (&inner, "inner")] {
        guard.on_lost(calls.by(name));
    }
    outer.on_lost(calls.by("outer"));
    inner.unlock().await.unwrap();
    connect(&server)
        .await
        .reentrant_lock("a")
        .force_unlock()
        .await
        .unwrap();
    assert!(outer.check().await.unwrap_err().is_lost());
    assert_eq!(calls.next(), ("outer", LostReason::Gone));
    assert_eq!(calls.next(), ("outer", LostReason::Gone));
    // The hold is lost already.
    outer.on_lost(calls.by("late"));
    assert_eq!(calls.next(), ("late", LostReason::Gone));
    drop(outer);
    calls.assert_no_more();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callback_learns_of_the_clock_and_of_the_end_of_the_client() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let calls = Calls::new();
    let lease = Duration::from_millis(300);
    let short = client
        .reentrant_lock("a")
        .with_lease(lease)
        .lock()
        .await
        .unwrap();
    short.on_lost(calls.by("short"));
    let other = Owner::new();
    let handed = client.reentrant_lock("b");
    let long = handed.lock().await.unwrap();
    long.on_lost(calls.by("handed off"));
    // A hand-off in memory ends the first owner's hold.
    let next = handed.owned_by(&other);
    let (next, _) = tokio::join!(next.lock(), async {
        tokio::task::yield_now().await;
        long.unlock().await
    });
    let next = next.unwrap();
    next.on_lost(calls.by("kept"));
    assert_eq!(calls.next(), ("short", LostReason::Expired));
    client.shutdown().await;
    assert_eq!(calls.next(), ("kept", LostReason::Closed));
    calls.assert_no_more();
    drop((short, next));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thread_that_blocks_is_told_by_a_callback() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let url = server.url();
    let (held, is_held) = tokio::sync::oneshot::channel();
    let thread = tokio::task::spawn_blocking(move || {
        let client = blocking::LockClient::connect(url).unwrap();
        let lock = client.reentrant_lock("a");
        let calls = Calls::new();
        let guard = lock.with_lease(SOON).lock().unwrap();
        assert_eq!(guard.check(), Ok(()));
        assert_eq!(guard.since(), client.holds()[0].since);
        guard.on_lost(calls.by("body"));
        held.send(()).unwrap();
        while guard.check().is_ok() {}
        assert_eq!(calls.next(), ("body", LostReason::Gone));
        let writing = client.read_write_lock("b").write().lock().unwrap();
        let reading = writing.downgrade().unwrap();
        assert!(client.read_write_lock("b").read().is_held().unwrap());
        reading.unlock().unwrap();
    });
    is_held.await.unwrap();
    client.reentrant_lock("a").force_unlock().await.unwrap();
    thread.await.unwrap();
}

#[tokio::test]
async fn a_hold_says_since_when() {
    let server = Server::start().await;
    let client = connect(&server).await;
    let lock = client.reentrant_lock("a");
    let before = std::time::Instant::now();
    let outer = lock.lock().await.unwrap();
    let since = outer.since();
    let after = std::time::Instant::now();
    assert!(before <= since && since <= after);
    let inner = lock.lock().await.unwrap();
    // The owner has the lock since its first hold.
    assert_eq!(inner.since(), since);
    inner.extend(Duration::from_secs(60)).await.unwrap();
    assert_eq!((inner.since(), client.holds()[0].since), (since, since));
    drop(outer);
    inner.unlock().await.unwrap();
    let again = lock.lock().await.unwrap();
    assert!(again.since() > since);
}

/// A check without an answer says nothing about the hold.
#[tokio::test]
async fn a_check_without_an_answer_ends_nothing() {
    let server = Server::start().await;
    let config = Config::default().with_command_wait(Duration::from_millis(200));
    let client = LockClient::builder().url(server.url()).config(config);
    let client = client.await.unwrap();
    let guard = client.reentrant_lock("a").lock().await.unwrap();
    server.kill();
    let checked = guard.check().await;
    assert!(
        matches!(checked, Err(Error::Unavailable { .. })),
        "{checked:?}"
    );
    assert!(!guard.is_lost());
    // This server kept nothing.
    server.restart().await;
    assert_eq!(guard.lost().await, LostReason::Gone);
    client.shutdown().await;
    assert!(guard.check().await.unwrap_err().is_lost());
}

/// A group asks each of its servers, and a RedLock is content with a majority.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_is_checked_and_calls_back() {
    let servers = [
        Server::start().await,
        Server::start().await,
        Server::start().await,
    ];
    let mut clients = Vec::new();
    for server in &servers {
        clients.push(connect(server).await);
    }
    let locks = || clients.iter().map(|client| client.reentrant_lock("a"));
    let operate = async |server: &Server| {
        let operator = connect(server).await.reentrant_lock("a");
        assert_eq!(operator.force_unlock().await, Ok(true));
    };
    let calls = Calls::new();
    let majority = RedLock::of(locks().map(AnyLock::from));
    let guard = majority.lock().await.unwrap();
    guard.on_lost(calls.by("majority"));
    assert_eq!(guard.check().await, Ok(()));
    operate(&servers[0]).await;
    assert_eq!(guard.check().await, Ok(()));
    assert!(!guard.is_lost());
    operate(&servers[1]).await;
    assert!(guard.check().await.unwrap_err().is_lost());
    assert!(guard.is_lost());
    assert_eq!(calls.next(), ("majority", LostReason::Gone));
    drop(guard);

    let all = MultiLock::of(locks().map(AnyLock::from));
    let guard = all.lock().await.unwrap();
    guard.on_lost(calls.by("released"));
    guard.unlock().await.unwrap();
    let before = std::time::Instant::now();
    let guard = all.lock().await.unwrap();
    assert!(guard.since() > before);
    guard.on_lost(calls.by("all"));
    assert_eq!(guard.check().await, Ok(()));
    operate(&servers[2]).await;
    assert!(guard.check().await.unwrap_err().is_lost());
    assert_eq!(calls.next(), ("all", LostReason::Gone));
    calls.assert_no_more();
}
