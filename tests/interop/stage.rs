//! The servers, the Java service and the Rust service of a test.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, LazyLock, Weak};
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testbed::{Peer, eventually, java};
use tokio::sync::Mutex;

use crate::ground::{Ground, Topology};
use crate::kinds::{ALL, Kind, MADE_BY, REENTRANT, Waits};
use crate::rust_peer::{self, NO_POLLS};
use crate::worker::{Lock, Worker};

/// The limit for every step, on a machine however slow.
pub const AMPLE: Duration = Duration::from_secs(20);
/// A lease that no test reaches the end of.
pub const LONG: Duration = Duration::from_secs(600);

/// A version of Redisson and its deployment: a test runs against each.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    number: &'static str,
    pub on: Topology,
}

/// A version and a kind of lock: a test runs for each.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub version: Version,
    pub kind: &'static Kind,
}

impl Version {
    pub fn newest() -> Self {
        Self {
            number: "4.7.0",
            on: Topology::Single,
        }
    }

    pub fn on_sentinels() -> Self {
        Self::newest().on(Topology::Sentinels)
    }

    pub fn on_cluster() -> Self {
        Self::newest().on(Topology::Cluster)
    }

    pub fn on_classic_cluster() -> Self {
        Self::newest().on(Topology::ClassicCluster)
    }

    fn on(self, on: Topology) -> Self {
        Self { on, ..self }
    }

    /// The version in `OLDER_REDISSON`, which `make interop-all` sets to one after the other.
    pub fn older() -> Self {
        static OLDER: LazyLock<String> =
            LazyLock::new(|| std::env::var("OLDER_REDISSON").unwrap_or("3.27.0".to_owned()));
        Self {
            number: &OLDER,
            on: Topology::Single,
        }
    }

    /// Returns the version. Panics if it cannot be started. With `INTEROP=skip` the Makefile leaves
    /// these tests out, and counts them.
    pub fn that_is_built(self) -> Self {
        if let Err(missing) = java::check(self.number) {
            panic!("{missing}. `INTEROP=skip make test` leaves the tests against Java out.");
        }
        self
    }

    /// Whether the version precedes this one.
    pub fn is_before(self, major: u32, minor: u32) -> bool {
        let mut numbers = self.number.split('.').map(|part| part.parse::<u32>());
        let mut number = || numbers.next().and_then(Result::ok).expect("a.b.c");
        (number(), number()) < (major, minor)
    }

    /// A case for each kind of single lock that the version has.
    pub fn cases(self) -> Vec<Case> {
        let kinds = ALL
            .iter()
            .filter(|kind| !self.is_before(kind.since.0, kind.since.1) && !kind.is_group());
        kinds
            .map(|kind| Case {
                version: self,
                kind,
            })
            .collect()
    }

    /// The shared stage, with Redisson's settings, for tests that neither kill nor configure its
    /// services.
    pub async fn stage(self) -> Arc<Stage> {
        type Stages = BTreeMap<(&'static str, Topology), Weak<Stage>>;
        static STAGES: Mutex<Stages> = Mutex::const_new(BTreeMap::new());
        let mut stages = STAGES.lock().await;
        let kept = (self.number, self.on);
        if let Some(stage) = stages.get(&kept).and_then(Weak::upgrade) {
            return stage;
        }
        let stage = Arc::new(self.own_stage(Pace::REDISSONS).await);
        stages.insert(kept, Arc::downgrade(&stage));
        stage
    }

    /// A stage for one test.
    pub async fn own_stage(self, pace: Pace) -> Stage {
        let server = self.on.start().await;
        let java = self.java_peer(&server, pace).await;
        let rust = rust_peer(&server, self.on, pace).await;
        Stage {
            server,
            on: self.on,
            java,
            rust,
        }
    }

    /// A Java service that starts from Redisson's own configuration file.
    pub async fn java_peer_of(self, file: &std::path::Path) -> Peer {
        java::start_with(self.number, &[&format!("file://{}", file.display())]).await
    }

    /// A Java service on `server`.
    async fn java_peer(self, server: &Ground, pace: Pace) -> Peer {
        let (url, watchdog) = (server.url(), pace.watchdog.as_millis().to_string());
        let settings = [&url, &watchdog[..]].into_iter().chain(self.on.sharded());
        java::start_with(self.number, &settings.collect::<Vec<_>>()).await
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl Case {
    pub async fn stage(&self) -> Arc<Stage> {
        self.version.stage().await
    }
}

/// The intervals of renewals and polls.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The renewed lease, on both sides.
    pub watchdog: Duration,
    /// The longest time between two attempts of a Rust waiter.
    pub max_poll_interval: Duration,
    /// The time in which Rust tasks hand a lock off in memory.
    pub local_hand_off: Duration,
    /// How long a Rust service waits for an answer of the server.
    pub command_wait: Duration,
}

impl Pace {
    /// Redisson's settings. No wait of this crate ends by a poll.
    pub const REDISSONS: Self = Self {
        watchdog: Duration::from_secs(30),
        max_poll_interval: NO_POLLS,
        local_hand_off: Duration::from_millis(2),
        command_wait: Duration::from_secs(3),
    };
    /// For tests that outlast a lease.
    pub const SHORT_LEASES: Self = Self {
        watchdog: Duration::from_secs(3),
        ..Self::REDISSONS
    };
    /// For tests that also outlast an entry in a fair queue, which lasts three poll intervals.
    pub const SHORT_PLACES: Self = Self {
        max_poll_interval: Duration::from_secs(1),
        ..Self::SHORT_LEASES
    };
}

/// A Rust service on `server`, in its own process.
pub async fn rust_peer(server: &Ground, on: Topology, pace: Pace) -> Peer {
    let test = [
        "--exact",
        "rust_service_locks_and_unlocks",
        "--nocapture",
        "--test-threads=2",
    ];
    let mut config = rust_peer::settings(pace.watchdog, pace.max_poll_interval);
    config["localHandOff"] = (pace.local_hand_off.as_millis() as u64).into();
    config["timeout"] = (pace.command_wait.as_millis() as u64).into();
    if let Some(mode) = on.sharded() {
        config["shardedSubscriptionMode"] = mode.into();
    }
    let counting = server.first().await.url();
    let command = rust_peer::command(&server.url(), &counting, &config, &test);
    Peer::start("Rust", command).await
}

/// Serves as the Rust service until the end of the process, if a test started this binary as one.
pub fn serve_if_asked() {
    rust_peer::serve_if_asked(MADE_BY);
}

/// The Rust service without Java.
pub async fn rust_service_locks_and_unlocks() {
    let server = Topology::Single.start().await;
    let rust = rust_peer(&server, Topology::Single, Pace::REDISSONS).await;
    let lock = Lock::new(&REENTRANT);
    let worker = lock.worker(&rust);
    worker.lock().await;
    let pttl = async || server.command::<i64>(&["PTTL", &lock.name]).await;
    assert!(pttl().await > 0);
    worker.unlock().await;
    assert_eq!(pttl().await, -2);
}

#[derive(Debug)]
pub struct Stage {
    pub server: Ground,
    on: Topology,
    pub java: Peer,
    pub rust: Peer,
}

impl Stage {
    /// Another Rust service on the same servers.
    pub async fn rust_peer(&self, pace: Pace) -> Peer {
        rust_peer(&self.server, self.on, pace).await
    }

    /// Two new workers on one new lock, in Java and in Rust, and the same in reverse. The second
    /// worker's lock is the rival of the first one's.
    pub fn both_ways(&self, kind: &'static Kind) -> [(Worker<'_>, Worker<'_>); 2] {
        [(&self.java, &self.rust), (&self.rust, &self.java)].map(|(one, other)| {
            let lock = Lock::new(kind);
            (lock.worker(one), lock.rival().worker(other))
        })
    }

    /// Waits until this many connections listen for releases of `lock`, summed over its channels.
    pub async fn listening(&self, lock: &Lock, connections: u64) {
        if lock.kind.waits == Waits::Asking {
            return;
        }
        let channel = (lock.kind.channel)(&lock.name);
        let what = format!("{connections} connections listen to {channel}");
        eventually(&what, AMPLE, async || {
            self.server.listeners(&channel).await == connections
        })
        .await;
    }

    /// Waits until one process waits for `lock` and has parked.
    pub async fn waiting(&self, lock: &Lock) {
        self.waiting_processes(lock, 1).await;
    }

    /// Waits until this many processes wait for `lock` and have parked.
    pub async fn waiting_processes(&self, lock: &Lock, processes: u64) {
        self.listening(lock, processes).await;
        // A subscribed waiter tries once more before it parks, which nothing shows. If that takes
        // longer, it acquires the lock without a message, and the test cannot fail.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    /// The owners of the lock and their hold counts, by its hash. Fails if the hash has a `mode`
    /// other than the kind's.
    pub async fn fields(&self, lock: &Lock) -> BTreeMap<String, String> {
        let mut fields: BTreeMap<String, String> =
            self.server.command(&["HGETALL", &lock.name]).await;
        let mode = fields.remove("mode");
        assert!(fields.is_empty() || mode.as_deref() == lock.kind.mode);
        fields
    }

    /// The server's PTTL of the lock: ms, -1 or -2.
    pub async fn pttl(&self, lock: &Lock) -> i64 {
        self.server.command(&["PTTL", &lock.name]).await
    }
}

/// Runs all futures concurrently.
pub async fn together(parts: impl IntoIterator<Item = impl Future<Output = ()>>) {
    let mut running: Vec<_> = parts.into_iter().map(Box::pin).collect();
    poll_fn(|context| {
        running.retain_mut(|part| part.as_mut().poll(context).is_pending());
        if running.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.expect("it is later than 1970").as_millis();
    since.try_into().expect("it is before the year 500 million")
}
