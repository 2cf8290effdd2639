//! Plays and judges the history of a seed.

use std::{
    any::Any,
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use histories::{
    actor::{Actor, Clients, Scene},
    dropping::PATIENCE,
    log::{self, HoldId, Log, Side, Spot, What},
    oracle::judge,
    profiles::{CALM, CUTS, FORCED, FREEZES, FULL, FaultKinds, OUTAGES, Profile, SILENCES, SLOW},
    subjects::{self, Subject},
    verdict::{Rules, Tally},
};
use redisson_lock::{Config, LockClient, Owner, ShardedPubSub};
use redisson_lock_test::simulation::{self, Replicated};
use tokio::{
    runtime::{Builder, RngSeed, UnhandledPanic},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    campaign::{
        queue_recorder,
        refusals::bounded,
        server_rules::{ServerRules, check_grant_order},
    },
    world::{
        client_shutdowns::{self, CLOSINGS, ClientShutdowns},
        cluster_faults::{self, ClusterFault, ClusterFaults},
        random_faults::RandomFaults,
        redisson_threads::{Dialect, Thread},
        replica_faults,
        servers::{Kind, World},
    },
};

pub const ACTORS: usize = 8;
const CLIENTS: usize = 3;
const JAVA_THREADS: u64 = 2;
/// Holds in a history. Each is a call of `lock` and one of `unlock`.
const HOLDS: u64 = 100;
/// The longest duration of a history, by its own clock.
const LONGEST: Duration = Duration::from_secs(20);
/// An owner whose first attempt is this much later enters a fair lock later.
const APART: Duration = Duration::from_millis(50);

pub const SUBJECTS: [Subject; 11] = [
    subjects::REENTRANT,
    subjects::FAIR,
    subjects::READ_WRITE,
    subjects::FENCED,
    subjects::SPIN,
    subjects::NON_REENTRANT,
    subjects::NON_REENTRANT_FAIR,
    subjects::SIMPLE,
    subjects::MULTI,
    subjects::MULTI_MIXED,
    subjects::RED,
];

/// The conditions of histories on one node. `forced` is last, because not all kinds can be forced open.
const PROFILES: [(&str, Profile); 9] = [
    ("calm", CALM),
    ("cuts", CUTS),
    ("freezes", FREEZES),
    ("slow", SLOW),
    ("outages", OUTAGES),
    ("silences", SILENCES),
    ("full", FULL),
    (client_shutdowns::NAME, CLOSINGS),
    ("forced", FORCED),
];

/// The conditions without connections, which therefore do not fall silent.
fn of_model() -> impl Iterator<Item = (&'static str, Profile)> {
    PROFILES
        .into_iter()
        .filter(|(_, profile)| profile.fault_kinds != FaultKinds::Silences)
}

const MODEL_PROFILES: usize = PROFILES.len() - 1;

/// A history to play. The fields `actors` and `episodes` make it smaller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub world: Kind,
    /// The index of the profile in its world.
    pub profile: usize,
    /// The tasks that take part.
    pub actors: Vec<usize>,
    /// The most episodes of each task.
    pub episodes: u32,
}

struct Chances {
    /// Whether a cluster publishes within its shards.
    is_sharded: bool,
    /// Whether readers share no hold.
    shares_no_hold: bool,
    /// Whether threads of Java join an undisturbed history. They join every calm one, unless readers are among them.
    has_java: bool,
}

/// A history that broke a rule.
pub struct Failure {
    pub rule: String,
    pub story: String,
}

/// A history that kept the rules.
pub struct Kept {
    pub tally: Tally,
    /// The commands that the servers executed.
    pub commands: u64,
    /// Every line of the history, if the caller requested it.
    pub story: String,
}

impl Plan {
    pub fn whole(seed: u64) -> Self {
        Self::of(seed, None)
    }

    /// The history of a seed in this world, or in that of the seed.
    pub fn of(seed: u64, world: Option<Kind>) -> Self {
        let chance = seed / SUBJECTS.len() as u64;
        let mut plan = Self {
            seed,
            world: world.unwrap_or_else(|| Kind::of(chance)),
            profile: 0,
            actors: (0..ACTORS).collect(),
            episodes: u32::MAX,
        };
        let subject = plan.subject();
        let profiles = match plan.world {
            Kind::Node => PROFILES.len() - usize::from(subject.group || !subject.exact),
            Kind::Cluster => cluster_faults::PROFILES.len(),
            Kind::Replicas => replica_faults::PROFILES.len(),
            Kind::Model => MODEL_PROFILES - usize::from(subject.group || !subject.exact),
        };
        // The world depends on `chance % 8`, and the kind on the remainder. Neighbouring seeds have different profiles.
        let chance = chance / 8 + chance % 8 + seed % SUBJECTS.len() as u64;
        plan.profile = (chance % profiles as u64) as usize;
        plan
    }

    /// A seed with the profile of that name.
    pub fn named(seed: u64, world: Kind, profile: &str) -> Self {
        let names: Vec<_> = match world {
            Kind::Node => PROFILES.map(|(name, _)| name).into(),
            Kind::Cluster => cluster_faults::PROFILES.map(|(name, ..)| name).into(),
            Kind::Replicas => replica_faults::PROFILES.map(|(name, _)| name).into(),
            Kind::Model => of_model().map(|(name, _)| name).collect(),
        };
        let at = names.iter().position(|name| *name == profile);
        Self {
            world,
            profile: at.unwrap_or_else(|| panic!("PROFILE is one of {names:?}, not {profile}")),
            ..Self::whole(seed)
        }
    }

    /// The kind of lock. Neighbouring seeds have different kinds.
    pub fn subject(&self) -> Subject {
        SUBJECTS[(self.seed % SUBJECTS.len() as u64) as usize]
    }

    /// The command that plays and tells it again.
    pub fn command(&self) -> String {
        let (seed, world, (profile, _)) = (self.seed, self.world, self.profile());
        format!("make simulate SEED={seed} WORLD={world} PROFILE={profile}")
    }

    /// The name and the profile.
    pub fn profile(&self) -> (&'static str, Profile) {
        match self.world {
            Kind::Node => PROFILES[self.profile],
            Kind::Model => of_model().nth(self.profile).expect("a profile"),
            Kind::Cluster => {
                let (name, profile, _) = cluster_faults::PROFILES[self.profile];
                (name, profile)
            }
            Kind::Replicas => replica_faults::PROFILES[self.profile],
        }
    }

    /// The changes of the cluster's slots.
    fn cluster_fault(&self) -> ClusterFault {
        match self.world {
            Kind::Cluster => cluster_faults::PROFILES[self.profile].2,
            Kind::Node | Kind::Replicas | Kind::Model => ClusterFault::None,
        }
    }

    /// What depends on the seed, and neither on the kind of lock, the world nor the profile.
    fn chances(&self) -> Chances {
        let mut random = Rng::with_seed(!self.seed);
        Chances {
            is_sharded: random.u8(..4) > 0,
            shares_no_hold: random.u8(..3) == 0,
            has_java: random.bool(),
        }
    }

    fn config(&self) -> Config {
        let mut config = self.profile().1.config();
        let chances = self.chances();
        if self.world == Kind::Cluster && !chances.is_sharded {
            config.sharded_pubsub = ShardedPubSub::Off;
        }
        // Without a hand-off window, readers share no hold, so the server knows of each.
        if self.subject().name == "read_write" && chances.shares_no_hold {
            config.local_hand_off = Duration::ZERO;
        }
        config
    }

    /// The kind of lock, the world and the profile.
    pub fn conditions(&self) -> String {
        let (subject, (profile, _)) = (self.subject().name, self.profile());
        match self.world {
            Kind::Node => format!("{subject}, {profile}"),
            world => format!("{subject}, {world}, {profile}"),
        }
    }

    /// Plays the history and judges it. With `with_story`, returns its story too.
    pub fn play(&self, with_story: bool) -> Result<Kept, Failure> {
        fastrand::seed(self.seed);
        simulation::count_owners_from(1);
        let played = catch_unwind(AssertUnwindSafe(|| {
            let seed = RngSeed::from_bytes(&self.seed.to_le_bytes());
            let mut builder = Builder::new_current_thread();
            let runtime = builder
                .enable_time()
                .start_paused(true)
                .rng_seed(seed)
                // A task of a client that panics ends the history.
                .unhandled_panic(UnhandledPanic::ShutdownRuntime)
                .build();
            runtime
                .expect("a runtime")
                .block_on(history(self, with_story))
        }));
        played.unwrap_or_else(|panic| {
            Err(Failure {
                rule: format!("a panic: {}", text(&*panic)),
                story: String::new(),
            })
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.conditions())
    }
}

fn text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

/// Whether nothing delays a waiter. Far from the server, or with slow replicas, a short lease may end before its grant arrives, and the
/// owner sends another attempt, behind other waiters.
fn is_calm(profile: Profile) -> bool {
    let is_near = profile.delay.is_zero() && profile.lag.is_zero();
    profile.disturbed.is_none() && is_near && !profile.forced
}

/// The dialects of the Java threads. They join undisturbed histories only, because Redisson's locks lose exclusion when connections
/// break: all that are calm, and half of the remaining ones and of those of readers. Beside Redisson's readers, a lock may be free for
/// long, so that rule needs histories without them.
fn dialects(plan: &Plan) -> &'static [Dialect] {
    let (name, profile) = plan.profile();
    let kind = plan.subject().name;
    let is_undisturbed =
        profile.disturbed.is_none() && !profile.forced && plan.world != Kind::Model;
    let always = name == "calm" && kind != "read_write";
    match is_undisturbed && (always || plan.chances().has_java) {
        true => Dialect::of(kind),
        false => &[],
    }
}

/// Removes the faults from the server: they refer to the log, and the log to the server, so neither would be freed.
struct Undisturbed(World);

impl Drop for Undisturbed {
    fn drop(&mut self) {
        self.0.set_faults(simulation::Calm);
    }
}

async fn history(plan: &Plan, with_story: bool) -> Result<Kept, Failure> {
    let mut random = Rng::with_seed(plan.seed);
    let (_, profile) = plan.profile();
    let server = World::new(plan.world, &profile, &mut random);
    let (scene, rules) = scene(plan, profile, &server);
    let faults = RandomFaults::new(random.fork(), scene.clone(), with_story);
    server.set_faults(faults.clone());
    let _cycle = Undisturbed(server.clone());
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = server.client_with(plan.config()).await;
        clients.push(client.expect("the server is up"));
    }
    let clients = Arc::new(Clients::new(clients));
    let mut tasks = JoinSet::new();
    for actor in 0..ACTORS {
        let played = Actor {
            scene: scene.clone(),
            clients: clients.clone(),
            own: actor % CLIENTS,
            random: random.fork(),
            episodes: plan.episodes,
        };
        let owner = Owner::new();
        if plan.actors.contains(&actor) {
            tasks.spawn(owner.scope(played.act()));
        }
    }
    let dialects = dialects(plan);
    for thread in (0..JAVA_THREADS).filter(|_| !dialects.is_empty()) {
        let thread = Thread {
            scene: scene.clone(),
            random: random.fork(),
            owner: thread + 1,
            dialects,
            is_sharded: plan.world == Kind::Cluster && plan.chances().is_sharded,
        };
        tasks.spawn(thread.run(server.clone()));
    }
    if let World::Node(server) = &server
        && scene.subject.fair
        && is_calm(profile)
    {
        tasks.spawn(queue_recorder::record(server.clone(), scene.clone()));
    }
    if plan.profile().0 == client_shutdowns::NAME {
        let closing = ClientShutdowns {
            world: server.clone(),
            config: plan.config(),
            scene: scene.clone(),
            clients: clients.clone(),
            random: random.fork(),
        };
        tasks.spawn(closing.run());
    }
    let playing = async {
        let mut ended = Ok(());
        while let Some(task) = tasks.join_next().await {
            if let Err(error) = task {
                ended = Err(format!("a task failed: {error}"));
            }
        }
        ended
    };
    let disturbing = disturbed(plan, &server, &scene, &faults, &mut random);
    let limit = LONGEST + 5 * PATIENCE;
    let over_at = Cell::new(usize::MAX);
    let played = async {
        let ended = tokio::select! {
            ended = playing => ended,
            rule = rules.detect_idle_lock() => Err(rule),
        };
        if ended.is_err() {
            over_at.set(scene.log.events().len());
        }
        ended
    };
    let (ended, _) = tokio::join!(timeout(limit, played), timeout(limit, disturbing));
    let judged = judged(&scene).and_then(|tally| match ended {
        Ok(Ok(())) => Ok(tally),
        Ok(Err(rule)) => Err(rule),
        Err(_) => Err("not all tasks came to their end".into()),
    });
    let is_counted = profile.disturbed.is_none() && matches!(plan.world, Kind::Node | Kind::Model);
    let judged = judged.and_then(|tally| match is_counted && rules.is_single() {
        true => {
            let clients = CLIENTS as u64;
            bounded(&scene.log.events(), faults.refused(), clients).map(|()| tally)
        }
        false => Ok(tally),
    });
    let judged = match judged {
        Ok(tally) => is_left_clean(&server, &clients.beginning_with(0), profile)
            .await
            .map(|()| tally),
        broken => broken,
    };
    let story = |with_story: bool| match with_story {
        true => scene
            .log
            .events()
            .iter()
            .take(over_at.get())
            .map(|event| format!("{event}\n"))
            .collect(),
        false => String::new(),
    };
    match judged {
        Ok(tally) => Ok(Kept {
            tally,
            commands: faults.commands(),
            story: story(with_story),
        }),
        Err(rule) => Err(Failure {
            rule,
            story: story(true),
        }),
    }
}

/// Injects faults of connections, of the cluster, or both.
async fn disturbed(
    plan: &Plan,
    world: &World,
    scene: &Arc<Scene>,
    faults: &RandomFaults,
    random: &mut Rng,
) {
    let Some(longest) = scene.profile.disturbed else {
        return;
    };
    let World::Cluster(cluster) = world else {
        return faults.inject(world, longest).await;
    };
    let cluster_faults = ClusterFaults {
        fault: plan.cluster_fault(),
        cluster: cluster.clone(),
        scene: scene.clone(),
        random: random.fork(),
    };
    let connection_faults = async {
        if cluster_faults::has_connection_faults(plan.profile().0) {
            faults.inject(world, longest).await;
        }
    };
    tokio::join!(cluster_faults.inject(longest), connection_faults);
}

fn scene(plan: &Plan, profile: Profile, server: &World) -> (Arc<Scene>, ServerRules) {
    let subject = plan.subject();
    let names: Vec<String> = (0..if subject.group { 3 } else { 2 })
        .map(|index| format!("{}:{index}", subject.name))
        .collect();
    let rules = ServerRules::new(
        server,
        &names,
        subject,
        profile,
        !dialects(plan).is_empty(),
        !plan.config().local_hand_off.is_zero(),
    );
    let observer = rules.clone();
    let scene = Arc::new(Scene {
        subject,
        profile,
        names,
        log: Log::observed(Some(Box::new(move |event| observer.check(event)))),
        least: Instant::now(),
        most: Instant::now() + LONGEST,
        enough: HOLDS,
        new_owner: Owner::new,
    });
    (scene, rules)
}

fn judged(scene: &Scene) -> Result<Tally, String> {
    if let Some(rule) = scene.log.broken() {
        return Err(rule);
    }
    let events = scene.log.events();
    let rules = Rules {
        reentrant: scene.subject.reentrant,
        exact: scene.subject.exact,
        fair: scene.subject.fair && is_calm(scene.profile),
        disturbed: scene.profile.disturbed.is_some(),
        failovers_lose: scene.profile.fault_kinds == FaultKinds::Losses,
        forced_hand_off: scene.subject.forced_hand_off(),
        slow_answer: Duration::ZERO,
    };
    let tally = judge(&events, rules)
        .map_err(|broken| format!("{}\n{}", broken.rule, log::tail(&events, broken.at)))?;
    if rules.fair {
        check_grant_order(&events, APART)?;
    }
    Ok(tally)
}

/// Checks that no lock, subscription or connection is left.
async fn is_left_clean(
    server: &World,
    clients: &[LockClient],
    profile: Profile,
) -> Result<(), String> {
    server.start();
    let lease = profile
        .disturbed
        .map_or(Duration::ZERO, |_| profile.watchdog_lease);
    // Tokens outlive their locks.
    let locks = || {
        let mut keys = server.keys();
        keys.retain(|key| !key.starts_with("redisson_lock_token"));
        // A new master may still have the place of a waiter that left. The next attempt of a waiter removes it.
        let places = ["redisson_lock_queue", "redisson_lock_timeout"];
        if profile.lag > Duration::ZERO && profile.disturbed.is_some() {
            keys.retain(|key| !places.iter().any(|place| key.starts_with(place)));
        }
        keys
    };
    sleep(Duration::from_millis(100)).await;
    if !locks().is_empty() {
        sleep(Duration::from_secs(10) + lease).await;
    }
    none("locks are left", locks())?;
    if !server.channels().is_empty() {
        sleep(Duration::from_secs(10)).await;
    }
    none("subscriptions are left", server.channels())?;
    for client in clients {
        let report = client.shutdown().await;
        if profile.disturbed.is_none() {
            none("a client did not release", report.unreleased)?;
        }
    }
    sleep(Duration::from_secs(1)).await;
    match server.connections() {
        0 => Ok(()),
        left => Err(format!("{left} connections are left")),
    }
}

fn none<T: fmt::Debug>(what: &str, left: Vec<T>) -> Result<(), String> {
    match left.is_empty() {
        true => Ok(()),
        false => Err(format!("{what}: {left:?}")),
    }
}

/// A master that is replaced while an earlier one still serves excuses lost holds as the earlier one does: for a lease.
#[tokio::test(start_paused = true)]
async fn holds_of_a_second_replaced_master_may_be_lost_for_a_lease() {
    let plan = Plan::named(0, Kind::Replicas, "losses");
    let (_, profile) = plan.profile();
    let lease = profile.watchdog_lease;
    let replicas = Replicated::new(0);
    let world = World::Replicas(replicas.clone());
    let (scene, _) = scene(&plan, profile, &world);
    world.set_faults(RandomFaults::new(Rng::with_seed(0), scene.clone(), false));
    let _cycle = Undisturbed(world);
    for _ in 0..2 {
        // Sentinels cannot convert an isolated master, so it serves to the end.
        replicas.isolate(replicas.master());
        assert!(replicas.fail_over());
        sleep(lease * 2 / 3).await;
    }
    let enters = |owner| {
        let spot = Spot {
            owner,
            names: 1,
            side: Side::Alone,
        };
        // The present master has no hold.
        let what = What::Enters {
            hold: HoldId(owner),
            lease,
            until: LONGEST,
            valid: true,
            token: None,
        };
        scene.log.note(spot, what);
        scene.log.broken()
    };
    assert_eq!(enters(1), None);
    sleep(lease / 2).await;
    let rule = enters(2).expect("the lease of the second master's holds is over");
    assert!(rule.starts_with("the server has 0 holds of"), "{rule}");
}

/// Campaigns of mixed worlds leave no conditions out: a choice that depends on another one of the same seed would.
#[test]
fn each_kind_meets_all_conditions() {
    let mut seen: BTreeMap<String, BTreeSet<[bool; 3]>> = BTreeMap::new();
    let mut possible = BTreeMap::new();
    for seed in 1..=400_000 {
        let plan = Plan::whole(seed);
        let (kind, (name, profile)) = (plan.subject().name, plan.profile());
        let config = plan.config();
        let choices = [
            config.sharded_pubsub == ShardedPubSub::Off,
            config.local_hand_off.is_zero(),
            !dialects(&plan).is_empty(),
        ];
        seen.entry(plan.conditions()).or_default().insert(choices);
        let reads = kind == "read_write";
        let is_calm = profile.disturbed.is_none() && !profile.forced;
        let may_lack_java = name != "calm" || reads;
        let choices = [
            plan.world == Kind::Cluster,
            reads,
            is_calm && may_lack_java && !Dialect::of(kind).is_empty(),
        ];
        let choices = choices.iter().filter(|choice| **choice).count();
        possible.insert(plan.conditions(), 1 << choices);
    }
    let of_worlds =
        PROFILES.len() + cluster_faults::PROFILES.len() + replica_faults::PROFILES.len();
    let cannot_be_forced = SUBJECTS.iter().filter(|kind| kind.group || !kind.exact);
    let all = SUBJECTS.len() * of_worlds - cannot_be_forced.count();
    assert_eq!(seen.len(), all);
    for (conditions, choices) in seen {
        assert_eq!(
            choices.len(),
            possible[&conditions],
            "{conditions}: {choices:?}"
        );
    }
}

/// Faults happen, and threads of Java take part, where a profile says so.
#[test]
fn profiles_do_what_they_say() {
    let java = "11111111-2222";
    let said = [
        (Kind::Node, "full", "NoMemory"),
        (Kind::Cluster, "hangs", " hangs for "),
        (Kind::Node, "calm", java),
        (Kind::Node, "slow", java),
        (Kind::Node, "closings", java),
        (Kind::Cluster, "calm", java),
        (Kind::Cluster, "closings", java),
        (Kind::Replicas, "lagging", java),
    ];
    for (world, profile, text) in said {
        let mut plans =
            (0..8).map(|seed| Plan::named(seed * SUBJECTS.len() as u64, world, profile));
        let says_so = |plan: Plan| match plan.play(true) {
            Ok(kept) => kept.story.contains(text),
            Err(failure) => panic!("{plan}: {}", failure.rule),
        };
        assert!(
            plans.any(says_so),
            "{world}, {profile}: {text:?} is in no story"
        );
    }
}
