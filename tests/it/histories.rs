//! Random histories: eight tasks of three clients do all that can be done with locks of one kind, on a server that is
//! disturbed by chance, and write down what they see; an oracle says whether locks that keep their word can look so.
//!
//! `HISTORY_SEED=<number>` repeats the same operations and disturbances (though not the same timing), and
//! `HISTORY_SECONDS=<number>` sets how long a history lasts: `make soak` runs long ones. A failure prints its seed, the
//! rule that was broken, and what led there. The oracle is seen failing in `oracle_tests.rs`.
//!
//! A new kind is a [`Subject`](subjects::Subject) and one line at the end.

#[path = "../histories/mod.rs"]
mod played;
mod queue;
mod weather;

use std::{
    hash::{BuildHasher, RandomState},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use played::{
    actor::{Actor, Clients, PATIENCE, Scene},
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

/// Holds that make a history worth judging.
const MANY: u64 = 200;
const ACTORS: usize = 8;
const CLIENTS: usize = 3;
const NAMES: usize = 2;
/// For groups, which may be of all of them.
const GROUPED: usize = 3;
/// For what happens at once, as opposed to after a lease of 30 s.
const PROMPT: Duration = Duration::from_secs(10);

/// The seed of a history, from `HISTORY_SEED` or new; it is shown when the test fails.
fn seed() -> u64 {
    let given = std::env::var("HISTORY_SEED").ok();
    let seed = given.map_or_else(
        || RandomState::new().hash_one(0),
        |seed| seed.parse().expect("HISTORY_SEED is a number"),
    );
    println!("HISTORY_SEED={seed}");
    seed
}

/// How long a history lasts: two seconds, or `HISTORY_SECONDS`.
fn length() -> Duration {
    let given = std::env::var("HISTORY_SECONDS").ok();
    let seconds = given.map(|seconds| seconds.parse().expect("HISTORY_SECONDS is a number"));
    Duration::from_secs(seconds.unwrap_or(2))
}

/// The server of one history, and the clients, each behind a proxy of its own.
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

    /// All has been given back: no lock, no subscription, no connection.
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
        weather::blow(&stage.server, &stage.proxies, longest, random, &scene).await;
    } else if subject.fair {
        tasks.spawn(queue::watch(stage.server.admin().await, scene.clone()));
    }
    let all = timeout(length() + 5 * PATIENCE, tasks.join_all()).await;
    let tally = judged(&scene);
    all.expect("all actors come to their end");
    assert!(tally.entered > 50, "not much happened: {tally:?}");
    // What is left unreleased under such conditions ends with its lease.
    let lease = profile
        .disturbed
        .map_or(Duration::ZERO, |_| profile.watchdog_lease);
    stage.is_left_clean(PROMPT + lease).await;
}

/// Plays a history of lines, and judges it.
async fn lines(subject: Subject) {
    let random = Rng::with_seed(seed());
    let stage = Stage::new(&profiles::CALM).await;
    let scene = scene(subject, profiles::CALM);
    queue::lines(&scene, &stage.clients, stage.server.admin().await, random).await;
    let tally = judged(&scene);
    assert!(tally.ordered > 50, "not much happened: {tally:?}");
    stage.is_left_clean(PROMPT).await;
}

/// What the oracle says.
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
