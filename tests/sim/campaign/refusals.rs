//! Bounds what a hand-off costs the server: the refused acquisitions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use histories::{
    handle::{Asker, Wait},
    log::{Event, What},
    profiles::CALM,
    subjects::Subject,
};
use redisson_lock::Owner;
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Executed, Fate, Faults, Frame},
};
use rmp::{Marker, decode};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

use crate::campaign::history::SUBJECTS;

/// How many operations an answer refuses because another owner has the lock.
pub fn refusals(answer: &Frame) -> u64 {
    match answer {
        Frame::List(parts) => match &parts[..] {
            [Frame::Number(BUSY), Frame::Number(_)] => 1,
            parts => parts.iter().map(refusals).sum(),
        },
        Frame::Text(packed) => in_packed(packed).unwrap_or(0),
        _ => 0,
    }
}

/// The status of a refusal in `lua/batch.lua`.
const BUSY: i64 = 1;

/// The refusals in a batch of answers, which is a MessagePack list.
fn in_packed(mut packed: &[u8]) -> Option<u64> {
    let mut refused = 0;
    for _ in 0..decode::read_array_len(&mut packed).ok()? {
        if let Marker::FixArray(2) = Marker::from_u8(*packed.first()?) {
            decode::read_array_len(&mut packed).ok()?;
            let status: i64 = decode::read_int(&mut packed).ok()?;
            refused += u64::from(status == BUSY);
        }
        decode::read_int::<i64, _>(&mut packed).ok()?;
    }
    Some(refused)
}

/// A lease shorter than this may end while tasks wait for the lock.
const SHORT: Duration = Duration::from_millis(500);

/// The bound of refusals in an undisturbed history. An arriving task is refused at most twice: before it has subscribed, and after.
/// The end of a hold, or of an attempt that may have been granted, makes one task of each client ask; all but one are refused. The
/// end of a lease makes one task of each client ask too, and all may be refused.
pub fn bounded(events: &[Event], refused: u64, clients: u64) -> Result<(), String> {
    let mut most = 0;
    for event in events {
        most += match &event.what {
            What::Asks { .. } => 2,
            What::Ends { .. } | What::Drops { .. } | What::Ended { how: None, .. } => clients - 1,
            What::Abandons | What::Refused | What::Failed(_) | What::Forces => clients - 1,
            What::Enters { lease, .. } if *lease < SHORT => clients,
            _ => 0,
        };
    }
    match refused <= most {
        true => Ok(()),
        false => Err(format!(
            "the server refused {refused} acquisitions because another owner had the lock, and {most} are allowed"
        )),
    }
}

const CLIENTS: usize = 3;
/// The tasks of each client, and the acquisitions of each task.
const TASKS: usize = 16;
const TURNS: usize = 5;

/// Counts refusals instead of scripts, because one script carries many operations. Delays each command by 1 ms.
struct Counter(Arc<AtomicU64>);

impl Faults for Counter {
    fn sending(&mut self, _connection: u64, _command: &'static str) -> Fate {
        Fate {
            delay: Duration::from_millis(1),
            ending: None,
        }
    }

    fn executed(&mut self, executed: &Executed<'_>) {
        self.0.fetch_add(refusals(executed.answer), Relaxed);
    }
}

/// The most refusals of a crowd. Each acquisition refuses all clients but one, and the next attempt of the task that released. Each task is refused
/// twice when it arrives.
const MOST: u64 = (CLIENTS * TURNS + 2) as u64 * (CLIENTS * TASKS) as u64;

/// Runs all acquisitions, without hand-offs in memory. Fails when the server refuses too many.
async fn crowd(subject: Subject) {
    let (server, refused) = (InMemoryRedis::new(), Arc::new(AtomicU64::new(0)));
    server.set_faults(Counter(refused.clone()));
    let mut config = CALM.config();
    config.local_hand_off = Duration::ZERO;
    let (_, make) = subject.sides[subject.sides.len() - 1];
    let mut tasks = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = server.client_with(config.clone()).await;
        let client = client.expect("the server is up");
        for _ in 0..TASKS {
            let lock = make(Asker {
                clients: std::slice::from_ref(&client),
                names: &[(0, "crowded")],
                owner: Owner::new(),
                lease: None,
            });
            tasks.spawn(async move {
                for _ in 0..TURNS {
                    let guard = lock.take(Wait::Ever).await.expect("no answer is lost");
                    sleep(Duration::from_millis(5)).await;
                    let guard = guard.expect("an unlimited wait ends with the lock");
                    guard.unlock().await.expect("the lock is held");
                }
            });
        }
    }
    let is_too_much = async {
        while refused.load(Relaxed) <= MOST {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let turns = CLIENTS * TASKS * TURNS;
    tokio::select! {
        all = timeout(Duration::from_secs(600), tasks.join_all()) => drop(all.expect("a task does not get the lock")),
        () = is_too_much => {}
    }
    let (kind, refused) = (subject.name, refused.load(Relaxed));
    assert!(
        refused <= MOST,
        "{kind}: {refused} refusals, and {MOST} are allowed for {turns} acquisitions by {CLIENTS} clients"
    );
}

/// A release makes one task of each client ask, however many wait.
#[tokio::test(start_paused = true)]
async fn p_w9_a_hand_off_costs_as_many_asks_as_there_are_clients() {
    let single = |subject: &&Subject| !subject.group && subject.exact;
    for subject in SUBJECTS.iter().filter(single) {
        fastrand::seed(1);
        crowd(*subject).await;
    }
}
