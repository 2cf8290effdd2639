//! `watch`, on a terminal and into a pipe, and `bench`.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use testbed::Server;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::{GENEROUS, code, done, objects, pty::Pty, rlock, signal, text};

const JAVA: &str = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47";
const FAST: [&str; 2] = ["--every", "50ms"];

#[tokio::test]
async fn changes_are_printed_line_by_line() {
    let server = Server::start().await;
    server.command::<u32>(&["HSET", "old", JAVA, "1"]).await;
    for json in [false, true] {
        let words = [&["watch"][..], &FAST, if json { &["--json"] } else { &[] }].concat();
        let mut watcher = rlock(&server, &words);
        let mut watcher = watcher
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
        let mut expect = async |name: &str, what: &str| {
            let line = tokio::time::timeout(GENEROUS, lines.next_line()).await;
            let line = line.expect("a line comes").unwrap().unwrap();
            match json {
                true => {
                    let told: serde_json::Value = serde_json::from_str(&line).unwrap();
                    assert_eq!(
                        (&told["name"], &told["event"]),
                        (&name.into(), &what.into())
                    );
                    assert_eq!(told["language"], "Java");
                }
                false => {
                    let words: Vec<_> = line.split_whitespace().collect();
                    assert_eq!((words[1], words[2]), (what, name), "{line}");
                    assert!(line.ends_with(&format!("by Java {JAVA}")), "{line}");
                }
            }
        };
        expect("old", "taken").await;
        server.command::<u32>(&["HSET", "new", JAVA, "1"]).await;
        expect("new", "taken").await;
        server.command::<u32>(&["DEL", "new"]).await;
        expect("new", "released").await;
        server.command::<u32>(&["HSET", "short", JAVA, "1"]).await;
        expect("short", "taken").await;
        server.command::<u32>(&["PEXPIRE", "short", "40"]).await;
        // It may be seen with a lease of 40 ms, or not at all.
        let line = tokio::time::timeout(GENEROUS, lines.next_line()).await;
        let line = line.expect("a line comes").unwrap().unwrap();
        assert!(
            line.contains("expired") || line.contains("released"),
            "{line}"
        );
        signal(&watcher, "INT").await;
        let output = watcher.wait_with_output().await.unwrap();
        assert_eq!(
            (code(&output), text(&output.stderr).as_str()),
            (Some(130), "")
        );
    }
}

#[tokio::test]
async fn an_outage_is_reported_once_and_survived() {
    let server = Server::start().await;
    let words = [&["watch"][..], &FAST].concat();
    let mut watcher = rlock(&server, &words);
    let mut watcher = watcher
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = BufReader::new(watcher.stderr.take().unwrap()).lines();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    server.command::<u32>(&["HSET", "a", JAVA, "1"]).await;
    assert!(lines.next_line().await.unwrap().unwrap().contains("taken"));
    server.kill();
    assert!(told.next_line().await.unwrap().is_some());
    server.restart().await;
    let line = tokio::time::timeout(GENEROUS, told.next_line()).await;
    assert!(line.unwrap().unwrap().unwrap().contains("answers again"));
    assert!(
        lines
            .next_line()
            .await
            .unwrap()
            .unwrap()
            .contains("released")
    );
    // One that hangs does not hold up a signal.
    server.pause();
    let stopped = Instant::now();
    tokio::time::sleep(Duration::from_millis(200)).await;
    signal(&watcher, "TERM").await;
    assert_eq!(watcher.wait().await.unwrap().code(), Some(128 + 15));
    assert!(stopped.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_terminal_has_a_table_that_redraws() {
    let server = Server::start().await;
    let mut shell = Pty::shell(&server).await;
    for (set, colour) in [("", true), ("NO_COLOR=1 ", false)] {
        shell.line(&format!(
            "{set}$T watch 'order*' --every 50ms; echo co''de=$?"
        ));
        let shown = shell.shows("locks: 0").await;
        assert!(
            shown.contains("\x1b[?1049h"),
            "a screen of its own: {shown:?}"
        );
        server
            .command::<u32>(&["HSET", "order:42", JAVA, "1"])
            .await;
        // Only what has changed is drawn.
        let mut shown = shell.shows("order:42").await;
        shown += &shell.shows(JAVA).await;
        server
            .command::<u32>(&["RPUSH", "redisson_lock_queue:{order:43}", JAVA])
            .await;
        shown += &shell.shows("order:43").await;
        shown += &shell.shows("(free)").await;
        assert_eq!(shown.contains("[38;5;"), colour, "{shown:?}");
        server
            .command::<u32>(&["DEL", "order:42", "redisson_lock_queue:{order:43}"])
            .await;
        shell.keys("q");
        // The screen of before is back.
        shell.shows("\x1b[?1049l").await;
        shell.shows("code=0").await;
    }
    shell.line("$T watch; echo co''de=$?");
    shell.shows("locks: 0").await;
    shell.keys("\x03");
    shell.shows("code=0").await;
    // A killed one leaves no raw terminal behind.
    shell.line("$T watch & sleep 0.3; stty -a | grep -o ' icanon'; kill %1; echo do''ne");
    shell.shows("done").await;
}

#[tokio::test]
async fn wrong_patterns_of_time_and_servers_are_refused() {
    let server = Server::start().await;
    let output = done(&server, &["watch", "--every", "1ms"]).await;
    assert_eq!(code(&output), Some(64));
    let mut gone = rlock(&server, &["watch"]);
    gone.env("REDIS_URL", "redis://127.0.0.1:1");
    assert_eq!(code(&gone.output().await.unwrap()), Some(69));
}

#[tokio::test]
async fn a_bench_measures_and_leaves_nothing() {
    let server = Server::start().await;
    let words = ["bench", "--time", "200ms", "--json"];
    let output = tokio::time::timeout(Duration::from_secs(60), done(&server, &words)).await;
    let rows = objects(&output.unwrap());
    let told: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row["measured"].as_str().unwrap(),
                row["tasks"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [("pair", 1), ("pair", 8), ("pair", 64), ("hand_off", 2)]
    );
    for row in &rows {
        assert!(row["per_second"].as_u64() > Some(0), "{row}");
        assert!(row["p50_us"].as_u64() <= row["p99_us"].as_u64(), "{row}");
        assert!(row["p50_us"].as_u64() > Some(0), "{row}");
    }
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
    let output = done(&server, &["bench", "--time", "100ms", &server.url()]).await;
    assert!(
        text(&output.stdout).contains("64 tasks"),
        "{}",
        text(&output.stderr)
    );
}
