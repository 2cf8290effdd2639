//! The head of a report: the versions that were measured, and the machine.

use std::{collections::BTreeMap, fs, process::Command};

use serde::{Deserialize, Serialize};
use testbed::Server;

use crate::{options::Plan, peers};

const LOCK_FILE: &str = include_str!("../../../Cargo.lock");

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    /// The start of the run, such as `2026-11-21T23:05Z`.
    pub date: String,
    pub commit: String,
    pub versions: BTreeMap<String, String>,
    pub cores: usize,
    pub processor: String,
    pub kernel: String,
    /// The load average over one minute, before the run.
    pub load_before: String,
    pub load_after: String,
    pub rounds: usize,
    pub seconds: f64,
    /// The rounds of the workloads in which processes contend.
    #[serde(default)]
    pub share_rounds: usize,
    #[serde(default)]
    pub share_seconds: f64,
    pub quick: bool,
    /// The duration of the whole run.
    pub took_seconds: f64,
}

impl About {
    pub async fn now(server: &Server, plan: &Plan) -> Self {
        let info: String = server.command(&["INFO", "server"]).await;
        let server = ["valkey_version", "redis_version"]
            .into_iter()
            .find_map(|name| Some((name.trim_end_matches("_version"), field(&info, name)?)));
        let (name, version) = server.unwrap_or(("server", "unknown"));
        let mut versions = versions();
        versions.insert(name.to_owned(), version.to_owned());
        Self {
            date: output("date", &["-u", "+%Y-%m-%dT%H:%MZ"]),
            commit: commit(),
            versions,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            processor: model(),
            kernel: file("/proc/sys/kernel/osrelease"),
            load_before: load(),
            load_after: String::new(),
            rounds: plan.rounds,
            seconds: plan.measured.as_secs_f64(),
            share_rounds: plan.shares.rounds,
            share_seconds: plan.shares.measured.as_secs_f64(),
            quick: plan.quick,
            took_seconds: 0.0,
        }
    }
}

/// The machine's load average over the last minute.
pub fn load() -> String {
    let load = file("/proc/loadavg");
    load.split(' ').next().unwrap_or_default().to_owned()
}

fn versions() -> BTreeMap<String, String> {
    let crates = [
        ("fred", "fred"),
        ("redis-rs", "redis"),
        ("rslock", "rslock"),
        ("tokio", "tokio"),
    ];
    let crates = crates.map(|(name, package)| (name, version_of(package).to_owned()));
    let peers = [
        ("redisson", declared("redisson/run", "version=")),
        (
            "redsync",
            declared("redsync/go.mod", "github.com/go-redsync/redsync/v4 "),
        ),
        (
            "go-redis",
            declared("redsync/go.mod", "github.com/redis/go-redis/v9 "),
        ),
        (
            "redis-py",
            declared("redis-py/requirements.txt", "redis[hiredis]=="),
        ),
        (
            "node-redlock",
            declared("node-redlock/package.json", "\"redlock\": "),
        ),
        (
            "redis-semaphore",
            declared("redis-semaphore/package.json", "\"redis-semaphore\": "),
        ),
        (
            "ioredis",
            declared("node-redlock/package.json", "\"ioredis\": "),
        ),
    ];
    let languages = [
        ("rust", output("rustc", &["--version"])),
        ("java", output("java", &["-version"])),
        ("go", output("go", &["version"])),
        ("python", output("python3", &["--version"])),
        ("node", output("node", &["--version"])),
    ];
    let all = crates.into_iter().chain(peers).chain(languages);
    all.filter(|(_, version)| !version.is_empty())
        .map(|(name, version)| (name.to_owned(), version))
        .collect()
}

/// The version of a crate in `Cargo.lock`.
fn version_of(name: &str) -> &'static str {
    let package = format!("name = \"{name}\"\nversion = \"");
    let version = LOCK_FILE.split_once(&package).map(|(_, rest)| rest);
    let version = version.and_then(|rest| rest.split('"').next());
    version.unwrap_or_default()
}

/// The version behind the text `before` in a peer's own list of dependencies.
fn declared(path: &str, before: &str) -> String {
    behind(
        &file(&format!("{}/{path}", peers::folder().display())),
        before,
    )
}

fn behind(text: &str, before: &str) -> String {
    let version = text.split_once(before).map_or("", |(_, rest)| rest);
    let version = version.split_whitespace().next().unwrap_or_default();
    version.trim_matches(['"', ',']).to_owned()
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn model() -> String {
    let info = file("/proc/cpuinfo");
    let mut lines = info.lines();
    let model = lines.find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model
        .map_or("an unknown processor", |(_, model)| model)
        .to_owned()
}

fn commit() -> String {
    let changed = output(
        "git",
        &["status", "--porcelain", "--", "src", "lua", "Cargo.lock"],
    );
    let commit = output("git", &["rev-parse", "--short", "HEAD"]);
    format!(
        "{commit}{}",
        if changed.is_empty() {
            ""
        } else {
            " with changes"
        }
    )
}

/// The first line that a program writes; empty if there is no such program.
fn output(program: &str, arguments: &[&str]) -> String {
    let Ok(output) = Command::new(program).args(arguments).output() else {
        return String::new();
    };
    // Java writes its version to standard error.
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().to_owned()
}

fn file(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_lists_of_dependencies() {
        assert!(version_of("fred").starts_with("10."));
        assert!(version_of("redis").starts_with("1."));
        assert_eq!(version_of("no such crate"), "");
        let info = "a:1\r\nredis_version:7.0.15\r\n";
        assert_eq!(field(info, "redis_version"), Some("7.0.15"));
        assert_eq!(
            behind("{ \"x\": 1,\n \"redlock\": \"5.0.0\",\n", "\"redlock\": "),
            "5.0.0"
        );
        assert_eq!(
            behind("redis[hiredis]==7.0.1\n", "redis[hiredis]=="),
            "7.0.1"
        );
        assert_eq!(behind("something else", "redis[hiredis]=="), "");
    }
}
