//! Random histories: eight tasks of three clients run all operations on locks of one kind, on a
//! server with random faults. They record what they see, and an oracle checks that correct locks
//! can look like this.
//!
//! `HISTORY_SEED=<number>` repeats the operations and faults, but not the timing.
//! `HISTORY_SECONDS=<number>` sets the length: `make soak` runs long histories. A failure prints
//! its seed, the broken rule and the events before it. `crates/histories` tests the oracle.
//!
//! A new kind is a [`Subject`](histories::subjects::Subject) and one line at the end.

mod faults;
mod queue;

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use histories::{
    actor::{Actor, Clients, Scene},
    dropping::PATIENCE,
    log::{self, Log},
    oracle::judge,
    profiles::{self, Profile},
    subjects::{self, Subject},
    verdict::{Rules, Tally},
};
use redisson_lock::{LockClient, Owner};
use testbed::{Proxy, Server, eventually, unique_name};
use tokio::{
    task::JoinSet,
    time::{Instant, timeout},
};

/// The holds after which a history may end.
const MANY: u64 = 200;
const ACTORS: usize = 8;
const CLIENTS: usize = 3;
const NAMES: usize = 2;
/// The names of a group, which may contain all of them.
const GROUPED: usize = 3;
/// The limit for steps that do not wait for a lease of 30 s.
const PROMPT: Duration = Duration::from_secs(10);

/// The seed of a history, from `HISTORY_SEED` or new. A failed test shows it.
fn seed() -> u64 {
    let given = std::env::var("HISTORY_SEED").ok();
    let seed = given.map_or_else(
        || RandomState::new().hash_one(0),
        |seed| seed.parse().expect("HISTORY_SEED is a number"),
    );
    println!("HISTORY_SEED={seed}");
    seed
}

/// The length of a history: two seconds, or `HISTORY_SECONDS`.
fn length() -> Duration {
    let given = std::env::var("HISTORY_SECONDS").ok();
    let seconds = given.map(|seconds| seconds.parse().expect("HISTORY_SECONDS is a number"));
    Duration::from_secs(seconds.unwrap_or(2))
}

/// The server of one history and its clients, each behind its own proxy.
struct Stage {
    server: Server,
    proxies: Vec<Proxy>,
    clients: Vec<LockClient>,
}

impl Stage {
    async fn new(profile: &Profile) -> Self {
        let server = Server::start().await;
        let (mut proxies, mut clients) = (Vec::new(), Vec::new());
        for _ in 0..CLIENTS {
            let proxy = Proxy::start(server.port()).await;
            let builder = LockClient::builder().url(proxy.url());
            let client = builder.config(profile.config()).build().await;
            clients.push(client.expect("the server is up"));
            proxies.push(proxy);
        }
        Self {
            server,
            proxies,
            clients,
        }
    }

    /// Fails if a lock, a subscription or a connection is left.
    async fn is_left_clean(&self, within: Duration) {
        eventually("no lock is left", within, async || {
            let keys: Vec<String> = self.server.command(&["KEYS", "*"]).await;
            // Tokens outlive their locks.
            keys.iter()
                .all(|key| key.starts_with("redisson_lock_token"))
        })
        .await;
        eventually("no subscription is left", PROMPT, async || {
            let channels: Vec<String> = self.server.command(&["PUBSUB", "CHANNELS"]).await;
            channels.is_empty()
        })
        .await;
        for client in &self.clients {
            client.shutdown().await;
        }
        eventually("no connection is left", PROMPT, async || {
            let mut proxies = self.proxies.iter();
            proxies.all(|proxy| proxy.faults().connections() == 0)
        })
        .await;
    }
}

/// A history that begins now.
fn scene(subject: Subject, profile: Profile) -> Arc<Scene> {
    let names = 0..if subject.group { GROUPED } else { NAMES };
    Arc::new(Scene {
        subject,
        profile,
        names: names.map(|_| unique_name(subject.name)).collect(),
        log: Log::default(),
        least: Instant::now() + length(),
        most: Instant::now() + length() + PATIENCE,
        enough: MANY,
        new_owner: Owner::new,
    })
}

/// Plays a history and judges it.
async fn history(subject: Subject, profile: Profile) {
    let mut random = Rng::with_seed(seed());
    let stage = Stage::new(&profile).await;
    let scene = scene(subject, profile);
    let clients = Arc::new(Clients::new(stage.clients.clone()));
    let mut tasks = JoinSet::new();
    for actor in 0..ACTORS {
        let actor = Actor {
            scene: scene.clone(),
            clients: clients.clone(),
            own: actor % CLIENTS,
            random: random.fork(),
            episodes: u32::MAX,
        };
        tasks.spawn(actor.act());
    }
    if let Some(longest) = profile.disturbed {
        faults::inject(&stage.server, &stage.proxies, longest, random, &scene).await;
    } else if subject.fair {
        tasks.spawn(queue::watch(stage.server.admin().await, scene.clone()));
    }
    let all = timeout(length() + 5 * PATIENCE, tasks.join_all()).await;
    let tally = judged(&scene);
    all.expect("all actors end in time");
    assert!(tally.entered > 50, "too few holds: {tally:?}");
    // A hold that is left unreleased under faults ends with its lease.
    let lease = profile
        .disturbed
        .map_or(Duration::ZERO, |_| profile.watchdog_lease);
    stage.is_left_clean(PROMPT + lease).await;
}

/// Plays a history of queues, and judges it.
async fn lines(subject: Subject) {
    let random = Rng::with_seed(seed());
    let stage = Stage::new(&profiles::CALM).await;
    let scene = scene(subject, profiles::CALM);
    queue::lines(&scene, &stage.clients, stage.server.admin().await, random).await;
    let tally = judged(&scene);
    assert!(tally.ordered > 50, "too few ordered holds: {tally:?}");
    stage.is_left_clean(PROMPT).await;
}

/// The oracle's result.
fn judged(scene: &Scene) -> Tally {
    let events = scene.log.events();
    let rules = Rules {
        reentrant: scene.subject.reentrant,
        exact: scene.subject.exact,
        fair: scene.subject.fair && scene.profile.disturbed.is_none(),
        failovers_lose: false,
        disturbed: scene.profile.disturbed.is_some(),
        forced_hand_off: scene.subject.forced_hand_off(),
        slow_answer: Duration::from_secs(1),
    };
    let tally = judge(&events, rules).unwrap_or_else(|violation| {
        let tail = log::tail(&events, violation.at);
        panic!("{}\n{tail}", violation.rule)
    });
    println!("{} events, {tally:?}", events.len());
    tally
}

/// The histories of a kind.
macro_rules! histories {
    ($kind:ident: $subject:expr; $($profile:ident: $settings:expr),+) => {
        mod $kind {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $profile() {
                history($subject, $settings).await;
            })+
        }
    };
    ($kind:ident: $subject:expr) => {
        histories!($kind: $subject; calm: profiles::CALM, cuts: profiles::CUTS, freezes: profiles::FREEZES,
            forced: profiles::FORCED);
    };
}

histories!(reentrant: subjects::REENTRANT);
histories!(fair: subjects::FAIR);
histories!(read_write: subjects::READ_WRITE);
histories!(fenced: subjects::FENCED);
histories!(spin: subjects::SPIN);
histories!(non_reentrant: subjects::NON_REENTRANT);
histories!(non_reentrant_fair: subjects::NON_REENTRANT_FAIR);
histories!(simple: subjects::SIMPLE);
histories!(multi: subjects::MULTI; calm: profiles::CALM, cuts: profiles::CUTS, freezes: profiles::FREEZES);
histories!(multi_mixed: subjects::MULTI_MIXED; calm: profiles::CALM, cuts: profiles::CUTS, freezes: profiles::FREEZES);
histories!(red: subjects::RED; calm: profiles::CALM, cuts: profiles::CUTS, freezes: profiles::FREEZES);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fair_lines() {
    lines(subjects::FAIR).await;
}
