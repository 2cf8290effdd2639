//! The peers that take part, and their processes.

use std::{
    path::{Path, PathBuf},
    process::Command as Process,
    time::Duration,
};

use compare::Failure;

use crate::program::Program;

/// This crate, with which all other peers are compared.
pub const OURS: &str = "ours";
pub const REDISSON: &str = "redisson";
/// The row of workloads in which processes of this crate and of Redisson contend.
pub const MIXED: &str = "mixed";

/// A lock of one process, without a server.
pub const MUTEX: &str = "mutex";

/// All peers, in the order of the tables. The raw clients and the mutex are no locks on a server.
pub const ALL: [&str; 11] = [
    OURS,
    "fred",
    "redis-rs",
    "ceiling",
    MUTEX,
    REDISSON,
    "rslock",
    "redsync",
    "redis-py",
    "node-redlock",
    "redis-semaphore",
];
pub const RAW: [&str; 4] = ["fred", "redis-rs", "ceiling", MUTEX];
const IN_RUST: [&str; 6] = [OURS, "fred", "redis-rs", "ceiling", MUTEX, "rslock"];

pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The peers that are built, and the missing ones, each with the reason.
pub fn present() -> (Vec<&'static str>, Vec<(&'static str, String)>) {
    let (mut present, mut absent) = (Vec::new(), Vec::new());
    for name in ALL {
        match program(name) {
            Ok(_) => present.push(name),
            Err(why) => absent.push((name, why.to_string())),
        }
    }
    (present, absent)
}

fn program(name: &str) -> Result<PathBuf, Failure> {
    if IN_RUST.contains(&name) {
        let file = format!("bench-{name}");
        let path = std::env::current_exe()?.with_file_name(file);
        return match path.is_file() {
            true => Ok(path),
            false => Err("not built: cargo build --release -p compare --features rslock".into()),
        };
    }
    let folder = folder().join(name);
    if built(&folder.join("target")) {
        return Ok(folder.join("run"));
    }
    Err(why_not_built(name).into())
}

/// The reason that tools/build-bench-peers.sh gave, in a run of `make bench-compare`.
fn why_not_built(name: &str) -> String {
    let said = folder().join("../../target/bench-peers.log");
    let said = std::fs::read_to_string(said).unwrap_or_default();
    let mut lines = said.lines().filter_map(|line| line.split_once(' '));
    let why = lines.find(|(peer, _)| *peer == name);
    let why = why.map(|(_, why)| why.trim().trim_start_matches("left out: ").to_owned());
    why.unwrap_or_else(|| "not built: tools/build-bench-peers.sh says why".to_owned())
}

/// Whether a peer is built. Redisson's mark is one folder deeper, by its version.
fn built(target: &Path) -> bool {
    let below = || Some(target.read_dir().ok()?.flatten());
    target.join(".built").is_file()
        || below().is_some_and(|mut all| all.any(|entry| entry.path().join(".built").is_file()))
}

/// A peer's processes on one server. Each is started for the first command that needs it.
pub struct Peer {
    pub name: &'static str,
    url: String,
    timeout: Duration,
    main: Vec<Program>,
}

impl Peer {
    pub fn new(name: &'static str, url: String, timeout: Duration) -> Self {
        let main = Vec::new();
        Self {
            name,
            url,
            timeout,
            main,
        }
    }

    /// Whether the peer is a JVM, which compiles its code while it runs.
    pub fn warms_up(&self) -> bool {
        self.name == REDISSON
    }

    /// Whether the server knows the peer's waiters, by the channel that they listen to.
    pub fn listens(&self) -> bool {
        matches!(self.name, OURS | REDISSON)
    }

    /// Starts a further process.
    pub async fn program(&self) -> Result<Program, Failure> {
        self.program_at(&self.url).await
    }

    pub async fn program_at(&self, url: &str) -> Result<Program, Failure> {
        let mut process = Process::new(program(self.name)?);
        process.arg(url);
        Program::start(process, self.timeout).await
    }

    /// The first `COUNT` of the kept processes; missing ones are started.
    pub async fn programs<const COUNT: usize>(&mut self) -> Result<[&mut Program; COUNT], Failure> {
        let mut programs = self.first(COUNT).await?.into_iter();
        Ok([(); COUNT].map(|()| programs.next().expect("so many were started")))
    }

    /// The first `count` of the kept processes; missing ones are started.
    pub async fn first(&mut self, count: usize) -> Result<Vec<&mut Program>, Failure> {
        while self.main.len() < count {
            self.main.push(self.program().await?);
        }
        Ok(self.main.iter_mut().take(count).collect())
    }

    /// Ends all kept processes but the first `count`.
    pub fn keep(&mut self, count: usize) {
        self.main.truncate(count);
    }
}
