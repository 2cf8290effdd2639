//! The order of fair locks, by the queue on the server.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use histories::{
    actor::{Scene, number},
    dropping::PATIENCE,
    handle::Wait,
    log::{Side, Spot, Trouble, What},
};
use redis::aio::MultiplexedConnection;
use redisson_lock::{LockClient, Owner};
use testbed::eventually;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// The waiters of one queue.
const WAITERS: usize = 8;
/// A lease that may end before the queue has formed.
const LEASE: Duration = Duration::from_millis(100);

/// Records the queues until the history ends.
pub async fn watch(mut admin: MultiplexedConnection, scene: Arc<Scene>) {
    while !scene.is_over() {
        for name in 0..scene.names.len() {
            look(&mut admin, &scene, name).await;
        }
        sleep(Duration::from_millis(1)).await;
    }
}

/// The owners in the lock's queue, in order.
async fn look(admin: &mut MultiplexedConnection, scene: &Scene, name: usize) -> Vec<u64> {
    let spot = place(0, name);
    let queue = format!("redisson_lock_queue:{{{}}}", scene.names[name]);
    scene.log.note(spot, What::Looks);
    let mut asks = redis::cmd("LRANGE");
    let asked = asks.arg(queue).arg(0).arg(-1).query_async(admin).await;
    let entries: Vec<String> = asked.expect("a list, or nothing");
    let owners = entries.iter().map(|entry| entry.rsplit(':').next());
    let owners: Vec<_> = owners
        .map(|number| number.unwrap().parse().unwrap())
        .collect();
    scene.log.note(spot, What::Queue(owners.clone()));
    owners
}

fn place(owner: u64, name: usize) -> Spot {
    Spot {
        owner,
        names: 1 << name,
        side: Side::Alone,
    }
}

/// A waiter in a queue, or the holder that it waits for.
#[derive(Clone)]
struct Participant {
    scene: Arc<Scene>,
    client: LockClient,
    owner: Owner,
    lease: Option<Duration>,
    /// Ends its wait.
    quits: CancellationToken,
    /// Ends its hold.
    leaves: CancellationToken,
}

impl Participant {
    async fn take_part(self) {
        let spot = place(number(self.owner), 0);
        let clients = std::slice::from_ref(&self.client);
        let lock = self.scene.handle(clients, spot, self.owner, self.lease);
        let log = &self.scene.log;
        let lease = self.lease.unwrap_or(self.scene.profile.watchdog_lease);
        let limited = false;
        log.note(spot, What::Asks { limited, lease });
        let taken = tokio::select! {
            biased;
            taken = timeout(PATIENCE, lock.take(Wait::Ever)) => taken,
            () = self.quits.cancelled() => return log.note(spot, What::Abandons),
        };
        let guard = match taken {
            Ok(Ok(Some(guard))) => guard,
            Ok(Ok(None)) => return log.note(spot, What::Refused),
            Ok(Err(error)) => return log.note(spot, What::Failed(error.into())),
            Err(_) => return log.note(spot, What::Failed(Trouble::Hung)),
        };
        let hold = log.enters(spot, lease, &*guard);
        self.leaves.cancelled().await;
        if let Some(reason) = log.probe(spot, hold, &*guard) {
            return log.note(spot, What::Lost { hold, reason });
        }
        log.note(spot, What::Ends { hold });
        let how = Some(guard.unlock().await.map_err(Trouble::from));
        log.note(spot, What::Ended { hold, how });
    }

    fn has_entered(&self) -> bool {
        let owner = number(self.owner);
        let events = self.scene.log.events();
        let mut latest = events.iter().rev().take(500);
        latest.any(|event| event.spot.owner == owner && matches!(event.what, What::Enters { .. }))
    }
}

/// Queues form behind a holder. Each waiter is in the queue before the next one arrives, and some
/// leave again. Then the holder releases, or its lease has ended.
pub async fn lines(
    scene: &Arc<Scene>,
    clients: &[LockClient],
    mut admin: MultiplexedConnection,
    mut random: Rng,
) {
    while !scene.is_over() {
        let (leaves, quits) = (CancellationToken::new(), CancellationToken::new());
        let mut line = JoinSet::new();
        for index in 0..=WAITERS {
            let first = index == 0;
            let participant = Participant {
                scene: scene.clone(),
                client: random.choice(clients).unwrap().clone(),
                owner: Owner::new(),
                lease: (first && random.bool()).then_some(LEASE),
                quits: if random.u8(..4) == 0 {
                    quits.clone()
                } else {
                    Default::default()
                },
                leaves: if first { leaves.clone() } else { cancelled() },
            };
            line.spawn(participant.clone().take_part());
            eventually(
                "the next participant has the lock or is in the queue",
                PATIENCE,
                async || {
                    look(&mut admin, scene, 0)
                        .await
                        .contains(&number(participant.owner))
                        || participant.has_entered()
                },
            )
            .await;
        }
        quits.cancel();
        leaves.cancel();
        line.join_all().await;
    }
}

fn cancelled() -> CancellationToken {
    let token = CancellationToken::new();
    token.cancel();
    token
}
