//! The life of a lock or synchronizer of each kind, through clients of this crate: every script of
//! every kind runs.

use std::time::Duration;

use redisson_lock::{Guard, JobOutcome, Kind, Lock, LockClient, Owner, Queued};
use testbed::{Server, eventually, unique_name};
use tokio::task::JoinSet;

use super::SOON;
use crate::contract::subjects::{
    Fair, Fenced, NonReentrant, NonReentrantFair, Read, Reentrant, Simple, Spin, Subject, Write,
};

const LEASE: Duration = Duration::from_secs(60);
/// Long enough for a waiter to subscribe and to ask again.
const BRIEFLY: Duration = Duration::from_millis(100);
/// More than the client sends alone: most travel in batches.
const MANY: usize = 200;

/// Two clients, and their server.
pub struct Lives<'a> {
    pub server: &'a Server,
    pub one: LockClient,
    pub other: LockClient,
}

impl Lives<'_> {
    pub async fn all(&self) {
        self.lock::<Reentrant>().await;
        self.lock::<NonReentrant>().await;
        self.lock::<Spin>().await;
        self.lock::<Fenced>().await;
        self.lock::<Simple>().await;
        self.lock::<Read>().await;
        self.lock::<Write>().await;
        self.queue::<Fair>().await;
        self.queue::<NonReentrantFair>().await;
        self.intents().await;
        self.downgrade().await;
        self.group().await;
        self.election().await;
        self.semaphore().await;
        self.expirable_semaphore().await;
        self.latch().await;
    }

    async fn lock<S: Subject>(&self) {
        let name = unique_name(S::NAME);
        let lock = S::lock(&self.one, &name);
        let rival = S::Rival::lock(&self.other, &name);
        let guard = lock.lock().await.unwrap();
        if S::REENTRANT {
            let inner = lock.try_lock().await.unwrap().expect("a second hold");
            let _ = inner.unlock().await.unwrap();
        }
        guard.extend(LEASE).await.unwrap();
        let refused = rival.try_lock_for(BRIEFLY).await;
        assert!(matches!(refused, Ok(None)), "{}: {refused:?}", S::NAME);
        assert!(lock.is_locked().await.unwrap());
        assert_eq!(lock.hold_count().await, Ok(1));
        assert_eq!(lock.holders().await.unwrap().len(), 1, "{}", S::NAME);
        hand_over(guard, &rival).await;
        let guard = lock.lock().await.unwrap();
        assert_eq!(S::lock(&self.other, &name).force_unlock().await, Ok(true));
        drop(guard);
        if !S::SHARED {
            let ran = lock.run_at_least(LEASE, async |_| 7).await.unwrap();
            assert_eq!(ran, JobOutcome::Ran(7), "{}", S::NAME);
            let seen = rival.run_at_least(LEASE, async |_| 8).await.unwrap();
            assert!(
                matches!(seen, JobOutcome::Done { .. }),
                "{}: {seen:?}",
                S::NAME
            );
            assert_eq!(lock.force_unlock().await, Ok(true));
        }
        self.many::<S>().await;
    }

    /// Operations that travel in batches.
    async fn many<S: Subject>(&self) {
        let mut tasks = JoinSet::new();
        for _ in 0..MANY {
            let lock = S::lock(&self.one, &unique_name(S::NAME));
            tasks.spawn(async move { lock.run(async |_| ()).await });
        }
        for ran in tasks.join_all().await {
            ran.unwrap_or_else(|error| panic!("{}: {error}", S::NAME));
        }
    }

    async fn queue<S: Subject<Kind: Queued>>(&self) {
        self.lock::<S>().await;
        let name = unique_name(S::NAME);
        let (lock, rival) = (S::lock(&self.one, &name), S::lock(&self.other, &name));
        let guard = lock.lock().await.unwrap();
        let waiting = tokio::spawn(async move { rival.lock().await.unwrap().unlock().await });
        eventually("a waiter is in the queue", SOON, async || {
            lock.waiters().await.unwrap().len() == 1
        })
        .await;
        let _ = guard.unlock().await.unwrap();
        let _ = waiting.await.unwrap().unwrap();
    }

    /// A writer that waits beside a reader sets an intent, and ends it.
    async fn intents(&self) {
        for gives_up in [true, false] {
            let name = unique_name("intents");
            let intent = format!("{{{name}}}:write_intent");
            let exists = async || self.server.command::<u32>(&["EXISTS", &intent]).await == 1;
            let reading = Read::lock(&self.one, &name).lock().await.unwrap();
            let writer = Write::lock(&self.other, &name);
            let waiting = tokio::spawn(async move { writer.lock().await.unwrap().unlock().await });
            eventually("the writer sets an intent", SOON, exists).await;
            let newcomer = Read::lock(&self.one, &name).owned_by(&Owner::new());
            let _ = newcomer.try_lock().await.unwrap();
            if gives_up {
                waiting.abort();
                let _ = waiting.await;
            } else {
                let _ = reading.unlock().await.unwrap();
                let _ = waiting.await.unwrap().unwrap();
            }
        }
    }

    /// A writer reads too, and stops writing first.
    async fn downgrade(&self) {
        let name = unique_name("downgrade");
        let writing = Write::lock(&self.one, &name).lock().await.unwrap();
        let reading = Read::lock(&self.one, &name).lock().await.unwrap();
        let again = Read::lock(&self.one, &name).lock().await.unwrap();
        let _ = writing.unlock().await.unwrap();
        reading.extend(LEASE).await.unwrap();
        let _ = reading.unlock().await.unwrap();
        let _ = again.unlock().await.unwrap();
    }

    async fn group(&self) {
        let names = [unique_name("a"), unique_name("b"), unique_name("c")];
        let guard = self.one.multi_lock(names).lock().await.unwrap();
        guard.unlock().await.unwrap();
    }

    async fn election(&self) {
        let name = unique_name("election");
        let term = self.one.election(&name).campaign("me").await.unwrap();
        let leader = self.other.election(&name).leader().await.unwrap();
        assert_eq!(leader.map(|leader| leader.identity), Some("me".into()));
        term.resign().await.unwrap();
    }

    async fn semaphore(&self) {
        let name = unique_name("semaphore");
        let (ours, theirs) = (self.one.semaphore(&name), self.other.semaphore(&name));
        assert_eq!(ours.try_set_permits(2).await, Ok(true));
        let permits = ours.acquire_many(2).await.unwrap();
        assert!(theirs.try_acquire_for(BRIEFLY).await.unwrap().is_none());
        permits.release().await.unwrap();
        assert_eq!(theirs.available_permits().await, Ok(2));
        assert_eq!(theirs.drain_permits().await, Ok(2));
        ours.add_permits(1).await.unwrap();
    }

    async fn expirable_semaphore(&self) {
        let name = unique_name("permits");
        let ours = self.one.permit_expirable_semaphore(&name);
        let theirs = self.other.permit_expirable_semaphore(&name);
        assert_eq!(ours.try_set_permits(2).await, Ok(true));
        let permits = ours.with_lease(LEASE).acquire_many(2).await.unwrap();
        assert!(
            theirs
                .with_lease(LEASE)
                .try_acquire_for(BRIEFLY)
                .await
                .unwrap()
                .is_none()
        );
        assert_eq!(
            ours.update_lease(permits[0].id(), 2 * LEASE).await,
            Ok(true)
        );
        let left = ours.lease_left(permits[0].id()).await.unwrap();
        assert!(left > Some(LEASE), "{left:?}");
        for permit in permits {
            assert_eq!(permit.release().await, Ok(true));
        }
        ours.set_permits(3).await.unwrap();
        ours.add_permits(-1).await.unwrap();
        // A permit that ends, and is taken back.
        ours.with_lease(Duration::from_millis(10))
            .acquire()
            .await
            .unwrap()
            .leak();
        eventually("the permit ends", SOON, async || {
            theirs.available_permits().await == Ok(2)
        })
        .await;
        assert_eq!(theirs.permits().await, Ok(2));
    }

    async fn latch(&self) {
        let name = unique_name("latch");
        let latch = self.one.count_down_latch(&name);
        let theirs = self.other.count_down_latch(&name);
        assert_eq!(latch.try_set_count(2).await, Ok(true));
        assert_eq!(theirs.wait_for(BRIEFLY).await, Ok(false));
        for left in [1, 0] {
            latch.count_down().await.unwrap();
            assert_eq!(theirs.count().await, Ok(left));
        }
        assert_eq!(latch.try_set_count(1).await, Ok(true));
        assert_eq!(latch.delete().await, Ok(true));
        theirs.wait().await.unwrap();
    }
}

/// Releases a lock to a waiter of another client.
async fn hand_over<A: Kind, B: Kind>(guard: Guard<A>, rival: &Lock<B>) {
    let rival = rival.clone();
    let waiting = tokio::spawn(async move { rival.lock().await.unwrap().unlock().await });
    let _ = guard.unlock().await.unwrap();
    let _ = waiting.await.unwrap().unwrap();
}
