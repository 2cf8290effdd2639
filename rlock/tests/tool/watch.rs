//! `watch`, on a terminal and into a pipe, and `bench`.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use testbed::{Clustered, Replicated, Server, eventually, slot_of};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr, ChildStdout},
};

use crate::{
    GENEROUS, begun, code, done, done_at, objects, pty::Pty, rlock, rlock_at, signal, text,
};

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
        // It was held before: the time of the line is not that of the acquisition.
        expect("old", "held").await;
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

/// The list of connections, which may be long, is read once for each client that begins to hold locks.
#[tokio::test]
async fn lines_have_the_names_of_clients() {
    let server = Server::start().await;
    let long = ["--", "sh", "-c", "echo begun; exec sleep 60"];
    let held = async |name| begun(&server, &[&["run", name][..], &long].concat()).await;
    let (mut first, _) = held("a").await;
    server.reset_calls().await;
    let mut watcher = Watcher::start(&server.url());
    let by = |line: &str, child: &Child| {
        let by = line.split_once("  by Rust ").map(|(_, by)| by.to_owned());
        let name = format!("rlock-{}", child.id().expect("it runs"));
        assert!(by.is_some_and(|by| by.starts_with(&name)), "{name}: {line}");
    };
    by(&watcher.next().await, &first);
    let (second, _) = held("b").await;
    by(&watcher.next().await, &second);
    let named = format!("rlock-{}", first.id().expect("it runs"));
    signal(&first, "TERM").await;
    first.wait().await.unwrap();
    let line = watcher.next().await;
    assert!(line.contains("released") && line.contains(&named), "{line}");
    assert_eq!(server.calls().await.get("client|list"), Some(&2));
    watcher.end().await;
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
    // The first look may come before the acquisition or after it.
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.contains("taken") || line.contains("held"), "{line}");
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

/// A watcher into a pipe, and the lines of its standard output and standard error.
struct Watcher {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    told: Lines<BufReader<ChildStderr>>,
}

impl Watcher {
    fn start(url: &str) -> Self {
        let mut watch = rlock_at(url, &[&["watch"][..], &FAST].concat());
        let mut child = watch
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            lines: BufReader::new(child.stdout.take().unwrap()).lines(),
            told: BufReader::new(child.stderr.take().unwrap()).lines(),
            child,
        }
    }

    /// The next change; panics with the failure of a watcher that has ended.
    async fn next(&mut self) -> String {
        let line = tokio::time::timeout(GENEROUS, self.lines.next_line()).await;
        match line.expect("a line comes").unwrap() {
            Some(line) => line,
            None => panic!("it ended: {:?}", self.told.next_line().await),
        }
    }

    /// The next line of standard error.
    async fn complaint(&mut self) -> String {
        let line = tokio::time::timeout(GENEROUS, self.told.next_line()).await;
        let line = line.expect("a line comes").unwrap();
        line.expect("it still runs")
    }

    /// The changes until `name` is taken, or found to be held.
    async fn until_taken(&mut self, name: &str) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let line = self.next().await;
            let is_last = ["taken", "held"]
                .iter()
                .any(|what| line.contains(&format!("{what:8}  {name} ")));
            lines.push(line);
            if is_last {
                return lines;
            }
        }
    }

    async fn end(mut self) {
        signal(&self.child, "INT").await;
        assert_eq!(self.child.wait().await.unwrap().code(), Some(130));
    }
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for() {
    // 60 keys of 2 KB load in 3 s, and the server answers between two keys.
    let slow = ["--key-load-delay", "50000"];
    let often = ["--loading-process-events-interval-bytes", "1024"];
    let server = Server::start_with(&[slow, often].concat()).await;
    for number in 0..60 {
        let fill = incompressible(number);
        server
            .command::<()>(&["SET", &format!("cart:{number}"), &fill])
            .await;
    }
    server.command::<u32>(&["HSET", "a", JAVA, "1"]).await;
    server.command::<()>(&["SAVE"]).await;
    let mut watcher = Watcher::start(&server.url());
    watcher.until_taken("a").await;
    server.kill();
    watcher.complaint().await;
    server.restart().await;
    let complaint = watcher.complaint().await;
    assert!(complaint.contains("answers again"), "{complaint}");
    server.command::<u32>(&["HSET", "b", JAVA, "1"]).await;
    assert_eq!(watcher.until_taken("b").await.len(), 1);
    watcher.end().await;
}

/// Text of 2 KB that the server does not compress to less.
fn incompressible(seed: u64) -> String {
    let mut state = seed + 1;
    let mut text = String::new();
    while text.len() < 2_000 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        text += &format!("{state:x}");
    }
    text
}

/// The connection to the demoted master stays open: its SCAN answers, and TYPE redirects.
#[tokio::test]
async fn a_failover_of_a_cluster_is_survived_and_releases_nothing() {
    let cluster = Clustered::start_with(1, true, &[]).await;
    let (old, new) = (&cluster.servers[0], &cluster.servers[1]);
    old.command::<u32>(&["HSET", "a", JAVA, "1"]).await;
    let mut watcher = Watcher::start(&cluster.url());
    watcher.until_taken("a").await;
    cluster.order_failover(1).await;
    cluster.takes_over(1).await;
    new.command::<u32>(&["HSET", "b", JAVA, "1"]).await;
    assert_eq!(watcher.until_taken("b").await.len(), 1);
    watcher.end().await;
}

#[tokio::test]
async fn a_demoted_master_of_a_replicated_set_up_is_left() {
    let servers = Replicated::start(1).await;
    let [old, new] = &servers.servers[..] else {
        panic!("a master and a replica")
    };
    let mut watcher = Watcher::start(&servers.url());
    old.command::<u32>(&["HSET", "a", JAVA, "1"]).await;
    watcher.until_taken("a").await;
    servers.caught_up(0).await;
    new.command::<()>(&["REPLICAOF", "NO", "ONE"]).await;
    // It follows no running server, so it shows old data.
    old.command::<()>(&["REPLICAOF", "127.0.0.1", "1"]).await;
    new.command::<u32>(&["HSET", "b", JAVA, "1"]).await;
    assert_eq!(watcher.until_taken("b").await.len(), 1);
    watcher.end().await;
}

#[tokio::test]
async fn a_lock_that_migrates_to_a_new_master_stays_taken() {
    let cluster = Clustered::masters(2).await;
    let [old, new] = &cluster.servers[..] else {
        panic!("two masters")
    };
    // The second master leaves the cluster, and joins it without slots while the watcher runs.
    let half = ["8192", "16383"];
    for (server, order) in [
        (new, "DELSLOTSRANGE"),
        (old, "DELSLOTSRANGE"),
        (old, "ADDSLOTSRANGE"),
    ] {
        let words = [&["CLUSTER", order][..], &half].concat();
        server.command::<()>(&words).await;
    }
    cluster.settled().await;
    let ids: [String; 2] = [
        old.command(&["CLUSTER", "MYID"]).await,
        new.command(&["CLUSTER", "MYID"]).await,
    ];
    for (server, id) in [(old, &ids[1]), (new, &ids[0])] {
        server.command::<()>(&["CLUSTER", "FORGET", id]).await;
    }
    old.command::<u32>(&["HSET", "a", JAVA, "1"]).await;
    let mut watcher = Watcher::start(&cluster.url());
    watcher.until_taken("a").await;
    let port = new.port().to_string();
    old.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port])
        .await;
    let have_met = async || {
        let known: String = new.command(&["CLUSTER", "NODES"]).await;
        known.contains(&ids[0]) && known.contains("0-16383")
    };
    eventually("the masters know each other", GENEROUS, have_met).await;
    cluster.settled().await;
    let slot_move = cluster.begin_move(slot_of("a"), 1).await;
    cluster.move_keys(slot_move).await;
    let output = done_at(&cluster.url(), &["ls", "--json"]).await;
    let listed = text(&output.stdout);
    assert!(listed.contains(r#""name":"a""#), "{listed:?}");
    cluster.end_move(slot_move).await;
    new.command::<u32>(&["HSET", "{a}b", JAVA, "1"]).await;
    let mut lines = watcher.until_taken("{a}b").await;
    // A scan that the migration overtakes can miss the lock; the next one finds it.
    lines.retain(|line| line.contains("  a  "));
    assert!(
        lines.last().is_none_or(|line| line.contains("taken")),
        "{lines:?}"
    );
    watcher.end().await;
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
        shell.asks().await;
    }
    shell.line("$T watch; echo co''de=$?");
    shell.shows("locks: 0").await;
    shell.keys("\x03");
    shell.shows("code=0").await;
    shell.asks().await;
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

fn rows_of_a_bench(rows: &[serde_json::Value]) {
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
    for row in rows {
        assert!(row["per_second"].as_u64() > Some(0), "{row}");
        assert!(row["p50_us"].as_u64() <= row["p99_us"].as_u64(), "{row}");
        assert!(row["p50_us"].as_u64() > Some(0), "{row}");
    }
}

#[tokio::test]
async fn a_bench_measures_and_leaves_nothing() {
    let server = Server::start().await;
    // However short the time is, each row has a measurement.
    for time in ["200ms", "1ns"] {
        let words = ["bench", "--time", time, "--json"];
        let output = tokio::time::timeout(Duration::from_secs(60), done(&server, &words)).await;
        rows_of_a_bench(&objects(&output.unwrap()));
    }
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
    let output = done(&server, &["bench", "--time", "100ms", &server.url()]).await;
    assert!(
        text(&output.stdout).contains("64 tasks"),
        "{}",
        text(&output.stderr)
    );
}
