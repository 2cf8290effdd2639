//! The output that the pages show is what the tool prints. `make output` writes it anew.

use std::process::Stdio;

use testbed::{Server, eventually, has_documented_shape, is_documented};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{GENEROUS, begun, done, rlock, signal, text};

const PAGE: &str = "docs/rlock.md";

/// A command that goes on until it is killed.
const LONG: [&str; 4] = ["--", "sh", "-c", "echo begun; exec sleep 60"];

/// Prints as if the server had the usual port, and this host the name of the pages.
async fn printed(server: &Server, words: &[&str]) -> String {
    let output = done(server, words).await;
    on_page(&text(&output.stdout)).replace(&format!(":{}", server.port()), ":6379")
}

/// Names the host as the pages do. The columns of a table stay in line.
fn on_page(printed: &str) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").expect("tests run on Linux");
    let own = format!("@{}", host.trim());
    printed.replace(&own, &format!("{:1$}", "@web-1", own.len()))
}

async fn waits_for(server: &Server, channels: &str) {
    eventually("it listens", GENEROUS, async || {
        let found: Vec<String> = server.command(&["PUBSUB", "CHANNELS", channels]).await;
        !found.is_empty()
    })
    .await;
}

#[tokio::test]
async fn a_command_that_is_run() {
    let server = Server::start().await;
    let words = ["run", "ledger", "--kind", "fenced", "--json", "--", "true"];
    let output = printed(&server, &words).await;
    is_documented(PAGE, &format!("rlock {}", words.join(" ")), &output);
}

#[tokio::test]
async fn a_list_of_locks() {
    let server = Server::start().await;
    let run = async |name: &str, kind: &str| {
        begun(
            &server,
            &[&["run", name, "--kind", kind][..], &LONG].concat(),
        )
        .await
    };
    let mut held = vec![run("job", "reentrant").await, run("ledger", "fenced").await];
    let waits = rlock(&server, &["run", "job", "--", "true"]).spawn();
    let mut waits = waits.unwrap();
    waits_for(&server, "redisson_lock__channel:{job}").await;
    is_documented("README.md", "rlock ls", &printed(&server, &["ls"]).await);

    held.push(run("gate", "read").await);
    held.push(run("gate", "read").await);
    let java = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47";
    for words in [
        &["RPUSH", "redisson_lock_queue:{dead}", java][..],
        &["HSET", "cart:7", "apples", "3"],
        &["SETRANGE", "greeting", "0", "hello"],
    ] {
        server.command::<u32>(words).await;
    }
    is_documented(PAGE, "rlock ls", &printed(&server, &["ls"]).await);
    waits.kill().await.unwrap();
    for (mut held, _) in held {
        held.kill().await.unwrap();
    }
}

#[tokio::test]
async fn a_watch() {
    let server = Server::start().await;
    let mut watching = rlock(&server, &["watch", "--every", "200ms"]);
    let mut watching = watching.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut printed = String::new();
    let mut next = async || {
        let line = tokio::time::timeout(GENEROUS, lines.next_line()).await;
        printed += &(line.expect("a line comes").unwrap().unwrap() + "\n");
    };
    // A holder from before the first look is not seen to acquire the lock.
    let has_looked = async || server.calls().await.contains_key("scan");
    eventually("it looks", GENEROUS, has_looked).await;
    let (mut holder, _) = begun(&server, &[&["run", "job"][..], &LONG].concat()).await;
    next().await;
    let mut waiter = rlock(&server, &["run", "job", "--", "true"])
        .spawn()
        .unwrap();
    next().await;
    signal(&waiter, "TERM").await;
    waiter.wait().await.unwrap();
    next().await;
    signal(&holder, "TERM").await;
    holder.wait().await.unwrap();
    next().await;
    is_documented(PAGE, "rlock watch --every 200ms | cat", &on_page(&printed));
    watching.kill().await.unwrap();
}

#[tokio::test]
async fn an_examination() {
    let options = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = Server::start_with(&options).await;
    let output = printed(&server, &["doctor"]).await;
    is_documented(PAGE, "rlock doctor redis://127.0.0.1:6379", &output);
}

#[tokio::test]
async fn a_measurement() {
    let server = Server::start().await;
    let output = printed(&server, &["bench", "--time", "50ms"]).await;
    has_documented_shape(PAGE, "rlock bench redis://127.0.0.1:6379", &output);
}
