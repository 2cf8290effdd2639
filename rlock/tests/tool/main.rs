//! The tool as its users have it: real processes and signals, and real servers.

mod doctor;
mod force;
mod hosts;
mod logins;
mod ls;
mod pages;
mod pty;
mod run;
mod terminal;
mod tls;
mod tunnels;
mod watch;
mod words;

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use testbed::Server;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

pub const GENEROUS: Duration = Duration::from_secs(20);

pub fn rlock(server: &Server, words: &[&str]) -> Command {
    rlock_at(&server.url(), words)
}

pub fn rlock_at(url: &str, words: &[&str]) -> Command {
    // A shell that has started the tests with `&` has them ignore some signals, and the tool would too.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_rlock")]);
    command.args(words).env("REDIS_URL", url);
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

pub async fn done(server: &Server, words: &[&str]) -> Output {
    rlock(server, words).output().await.unwrap()
}

/// The same against servers that are several.
pub async fn done_at(url: &str, words: &[&str]) -> Output {
    rlock_at(url, words).output().await.unwrap()
}

/// The objects that were printed, one a line.
pub fn objects(output: &Output) -> Vec<serde_json::Value> {
    let lines = text(&output.stdout);
    let read = |line: &str| serde_json::from_str(line).expect("a line is an object");
    lines.lines().map(read).collect()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// A command under the lock that says that it has begun, and its process.
pub async fn begun(
    server: &Server,
    words: &[&str],
) -> (Child, BufReader<tokio::process::ChildStdout>) {
    let mut child = rlock(server, words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    tokio::time::timeout(GENEROUS, lines.read_line(&mut line))
        .await
        .expect("it begins")
        .unwrap();
    assert_eq!(line.trim(), "begun");
    (child, lines)
}

pub async fn is_free(server: &Server, name: &str) -> bool {
    server.command::<u32>(&["EXISTS", name]).await == 0
}

pub fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

pub async fn signal(child: &Child, name: &str) {
    let pid = child.id().expect("it runs").to_string();
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid])
        .status()
        .await;
    assert!(sent.unwrap().success());
}
