//! Semaphores and latches, in Java and in Rust on one server.

use std::time::Duration;

use redisson_lock::{Config, LockClient};
use testbed::{eventually, unique_name};
use tokio::time::timeout;

use crate::stage::{AMPLE, Stage, Version};

/// A Rust client whose waiters are woken only by messages.
async fn client(stage: &Stage) -> LockClient {
    let config = Config::default().with_max_poll_interval(Duration::from_secs(3_600));
    let builder = LockClient::builder().url(stage.server.url()).config(config);
    builder.build().await.expect("the server runs")
}

/// One object in Java.
struct Java<'a> {
    stage: &'a Stage,
    kind: &'static str,
    name: &'a str,
}

impl<'a> Java<'a> {
    fn of(stage: &'a Stage, kind: &'static str, name: &'a str) -> Self {
        Self { stage, kind, name }
    }

    /// Calls a method in a thread of this name.
    fn begin(
        &self,
        thread: &str,
        call: &[&str],
    ) -> tokio::task::JoinHandle<Result<Vec<String>, testbed::Refused>> {
        let mut words = vec!["sync", self.kind, self.name];
        words.extend(call);
        tokio::spawn(self.stage.java.ask(thread, &words))
    }

    async fn call(&self, call: &[&str]) -> String {
        ended(self.begin("main", call)).await
    }
}

async fn ended(begun: tokio::task::JoinHandle<Result<Vec<String>, testbed::Refused>>) -> String {
    let answer = timeout(AMPLE, begun)
        .await
        .expect("the task ends in time")
        .unwrap();
    let answer = answer.unwrap_or_else(|refused| panic!("{refused}"));
    answer.join(" ")
}

async fn waits(stage: &Stage, channel: &str, connections: u64) {
    let what = format!("{connections} connections listen to {channel}");
    eventually(&what, AMPLE, async || {
        stage.server.listeners(channel).await == connections
    })
    .await;
    // A subscribed waiter tries once more before it parks, which nothing shows.
    tokio::time::sleep(Duration::from_millis(300)).await;
}

pub async fn permits_are_shared(version: Version) {
    let stage = version.stage().await;
    let (client, name) = (client(&stage).await, unique_name("pool"));
    let (ours, java) = (
        client.semaphore(&name),
        Java::of(&stage, "semaphore", &name),
    );
    assert_eq!(java.call(&["trySetPermits", "3"]).await, "true");
    assert!(!ours.try_set_permits(9).await.unwrap());
    let one = ours.acquire().await.unwrap();
    assert_eq!(java.call(&["availablePermits"]).await, "2");
    assert_eq!(java.call(&["tryAcquire", "3"]).await, "false");
    assert_eq!(java.call(&["tryAcquire", "2"]).await, "true");
    assert!(ours.try_acquire().await.unwrap().is_none());
    one.release().await.unwrap();
    assert_eq!(java.call(&["drainPermits"]).await, "1");
    java.call(&["addPermits", "4"]).await;
    assert_eq!(ours.available_permits().await, Ok(4));
    ours.add_permits(-5).await.unwrap();
    assert_eq!(java.call(&["availablePermits"]).await, "-1");
}

pub async fn each_wakes_the_other_at_a_semaphore(version: Version) {
    let stage = version.stage().await;
    let (client, name) = (client(&stage).await, unique_name("pool"));
    let channel = format!("redisson_sc:{{{name}}}");
    let (ours, java) = (
        client.semaphore(&name),
        Java::of(&stage, "semaphore", &name),
    );
    ours.try_set_permits(1).await.unwrap();
    for _ in 0..3 {
        let permit = ours.acquire().await.unwrap();
        let theirs = java.begin("waits", &["acquire", "1"]);
        waits(&stage, &channel, 1).await;
        permit.release().await.unwrap();
        ended(theirs).await;
        let waiting = tokio::spawn({
            let ours = ours.clone();
            async move { ours.acquire().await }
        });
        waits(&stage, &channel, 1).await;
        java.call(&["release", "1"]).await;
        let permit = timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
        permit.release().await.unwrap();
    }
    assert_eq!(java.call(&["availablePermits"]).await, "1");
}

pub async fn java_has_its_turns_beside_a_crowd(version: Version) {
    let stage = version.stage().await;
    let (client, name) = (client(&stage).await, unique_name("pool"));
    let java = Java::of(&stage, "semaphore", &name);
    client.semaphore(&name).try_set_permits(2).await.unwrap();
    let mut crowd = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let pool = client.semaphore(&name);
        crowd.spawn(async move {
            loop {
                pool.acquire().await.unwrap().release().await.unwrap();
            }
        });
    }
    let from = std::time::Instant::now();
    ended(java.begin("turns", &["turns", "50"])).await;
    println!("50 turns beside a crowd took {:?}", from.elapsed());
    crowd.shutdown().await;
}

pub async fn permits_with_an_end_are_shared(version: Version) {
    let stage = version.stage().await;
    let (client, name) = (client(&stage).await, unique_name("pool"));
    let channel = format!("redisson_sc:{{{name}}}");
    let lease = Duration::from_secs(60);
    let (ours, java) = (
        client.permit_expirable_semaphore(&name),
        Java::of(&stage, "expirable", &name),
    );
    assert_eq!(java.call(&["trySetPermits", "2"]).await, "true");
    let theirs = java.call(&["acquire", "60000"]).await;
    let permit = ours.with_lease(lease).acquire().await.unwrap();
    assert_eq!(theirs.len(), permit.id().len());
    assert_eq!(java.call(&["tryAcquire", "60000"]).await, "null");
    assert_eq!(java.call(&["acquiredPermits"]).await, "2");
    assert_eq!(java.call(&["getPermits"]).await, "2");
    assert_eq!(ours.permits().await, Ok(2));
    // Each side releases and prolongs the permits of the other.
    let updated = java.call(&["updateLeaseTime", permit.id(), "600000"]).await;
    assert_eq!(updated, "true");
    assert!(ours.lease_left(permit.id()).await.unwrap().unwrap() > 2 * lease);
    assert!(ours.update_lease(&theirs, 10 * lease).await.unwrap());
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { ours.with_lease(lease).acquire().await }
    });
    waits(&stage, &channel, 1).await;
    assert_eq!(java.call(&["tryRelease", permit.id()]).await, "true");
    let next = timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
    assert!(!permit.release().await.unwrap());
    let endless = java.begin("waits", &["acquire"]);
    waits(&stage, &channel, 1).await;
    assert!(ours.release(&theirs).await.unwrap());
    let endless = ended(endless).await;
    assert_eq!(ours.lease_left(&endless).await, Ok(Some(Duration::MAX)));
    java.call(&["setPermits", "5"]).await;
    assert_eq!(ours.available_permits().await, Ok(3));
    ours.set_permits(3).await.unwrap();
    assert_eq!(java.call(&["availablePermits"]).await, "1");
    // An expired permit returns to waiters of the other side.
    next.release().await.unwrap();
    java.call(&["setPermits", "2"]).await;
    ours.with_lease(Duration::from_millis(500))
        .acquire()
        .await
        .unwrap()
        .leak();
    ended(java.begin("waits", &["acquire", "500"])).await;
    timeout(AMPLE, ours.with_lease(lease).acquire())
        .await
        .unwrap()
        .unwrap()
        .leak();
}

pub async fn lists_of_permits_are_shared(version: Version) {
    let stage = version.stage().await;
    let (client, name) = (client(&stage).await, unique_name("pool"));
    let channel = format!("redisson_sc:{{{name}}}");
    let lease = Duration::from_secs(60);
    let (ours, java) = (
        client.permit_expirable_semaphore(&name),
        Java::of(&stage, "expirable", &name),
    );
    assert!(ours.try_set_permits(5).await.unwrap());
    let mine = ours.with_lease(lease).acquire_many(3).await.unwrap();
    let mine: Vec<_> = mine
        .into_iter()
        .map(|permit| {
            let id = permit.id().to_owned();
            permit.leak();
            id
        })
        .collect();
    assert_eq!(java.call(&["acquiredPermits"]).await, "3");
    assert_eq!(java.call(&["tryAcquireList", "3"]).await, "");
    let theirs = java.call(&["acquireList", "2", "60000"]).await;
    let theirs: Vec<_> = theirs.split(',').collect();
    assert!(
        ours.with_lease(lease)
            .try_acquire_many(1)
            .await
            .unwrap()
            .is_none()
    );
    // All or none, on both sides.
    let missing = "0".repeat(32);
    let mixed = [theirs[0], &missing];
    assert!(!ours.release_many(mixed).await.unwrap());
    let mixed = [&mine[0], &missing].map(String::as_str).join(",");
    assert_eq!(java.call(&["tryReleaseList", &mixed]).await, "0");
    assert_eq!(ours.acquired_permits().await, Ok(5));
    // Each side releases the permits of the other, and wakes its waiters.
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { ours.with_lease(lease).acquire_many(3).await }
    });
    waits(&stage, &channel, 1).await;
    assert_eq!(java.call(&["tryReleaseList", &mine.join(",")]).await, "3");
    let next = timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
    assert_eq!(next.len(), 3);
    let waiting = java.begin("waits", &["acquireList", "2", "60000"]);
    waits(&stage, &channel, 1).await;
    assert!(ours.release_many(theirs).await.unwrap());
    let theirs = ended(waiting).await;
    assert!(ours.release_many(theirs.split(',')).await.unwrap());
    assert_eq!(java.call(&["availablePermits"]).await, "2");
}

pub async fn a_latch_opens_for_both(version: Version) {
    let stage = version.stage().await;
    let (client, name) = (client(&stage).await, unique_name("ready"));
    let channel = format!("redisson_countdownlatch__channel__{{{name}}}");
    let (ours, java) = (
        client.count_down_latch(&name),
        Java::of(&stage, "latch", &name),
    );
    for java_is_last in [true, false] {
        assert_eq!(java.call(&["trySetCount", "2"]).await, "true");
        assert!(!ours.try_set_count(7).await.unwrap());
        let theirs = java.begin("waits", &["await"]);
        let waiting = tokio::spawn({
            let ours = ours.clone();
            async move { ours.wait().await }
        });
        waits(&stage, &channel, 2).await;
        match java_is_last {
            true => {
                ours.count_down().await.unwrap();
                assert_eq!(java.call(&["getCount"]).await, "1");
                java.call(&["countDown"]).await;
            }
            false => {
                java.call(&["countDown"]).await;
                assert_eq!(ours.count().await, Ok(1));
                ours.count_down().await.unwrap();
            }
        }
        ended(theirs).await;
        timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
    }
    // This crate's deletion opens the latch for Java's waiters too, and Redisson's does not.
    ours.try_set_count(2).await.unwrap();
    let theirs = java.begin("waits", &["await"]);
    waits(&stage, &channel, 1).await;
    assert!(ours.delete().await.unwrap());
    ended(theirs).await;
    ours.try_set_count(2).await.unwrap();
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { ours.wait().await }
    });
    waits(&stage, &channel, 1).await;
    assert_eq!(java.call(&["delete"]).await, "true");
    timeout(AMPLE, waiting).await.unwrap().unwrap().unwrap();
}
