//! A master fails over by order, by its death and by a pause, while owners hold locks of several
//! kinds and tasks wait.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redisson_lock::{Error, Guard, LockClient, Released};
use testbed::{Replicated, Server, Watched, eventually, unique_name};
use tokio::{
    task::{JoinHandle, JoinSet},
    time::timeout,
};

use super::{config, connections, ledger::Ledger, left_clean, rounds};
use crate::{
    contract::subjects::{Fair, Read, Reentrant, Write},
    hazards::stage::{
        GENEROUS, Locks, Room, Subject, all_done, connect, exists, scripts, subscriptions,
    },
};

/// The limit from the new master's first write to the last waiter's acquisition.
const INSIDE_WITHIN: Duration = Duration::from_secs(5);
const WAITERS: usize = 4;

type HeldBy<S> = Guard<<<S as Subject>::Rival as Subject>::Kind>;

/// An owner that holds a lock to the end, another that holds one until the failover, and waiters
/// for the second lock.
struct Line<S: Subject> {
    kept: HeldBy<S>,
    held: HeldBy<S>,
    waiting: JoinSet<Instant>,
    room: Arc<Room>,
}

impl<S: Subject> Line<S> {
    async fn form(set_up: &Watched, clients: &[LockClient]) -> Self {
        let (kept, waited) = (unique_name("kept"), unique_name("waited"));
        let kept = clients[0].rival::<S>(kept).lock().await.unwrap();
        let held = clients[0].rival::<S>(&waited).lock().await.unwrap();
        let (mut waiting, room) = (JoinSet::new(), Arc::<Room>::default());
        for waiter in 0..WAITERS {
            let lock = clients[waiter % clients.len()].kind::<S>(&waited);
            let room = room.clone();
            waiting.spawn(async move {
                let guard = lock.lock().await.expect("the waiter acquires the lock");
                let entered = Instant::now();
                room.visit_as::<S>().await;
                assert_eq!(guard.unlock().await, Ok(Released::Fully));
                entered
            });
        }
        // A fair lock has a channel per waiter, other kinds have one per client.
        let listeners = if S::NAME == Fair::NAME {
            WAITERS
        } else {
            clients.len()
        };
        let master = &set_up.replicated.servers[0];
        eventually("the tasks wait", GENEROUS, async || {
            listeners_at(master, &S::channel(&waited)).await >= listeners
        })
        .await;
        Self {
            kept,
            held,
            waiting,
            room,
        }
    }

    /// The lock is released while no master answers. The waiters acquire it once there is one.
    fn finish(self, first_write: JoinHandle<Instant>) -> JoinHandle<(HeldBy<S>, Duration)> {
        tokio::spawn(async move {
            assert_eq!(self.room.visits(), 0, "the tasks wait");
            assert_eq!(self.held.unlock().await, Ok(Released::Fully));
            let entered = all_done(self.waiting).await.into_iter().max().unwrap();
            let first_write = first_write.await.expect("there is a new master");
            let took = entered.saturating_duration_since(first_write);
            assert!(
                took < INSIDE_WITHIN,
                "{}: the last waiter acquired it {took:?} after the first write",
                S::NAME
            );
            (self.kept, took)
        })
    }
}

/// Counts the connections that listen to channels that begin with `channel`.
async fn listeners_at(server: &Server, channel: &str) -> usize {
    let mut heard = subscriptions(server).await;
    heard.retain(|heard| heard.starts_with(channel));
    let mut listeners = 0;
    for channel in heard {
        let (_, count): (String, usize) = server.command(&["PUBSUB", "NUMSUB", &channel]).await;
        listeners += count;
    }
    listeners
}

/// The time of the first write that a server on one of `ports` accepts.
async fn first_write(ports: Vec<u16>) -> Instant {
    let mut attempts = JoinSet::new();
    for port in ports {
        attempts.spawn(async move {
            let client = redis::Client::open(("127.0.0.1", port)).unwrap();
            loop {
                if let Ok(mut connection) = client.get_multiplexed_async_connection().await
                    && redis::cmd("SET")
                        .arg(&["probe", "1", "PX", "1"])
                        .exec_async(&mut connection)
                        .await
                        .is_ok()
                {
                    return Instant::now();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
    let first = timeout(2 * GENEROUS, attempts.join_next()).await;
    first.expect("a new master takes writes").unwrap().unwrap()
}

/// Waits until the client's locks are on `new`.
async fn follows(client: &LockClient, new: &Server) {
    eventually("the client follows", GENEROUS, async || {
        let name = unique_name("follows");
        let guard = client.reentrant_lock(&name).lock().await.unwrap();
        let is_there = exists(new, &name).await;
        let _ = guard.unlock().await;
        is_there
    })
    .await;
}

/// The old master's behaviour until the clients have found the new one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OldMaster {
    Answers,
    IsSilent,
}

/// Runs a failover from the first server to another, and checks its rules.
async fn survives(
    old: OldMaster,
    fail: impl AsyncFn(&Watched),
    recover: impl AsyncFn(&Watched, usize, &LockClient),
) {
    let set_up = Watched::start().await;
    let clients = [
        connect(&set_up.url(), config()).await,
        connect(&set_up.url(), config()).await,
    ];
    let plain = Line::<Reentrant>::form(&set_up, &clients).await;
    let fair = Line::<Fair>::form(&set_up, &clients).await;
    let read = Line::<Read>::form(&set_up, &clients).await;
    let write = Line::<Write>::form(&set_up, &clients).await;
    let (ledger, mut workers) = (Arc::<Ledger>::default(), JoinSet::new());
    let (busy, line) = (unique_name("busy"), unique_name("line"));
    for owner in 0..4 {
        let client = &clients[owner % 2];
        workers.spawn(ledger.clone().work(client.reentrant_lock(&busy), owner));
        workers.spawn(ledger.clone().work(client.fair_lock(&line), owner));
    }
    eventually("the workers hold locks", GENEROUS, async || {
        ledger.holds() > 20
    })
    .await;
    set_up.replicated.caught_up(0).await;

    let failing = Instant::now();
    fail(&set_up).await;
    let replicas = set_up.replicated.servers[1..]
        .iter()
        .map(Server::port)
        .collect();
    let written = tokio::spawn(first_write(replicas));
    let new = set_up.fails_over_from(0).await;
    let at = written.await.unwrap();
    // A release that the live old master executes would be a lost write.
    for client in &clients {
        follows(client, &set_up.replicated.servers[new]).await;
    }
    let two_masters = match old {
        OldMaster::Answers => failing..Instant::now(),
        OldMaster::IsSilent => failing..failing,
    };
    let written = || tokio::spawn(std::future::ready(at));
    let lines = (
        plain.finish(written()),
        fair.finish(written()),
        read.finish(written()),
        write.finish(written()),
    );
    let (plain, fair, read, write) = tokio::try_join!(lines.0, lines.1, lines.2, lines.3).unwrap();
    println!(
        "after the first write: plain {:?}, fair {:?}, read {:?}, write {:?}",
        plain.1, fair.1, read.1, write.1
    );
    recover(&set_up, new, &clients[1]).await;

    let before = ledger.holds();
    eventually("the workers hold locks again", GENEROUS, async || {
        ledger.holds() > before + 20
    })
    .await;
    ledger.close();
    all_done(workers).await;
    println!("{}", ledger.judged(&two_masters));
    assert!(!plain.0.is_lost() && !fair.0.is_lost() && !read.0.is_lost() && !write.0.is_lost());
    assert_eq!(plain.0.unlock().await, Ok(Released::Fully));
    assert_eq!(fair.0.unlock().await, Ok(Released::Fully));
    assert_eq!(read.0.unlock().await, Ok(Released::Fully));
    assert_eq!(write.0.unlock().await, Ok(Released::Fully));
    left_clean(&set_up, new, &clients).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_by_order_is_survived() {
    for _ in 0..rounds() {
        survives(
            OldMaster::Answers,
            async |set_up| set_up.order_failover().await,
            async |_, _, _| {},
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_after_the_masters_death_is_survived() {
    for _ in 0..rounds() {
        survives(
            OldMaster::IsSilent,
            async |set_up| set_up.replicated.servers[0].kill(),
            async |_, _, _| {},
        )
        .await;
    }
}

/// P-T5: the old master resumes as a master, and remains one for about 10 s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_is_survived_and_the_old_master_is_not_used_when_it_resumes() {
    for _ in 0..rounds() {
        survives(
            OldMaster::IsSilent,
            async |set_up| set_up.replicated.servers[0].pause(),
            is_not_believed,
        )
        .await;
    }
}

async fn is_not_believed(set_up: &Watched, new: usize, client: &LockClient) {
    let Replicated { servers } = &set_up.replicated;
    let name = unique_name("held");
    let guard = client.reentrant_lock(&name).lock().await.unwrap();
    servers[0].resume();
    eventually(
        "the clients close their connections",
        GENEROUS,
        async || connections(&servers[0]).await == 0,
    )
    .await;
    let before = scripts(&servers[0]).await;
    let mut asked = 0;
    let role = async || servers[0].info("replication").await["role"].clone();
    while role().await == "master" {
        let newcomer = connect(&set_up.url(), config()).await;
        let busy: Result<Option<_>, Error> = newcomer.reentrant_lock(&name).try_lock().await;
        assert!(busy.unwrap().is_none(), "a newcomer sees the hold");
        newcomer.shutdown().await;
        asked += 1;
    }
    println!("{asked} clients came while there were two masters");
    assert!(asked > 0 && !guard.is_lost());
    assert_eq!(
        scripts(&servers[0]).await,
        before,
        "no client sent a command to the old master"
    );
    assert!(exists(&servers[new], &name).await);
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
