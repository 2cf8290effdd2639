//! What was measured with which versions, and on what.

use std::{fs, process::Command};

use testbed::Server;

use crate::{options::Plan, redisson};

const LOCK_FILE: &str = include_str!("../../../Cargo.lock");

/// The machine and the versions, as a list in Markdown.
pub async fn report(server: &Server, plan: &Plan) -> String {
    let info: String = server.command(&["INFO", "server"]).await;
    let redis = field(&info, "redis_version").unwrap_or("unknown");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let java = if plan.java {
        format!("Redisson {} on {}", redisson::VERSION, java())
    } else {
        "Redisson left out (--without-java)".to_owned()
    };
    format!(
        "- commit {}; redis-server {redis}; fred {}; redis-rs {}; tokio {}; {java}\n\
         - {cores} cores of {}; Linux {}; load average before {}\n\
         - {} rounds of {:?} per peer and workload, in rotating order, on one server; median (min..max)\n",
        commit(),
        version_of("fred"),
        version_of("redis"),
        version_of("tokio"),
        model(),
        file("/proc/sys/kernel/osrelease"),
        load(),
        plan.rounds,
        plan.measured,
    )
}

/// How busy the machine was over the last minute.
pub fn load() -> String {
    file("/proc/loadavg")
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// The version of a crate by `Cargo.lock`.
fn version_of(name: &str) -> &'static str {
    let package = format!("name = \"{name}\"\nversion = \"");
    let version = LOCK_FILE.split_once(&package).map(|(_, rest)| rest);
    version
        .and_then(|rest| rest.split('"').next())
        .unwrap_or("unknown")
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn model() -> String {
    let info = file("/proc/cpuinfo");
    let mut lines = info.lines();
    let model = lines.find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or_else(
        || "an unknown processor".into(),
        |(_, model)| model.to_owned(),
    )
}

/// The first line that `java -version` writes, to standard error.
fn java() -> String {
    let output = Command::new("java").arg("-version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    first_line(&text.unwrap_or_default())
}

fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output();
        output.map_or_else(
            |_| String::new(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    };
    let changed = !git(&["status", "--porcelain", "--", "src", "lua", "Cargo.lock"]).is_empty();
    let commit = first_line(&git(&["rev-parse", "--short", "HEAD"]));
    format!("{commit}{}", if changed { " with changes" } else { "" })
}

fn file(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_lock_file() {
        assert!(version_of("fred").starts_with("10."));
        assert!(version_of("redis").starts_with("1."));
        assert_eq!(version_of("no such crate"), "unknown");
        assert_eq!(
            field("a:1\r\nredis_version:7.0.15\r\n", "redis_version"),
            Some("7.0.15")
        );
    }
}
