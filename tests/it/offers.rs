//! A hold that one task offers to the next of its process, which does not do what it should with it.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures_util::FutureExt;
use redisson_lock::{Error, Guard, Lock, LockClient, Owner, Reentrant, Released};
use testbed::{Proxy, Server, eventually, unique_name};
use tokio::{
    sync::Notify,
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use crate::hazards::stage::{GENEROUS, PROMPT, Random, all_done, connect, woken_only};

/// The wait of somebody, which is polled when the test says so.
struct Wait {
    future: Pin<Box<dyn Future<Output = Result<Guard<Reentrant>, Error>> + Send>>,
    woken: Arc<Woken>,
    entered: Option<Guard<Reentrant>>,
}

#[derive(Default)]
struct Woken(AtomicBool, Notify);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, SeqCst);
        self.1.notify_one();
    }
}

impl Wait {
    fn new(lock: &Lock<Reentrant>) -> Self {
        let lock = lock.owned_by(&Owner::new());
        let woken = Arc::<Woken>::default();
        woken.0.store(true, SeqCst);
        Self {
            future: Box::pin(async move { lock.lock().await }),
            woken,
            entered: None,
        }
    }

    fn is_woken(&self) -> bool {
        self.woken.0.load(SeqCst)
    }

    /// Polls it once.
    fn poll(&mut self) {
        self.woken.0.store(false, SeqCst);
        let waker = Waker::from(self.woken.clone());
        match self.future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => self.entered = Some(done.expect("it waits as long as it takes")),
            Poll::Pending => {}
        }
    }

    /// Polls it when it wants to be, until `condition`.
    async fn until(&mut self, mut condition: impl AsyncFnMut() -> bool) {
        eventually("the waiter gets there", GENEROUS, async || {
            if self.is_woken() {
                self.poll();
                assert!(self.entered.is_none(), "it has the lock too early");
            }
            condition().await && !self.is_woken()
        })
        .await;
    }

    async fn woken(&self) {
        let woken = async {
            while !self.is_woken() {
                self.woken.1.notified().await;
            }
        };
        timeout(GENEROUS, woken).await.expect("it is told");
    }

    async fn entered(mut self) -> Guard<Reentrant> {
        if let Some(guard) = self.entered {
            return guard;
        }
        let entered = std::future::poll_fn(|context| self.future.as_mut().poll(context));
        let entered = timeout(GENEROUS, entered).await;
        entered
            .expect("it is let in")
            .expect("it waits as long as it takes")
    }
}

/// A lock that one has, who will offer it to the one that waits, whom only a message can wake otherwise.
struct Stage {
    holder: Guard<Reentrant>,
    waiter: Wait,
    bed: Bed,
}

struct Bed {
    server: Server,
    proxy: Proxy,
    client: LockClient,
    lock: Lock<Reentrant>,
}

impl Stage {
    async fn new() -> Self {
        let server = Server::start().await;
        let proxy = Proxy::start(server.port()).await;
        let client = connect(&proxy.url(), woken_only()).await;
        let lock = client.reentrant_lock(unique_name("offered"));
        let first = lock
            .owned_by(&Owner::new())
            .lock()
            .await
            .expect("it is free");
        let mut waits = Vec::new();
        let scripts = async || server.calls().await.get("evalsha").copied().unwrap_or(0);
        for number in 0..3 {
            let (before, mut looks) = (scripts().await, 0);
            let mut wait = Wait::new(&lock);
            wait.until(async || {
                // Answered after what it has asked, on the same connection.
                assert_eq!(lock.is_locked().await, Ok(true));
                looks += 1;
                let asked = scripts().await - before - looks;
                // Refused twice; or it has found others that have just been.
                asked == 2 || number > 0 && asked == 0
            })
            .await;
            waits.push(wait);
        }
        let [second, third, waiter] = <[Wait; 3]>::try_from(waits).ok().expect("three wait");
        // The first release of a row is published; after the second, the server knows the script.
        assert_eq!(first.unlock().await, Ok(Released::Fully));
        let second = second.entered().await;
        let unlock = tokio::spawn(second.unlock());
        let holder = third.entered().await;
        is_released(unlock).await;
        let bed = Bed {
            server,
            proxy,
            client,
            lock,
        };
        Self {
            holder,
            waiter,
            bed,
        }
    }
}

impl Bed {
    async fn holders(&self) -> Vec<String> {
        self.server.command(&["HKEYS", self.lock.name()]).await
    }

    async fn published(&self) -> u64 {
        self.server
            .calls()
            .await
            .get("publish")
            .copied()
            .unwrap_or(0)
    }
}

type Unlock = JoinHandle<Result<Released, Error>>;

impl Stage {
    /// The holder unlocks, and has told the waiter so.
    async fn offered(mut self) -> (Unlock, Wait, Bed) {
        self.waiter.poll();
        let unlock = tokio::spawn(self.holder.unlock());
        self.waiter.woken().await;
        (unlock, self.waiter, self.bed)
    }

    /// The waiter has taken the offer as well, if this machine has let it in time.
    async fn taken(self) -> (Unlock, Wait, Bed) {
        let (unlock, mut waiter, bed) = self.offered().await;
        waiter.poll();
        (unlock, waiter, bed)
    }
}

async fn is_released(unlock: Unlock) {
    let unlocked = timeout(GENEROUS, unlock).await.expect("it is answered");
    assert_eq!(unlocked.expect("no panic"), Ok(Released::Fully));
}

impl Bed {
    /// The waiter is let in, and nothing is left behind it.
    async fn ends_with(self, waiter: Wait) {
        is_released(tokio::spawn(waiter.entered().await.unlock())).await;
        self.ends().await;
    }

    async fn ends(self) {
        let free = async || self.holders().await.is_empty();
        eventually("it is free", PROMPT, free).await;
        assert_eq!(self.client.shutdown().await.unreleased, []);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_offered_is_taken_without_a_message() {
    let stage = Stage::new().await;
    let published = stage.bed.published().await;
    let unlock = tokio::spawn(stage.holder.unlock());
    let guard = stage.waiter.entered().await;
    is_released(unlock).await;
    assert_eq!(stage.bed.published().await, published);
    is_released(tokio::spawn(guard.unlock())).await;
    stage.bed.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_nobody_polls_keeps_nobody_waiting() {
    let (unlock, waiter, bed) = Stage::new().await.offered().await;
    is_released(unlock).await;
    assert_eq!(bed.holders().await, [""; 0]);
    bed.ends_with(waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_takes_it_and_is_polled_no_more_keeps_nobody_waiting() {
    // The test may be too late to take it.
    for _ in 0..50 {
        let stage = Stage::new().await;
        // It takes the server two commands.
        stage.bed.server.command::<()>(&["SCRIPT", "FLUSH"]).await;
        let (unlock, waiter, bed) = stage.taken().await;
        is_released(unlock).await;
        let taken = bed.holders().await.len() == 1;
        bed.ends_with(waiter).await;
        if taken {
            return;
        }
    }
    panic!("nothing is ever taken");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_has_begun_is_done_though_nobody_is_polled_any_more() {
    let Stage {
        holder,
        waiter,
        bed,
    } = Stage::new().await;
    let mut unlock = pin!(holder.unlock());
    assert!(unlock.as_mut().now_or_never().is_none());
    let free = async || bed.holders().await.is_empty();
    eventually("it is free", PROMPT, free).await;
    assert_eq!(unlock.await, Ok(Released::Fully));
    bed.ends_with(waiter).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_gives_up_leaves_it_free() {
    let (unlock, waiter, bed) = Stage::new().await.offered().await;
    drop(waiter);
    is_released(unlock).await;
    assert_eq!(bed.holders().await, [""; 0]);
    bed.ends().await;
    let (unlock, waiter, bed) = Stage::new().await.taken().await;
    drop(waiter);
    is_released(unlock).await;
    bed.ends().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_giver_that_gives_up_has_given_it() {
    for taken in [false, true] {
        let stage = Stage::new().await;
        let (unlock, waiter, bed) = match taken {
            true => stage.taken().await,
            false => stage.offered().await,
        };
        unlock.abort();
        let _ = unlock.await;
        bed.ends_with(waiter).await;
    }
}

/// The connection breaks before the server reads it, or after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hand_over_that_is_not_answered_is_made_up_for() {
    for ran in [false, true] {
        let stage = Stage::new().await;
        match ran {
            true => stage.bed.proxy.faults().lose_next_reply(),
            false => stage.bed.proxy.faults().lose_next_request(),
        }
        let (unlock, waiter, bed) = stage.taken().await;
        let entered = waiter.entered().await;
        is_released(unlock).await;
        is_released(tokio::spawn(entered.unlock())).await;
        bed.ends().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_giver_has_lost_it_cannot_give() {
    let stage = Stage::new().await;
    let name = stage.bed.lock.name().to_owned();
    let server = &stage.bed.server;
    server.command::<()>(&["DEL", &name]).await;
    let theirs = ["HSET", &name, "somebody", "1"];
    server.command::<()>(&theirs).await;
    let (unlock, waiter, bed) = stage.taken().await;
    let waiter = tokio::spawn(waiter.entered());
    let unlocked = timeout(GENEROUS, unlock).await.expect("it is answered");
    let lost = matches!(unlocked.expect("no panic"), Err(Error::Lost { .. }));
    assert!(lost, "it says that it has released it");
    assert_eq!(bed.holders().await, ["somebody"]);
    bed.server.command::<()>(&["DEL", &name]).await;
    let channel = format!("redisson_lock__channel:{{{name}}}");
    bed.server.command::<()>(&["PUBLISH", &channel, "0"]).await;
    let entered = waiter.await.expect("no panic");
    is_released(tokio::spawn(entered.unlock())).await;
    bed.ends().await;
}

/// In a crowd in which many do not wait for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_who_give_up_cost_a_crowd_no_wake_up() {
    const TASKS: usize = 24;
    const TURNS: usize = 200;
    let server = Server::start().await;
    let client = connect(&server.url(), woken_only()).await;
    let lock = client.reentrant_lock(unique_name("impatient"));
    let mut random = Random::new();
    let (inside, mut tasks) = (Arc::new(AtomicBool::new(false)), JoinSet::new());
    for task in 0..TASKS {
        let (lock, inside) = (lock.clone(), inside.clone());
        let mut random = random.split();
        tasks.spawn(async move {
            let mut turns = 0;
            while turns < TURNS {
                let patience = match task % 3 {
                    0 => GENEROUS,
                    _ => random.up_to(Duration::from_millis(4)),
                };
                let Ok(guard) = timeout(patience, lock.lock()).await else {
                    turns += usize::from(task % 3 > 0);
                    assert!(task % 3 > 0, "it is not let in");
                    continue;
                };
                let guard = guard.expect("it waits as long as it takes");
                assert!(!inside.swap(true, SeqCst), "two are inside");
                inside.store(false, SeqCst);
                match turns % 4 {
                    0 => drop(guard),
                    1 => drop(
                        timeout(random.up_to(Duration::from_micros(300)), guard.unlock()).await,
                    ),
                    _ => assert_eq!(guard.unlock().await, Ok(Released::Fully)),
                }
                turns += 1;
            }
        });
    }
    all_done(tasks).await;
    let free = async || server.command::<u32>(&["EXISTS", lock.name()]).await == 0;
    eventually("it is free", PROMPT, free).await;
    assert_eq!(client.shutdown().await.unreleased, []);
}
