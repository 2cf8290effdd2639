//! A server, a Java service and a Rust service, and the workers in them that a test moves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testbed::peer::{Answer, Peer};
use testbed::{Server, eventually, java, unique_name};
use tokio::sync::Mutex;

use crate::kinds::{Kind, MADE_BY};
use crate::rust_peer;

/// Within this, everything that has to happen happens, on however slow a machine.
pub const AMPLE: Duration = Duration::from_secs(20);
/// A lease so long that no test sees its end.
pub const LONG: Duration = Duration::from_secs(600);

/// One line of the table: a test runs for each.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub redisson: &'static str,
    pub kind: &'static Kind,
}

impl Case {
    /// The case, or nothing where Java is left out on purpose; panics when it is left out by mistake.
    pub fn unless_skipped(redisson: &'static str, kind: &'static Kind) -> Option<Self> {
        if std::env::var("INTEROP").is_ok_and(|interop| interop == "skip") {
            println!("INTEROP=skip: skipped, nothing was tested against Redisson {redisson}");
            return None;
        }
        if let Err(missing) = java::check(redisson) {
            panic!("{missing}. INTEROP=skip leaves the tests against Java out.");
        }
        Some(Self { redisson, kind })
    }

    /// The stage of every test that neither kills nor tunes its services, with Redisson's own settings.
    pub async fn stage(&self) -> Arc<Stage> {
        static STAGES: Mutex<BTreeMap<&str, Weak<Stage>>> = Mutex::const_new(BTreeMap::new());
        let mut stages = STAGES.lock().await;
        if let Some(stage) = stages.get(self.redisson).and_then(Weak::upgrade) {
            return stage;
        }
        let stage = Arc::new(self.own_stage(None).await);
        stages.insert(self.redisson, Arc::downgrade(&stage));
        stage
    }

    /// A stage for one test alone, with another watchdog lease.
    pub async fn own_stage(&self, watchdog: Option<Duration>) -> Stage {
        let server = Server::start().await;
        let java = java::start(self.redisson, &server.url(), watchdog).await;
        let rust = rust_peer(&server, watchdog).await;
        Stage { server, java, rust }
    }
}

/// A Rust service on `server`: a process of its own.
pub async fn rust_peer(server: &Server, watchdog: Option<Duration>) -> Peer {
    let watchdog = watchdog.unwrap_or(Duration::from_secs(30));
    let test = [
        "--exact",
        "rust_peer_process",
        "--nocapture",
        "--test-threads=2",
    ];
    let command = rust_peer::command(&server.url(), watchdog, &test);
    Peer::start("Rust", command).await
}

/// To be called by the test `rust_peer_process`.
pub fn serve_if_asked() {
    rust_peer::serve_if_asked(MADE_BY);
}

#[derive(Debug)]
pub struct Stage {
    pub server: Server,
    pub java: Peer,
    pub rust: Peer,
}

impl Stage {
    /// Two new workers on one new lock: the first in Java and the second in Rust, and the other way round.
    pub fn both_ways(&self, kind: &'static Kind) -> [(Worker<'_>, Worker<'_>); 2] {
        [(&self.java, &self.rust), (&self.rust, &self.java)].map(|(one, other)| {
            let lock = Lock::new(kind);
            (lock.worker(one), lock.worker(other))
        })
    }

    /// Waits until as many connections listen for the unlocking of `lock`.
    pub async fn listening(&self, lock: &Lock, connections: u64) {
        let channel = (lock.kind.channel)(&lock.name);
        let what = format!("{connections} connections listen to {channel}");
        eventually(&what, AMPLE, async || {
            let counted: (String, u64) = self.server.command(&["PUBSUB", "NUMSUB", &channel]).await;
            counted.1 == connections
        })
        .await;
    }

    /// Waits until one process waits for `lock`, and rests.
    pub async fn waiting(&self, lock: &Lock) {
        self.listening(lock, 1).await;
        // It listens, and tries once more before it rests: nothing tells when. If that takes longer than this, it finds
        // the lock free without being woken, and the test passes for the wrong reason.
        tokio::time::sleep(Duration::from_millis(300)).await;
    }

    /// The fields of the lock's hash and their values.
    pub async fn fields(&self, lock: &Lock) -> BTreeMap<String, String> {
        self.server.command(&["HGETALL", &lock.name]).await
    }

    /// What is left of the lock's lease, as the server says: ms, or -1 or -2.
    pub async fn pttl(&self, lock: &Lock) -> i64 {
        self.server.command(&["PTTL", &lock.name]).await
    }
}

/// A lock that no other test uses.
#[derive(Clone, Debug)]
pub struct Lock {
    pub name: String,
    pub kind: &'static Kind,
}

impl Lock {
    pub fn new(kind: &'static Kind) -> Self {
        let name = unique_name(kind.name);
        Self { name, kind }
    }

    /// A new thread or task, which shall use this lock.
    pub fn worker<'a>(&self, peer: &'a Peer) -> Worker<'a> {
        Worker {
            peer,
            label: unique_name("worker"),
            lock: self.clone(),
        }
    }
}

/// A thread of the Java service or a task of the Rust service, and the lock that it uses. What it is asked to do it
/// begins at once; the future is only its answer.
pub struct Worker<'a> {
    pub peer: &'a Peer,
    pub label: String,
    pub lock: Lock,
}

impl fmt::Display for Worker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peer.name().fmt(f)
    }
}

impl Worker<'_> {
    pub fn ask(&self, verb: &str, args: &[&str]) -> impl Future<Output = Answer> + Send + use<> {
        let lock = format!("{}:{}", self.lock.kind.name, self.lock.name);
        self.peer.ask(&self.label, &[&[verb, &lock], args].concat())
    }

    /// As [`ask`](Self::ask), for what must not be refused: its first value.
    fn get(&self, verb: &str, args: &[&str]) -> impl Future<Output = String> + Send + use<> {
        let what = format!("{self}: {verb} {args:?}");
        let answer = self.ask(verb, args);
        async move {
            match answer.await {
                Ok(values) => values.into_iter().next().unwrap_or_default(),
                Err(refused) => panic!("{what}: {refused}"),
            }
        }
    }

    /// Takes the lock, for as long as it takes: when it was inside, in epoch ms.
    pub fn lock(&self) -> impl Future<Output = u64> + Send + use<> {
        inside(self.ask("lock", &[]))
    }

    /// As [`lock`](Self::lock), with a lease that is not renewed.
    pub fn lock_for(&self, lease: Duration) -> impl Future<Output = u64> + Send + use<> {
        inside(self.ask("lock", &[&lease.as_millis().to_string()]))
    }

    pub async fn try_lock(&self) -> bool {
        self.get("trylock", &[]).await == "true"
    }

    /// Takes the lock within `wait`, or not: whether it did, and how long that took.
    pub async fn try_lock_for(&self, wait: Duration) -> (bool, Duration) {
        let answer = self.ask("trylock", &[&wait.as_millis().to_string()]).await;
        let values = answer.unwrap_or_else(|refused| panic!("{self}: {refused}"));
        let elapsed = values[2].parse().expect("a number of ms");
        (values[0] == "true", Duration::from_millis(elapsed))
    }

    pub async fn unlock(&self) {
        self.get("unlock", &[]).await;
    }

    /// An unlock that must be refused: by which error.
    pub async fn refused_unlock(&self) -> String {
        match self.ask("unlock", &[]).await {
            Ok(_) => panic!("{self}: the unlock was not refused"),
            Err(refused) => refused.class,
        }
    }

    pub async fn force_unlock(&self) -> bool {
        self.get("forceunlock", &[]).await == "true"
    }

    pub async fn is_locked(&self) -> bool {
        self.get("islocked", &[]).await == "true"
    }

    pub async fn is_held(&self) -> bool {
        self.get("isheld", &[]).await == "true"
    }

    pub async fn hold_count(&self) -> u32 {
        let count = self.get("holdcount", &[]).await;
        count.parse().expect("a number of holds")
    }

    /// What is left of the lease, in ms.
    pub async fn remaining(&self) -> i64 {
        let left = self.get("ttl", &[]).await;
        left.parse().expect("a number of ms")
    }

    /// The worker as an owner, as the lock's hash must name it.
    pub async fn field(&self) -> String {
        let number = self.get("threadid", &[]).await;
        let ends = self.lock.kind.field_ends;
        format!("{}:{number}{ends}", self.peer.client_id())
    }
}

async fn inside(answer: impl Future<Output = Answer>) -> u64 {
    match answer.await {
        Ok(values) => {
            assert_eq!(values[0], "true", "not taken: {values:?}");
            values[1].parse().expect("epoch ms")
        }
        Err(refused) => panic!("not taken: {refused}"),
    }
}

pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.expect("it is later than 1970").as_millis();
    since.try_into().expect("it is before the year 500 million")
}
