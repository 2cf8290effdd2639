//! `run`: signals, leases and losses.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use testbed::{Server, eventually};
use tokio::io::AsyncBufReadExt;

use crate::{GENEROUS, begun, code, done, is_free, rlock, signal, text};

#[tokio::test]
async fn a_command_has_the_lock_and_its_code_is_that_of_the_tool() {
    let server = Server::start().await;
    let script = "echo \"token=$RLOCK_TOKEN\"; exit 7";
    let output = done(
        &server,
        &["run", "a", "--kind", "fenced", "--", "sh", "-c", script],
    )
    .await;
    assert_eq!(
        (code(&output), text(&output.stdout).as_str()),
        (Some(7), "token=1")
    );
    assert!(is_free(&server, "a").await);
    let output = done(
        &server,
        &["run", "a", "--", "sh", "-c", "echo \"token=$RLOCK_TOKEN\""],
    )
    .await;
    assert_eq!(
        (code(&output), text(&output.stdout).as_str()),
        (Some(0), "token=")
    );
    let output = done(&server, &["run", "a", "--", "sh", "-c", "kill -9 $$"]).await;
    assert_eq!(code(&output), Some(128 + 9));
    let output = done(&server, &["run", "a", "--", "/no/such/program"]).await;
    assert_eq!(code(&output), Some(127));
    assert!(is_free(&server, "a").await);
}

#[tokio::test]
async fn a_lock_that_is_taken_is_waited_for_or_not() {
    let server = Server::start().await;
    let (mut holder, _lines) = begun(
        &server,
        &["run", "a", "--", "sh", "-c", "echo begun; exec sleep 60"],
    )
    .await;
    for (words, expected) in [
        (&["--if-held", "skip"][..], 0),
        (&["--if-held", "fail"], 75),
        (&["--wait", "1s"], 75),
    ] {
        let words = [&["run", "a"], words, &["--", "echo", "in"]].concat();
        let output = done(&server, &words).await;
        assert_eq!(
            (code(&output), text(&output.stdout)),
            (Some(expected), String::new()),
            "{words:?}"
        );
    }
    // One that waits gets in when the holder ends, and one that is interrupted before that has nothing.
    let mut interrupted = rlock(&server, &["run", "a", "--", "echo", "in"])
        .spawn()
        .unwrap();
    let waiting = rlock(&server, &["run", "a", "--", "echo", "in"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let channel = "redisson_lock__channel:{a}";
    let listening = async || {
        server
            .command::<(String, u32)>(&["PUBSUB", "NUMSUB", channel])
            .await
            .1
            == 2
    };
    eventually("both wait", GENEROUS, listening).await;
    signal(&interrupted, "INT").await;
    assert_eq!(interrupted.wait().await.unwrap().code(), Some(128 + 2));
    signal(&holder, "TERM").await;
    assert_eq!(holder.wait().await.unwrap().code(), Some(128 + 15));
    let output = waiting.wait_with_output().await.unwrap();
    assert_eq!(
        (code(&output), text(&output.stdout).as_str()),
        (Some(0), "in")
    );
    assert!(is_free(&server, "a").await);
}

/// A signal reaches the command and what it has started, and the lock is free after it.
#[tokio::test]
async fn a_signal_reaches_the_command_and_the_lock_is_released() {
    let server = Server::start().await;
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let script = format!(
            "trap 'echo told; exit {}' {name}; echo begun; while :; do sleep 0.05; done",
            40 + number
        );
        let (child, mut lines) = begun(&server, &["run", "a", "--", "sh", "-c", &script]).await;
        assert!(!is_free(&server, "a").await);
        signal(&child, name).await;
        let mut line = String::new();
        lines.read_line(&mut line).await.unwrap();
        assert_eq!(line.trim(), "told");
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(code(&output), Some(40 + number), "{name}");
        assert!(is_free(&server, "a").await);
    }
}

/// A command that ends when it is told to has been cut short, whatever it says; and what it has started ends with it.
#[tokio::test]
async fn a_command_that_obeys_has_not_done_its_work() {
    let server = Server::start().await;
    let script =
        "(trap '' TERM; while :; do sleep 0.05; done) & trap 'exit 0' TERM; echo begun; wait";
    let lease = ["--lease", "6s", "--kill-after", "3s"];
    let words = [&["run", "a"][..], &lease, &["--", "sh", "-c", script]].concat();
    let (child, mut lines) = begun(&server, &words).await;
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(code(&output), Some(76), "{}", text(&output.stderr));
    let mut line = String::new();
    let ended = tokio::time::timeout(GENEROUS, lines.read_line(&mut line)).await;
    assert_eq!(ended.expect("nothing of it runs").unwrap(), 0);
}

/// The command is told to end before a fixed lease is over, and ended with it, together with what it has started.
#[tokio::test]
async fn a_command_does_not_outlive_its_lease() {
    let server = Server::start().await;
    let script = "trap 'echo told' TERM; echo begun; while :; do sleep 0.05; done";
    let words = [
        "run",
        "a",
        "--lease",
        "6s",
        "--kill-after",
        "3s",
        "--",
        "sh",
        "-c",
        script,
    ];
    let (child, mut lines) = begun(&server, &words).await;
    let mut line = String::new();
    lines.read_line(&mut line).await.unwrap();
    assert_eq!(line.trim(), "told");
    assert!(
        !is_free(&server, "a").await,
        "it is told while it has the lock"
    );
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(code(&output), Some(76), "{}", text(&output.stderr));
    // The pipe ends with the last process that writes to it.
    line.clear();
    assert_eq!(lines.read_line(&mut line).await.unwrap(), 0);
}

#[tokio::test]
async fn a_lock_that_is_forced_open_ends_the_command() {
    let server = Server::start().await;
    let script = "echo begun; exec sleep 60";
    let words = ["run", "a", "--lease", "20s", "--", "sh", "-c", script];
    let (child, _lines) = begun(&server, &words).await;
    let output = done(&server, &["show", "a", "--json"]).await;
    assert!(
        text(&output.stdout).contains(r#""locked":true"#),
        "{}",
        text(&output.stdout)
    );
    // Without a terminal it frees nothing unless it is told to.
    let output = done(&server, &["unlock", "a", "--force"]).await;
    assert_eq!(code(&output), Some(64));
    assert!(!is_free(&server, "a").await);
    let output = done(&server, &["unlock", "a"]).await;
    assert_eq!(code(&output), Some(64), "it has to be forced");
    let output = done(&server, &["unlock", "a", "--force", "--yes"]).await;
    assert_eq!(
        (code(&output), text(&output.stdout).as_str()),
        (Some(0), "a: freed")
    );
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(code(&output), Some(76), "{}", text(&output.stderr));
    let output = done(&server, &["unlock", "a", "--force", "--yes", "--json"]).await;
    assert_eq!(text(&output.stdout), r#"{"freed":false,"name":"a"}"#);
    let output = done(&server, &["show", "a"]).await;
    assert_eq!(text(&output.stdout), "a: free");
}

/// All that the command has started, of which the tool knows the group only.
const STUBBORN: &str =
    "(trap '' TERM INT HUP; while :; do sleep 0.05; done) & echo begun; wait; wait";

async fn ends(lines: &mut tokio::io::BufReader<tokio::process::ChildStdout>) {
    let mut line = String::new();
    let ended = tokio::time::timeout(GENEROUS, lines.read_line(&mut line)).await;
    assert_eq!(ended.expect("nothing of it runs").unwrap(), 0, "{line}");
}

#[tokio::test]
async fn a_command_does_not_outlive_a_tool_that_is_killed() {
    let server = Server::start().await;
    let words = [
        "run",
        "a",
        "--kill-after",
        "300ms",
        "--",
        "sh",
        "-c",
        STUBBORN,
    ];
    let (mut child, mut lines) = begun(&server, &words).await;
    let killed = Instant::now();
    signal(&child, "KILL").await;
    child.wait().await.unwrap();
    ends(&mut lines).await;
    // Long before the lease of 30 s is over.
    assert!(killed.elapsed() < Duration::from_secs(5));
    assert!(!is_free(&server, "a").await);
}

/// Stopped, the tool does not renew the lock.
#[tokio::test]
async fn a_command_does_not_outlive_its_lease_while_the_tool_is_stopped() {
    let server = Server::start().await;
    let script =
        "echo begun; (trap '' TERM; echo $BASHPID; while :; do sleep 0.05; done) & wait; wait";
    let words = ["run", "a", "--lease", "6s", "--", "bash", "-c", script];
    let (child, mut lines) = begun(&server, &words).await;
    let mut inner = String::new();
    lines.read_line(&mut inner).await.unwrap();
    let runs = async || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", inner.trim()));
        status.is_ok_and(|status| !status.contains("State:\tZ"))
    };
    assert!(runs().await);
    signal(&child, "STOP").await;
    eventually("nothing of it runs", GENEROUS, async || !runs().await).await;
    signal(&child, "CONT").await;
    let output = child.wait_with_output().await.unwrap();
    assert_eq!(code(&output), Some(76), "{}", text(&output.stderr));
}

/// As `nohup` does, and shells without job control do to what they start with `&`.
#[tokio::test]
async fn a_signal_that_was_ignored_stays_so() {
    let server = Server::start().await;
    let inner = "echo begun; exec sleep 60";
    let script = format!(
        "trap '' INT HUP; exec {} run a -- sh -c '{inner}'",
        env!("CARGO_BIN_EXE_rlock")
    );
    let mut shell = tokio::process::Command::new("env");
    shell
        .args(["--default-signal", "sh", "-c", &script])
        .env("REDIS_URL", server.url());
    shell.kill_on_drop(true).stdout(Stdio::piped());
    let mut child = shell.spawn().unwrap();
    let mut lines = tokio::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).await.unwrap();
    for name in ["INT", "HUP", "TERM"] {
        signal(&child, name).await;
    }
    assert_eq!(child.wait().await.unwrap().code(), Some(128 + 15));
    assert!(is_free(&server, "a").await);
}

/// Another owner may have the lock already, however long the command may take otherwise.
#[tokio::test]
async fn a_command_whose_lock_was_forced_open_is_ended_soon_and_hears_signals_until_then() {
    let server = Server::start().await;
    let script =
        "trap 'echo told' TERM; trap 'echo asked' INT; echo begun; while :; do sleep 0.05; done";
    let words = ["run", "a", "--kill-after", "15s", "--", "sh", "-c", script];
    let mut heard = Vec::new();
    // Half a second passes between the two signals of the end. On a busy machine a command may say less in that time.
    for _ in 0..5 {
        let (child, mut lines) = begun(&server, &words).await;
        let forced = Instant::now();
        let output = done(&server, &["unlock", "a", "--force", "--yes"]).await;
        assert_eq!(code(&output), Some(0));
        let mut next = async || {
            let mut line = String::new();
            lines.read_line(&mut line).await.unwrap();
            line.trim().to_owned()
        };
        heard = vec![next().await];
        signal(&child, "INT").await;
        heard.push(next().await);
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(code(&output), Some(76), "{}", text(&output.stderr));
        // A second until it is looked for, and half of one after that.
        let took = forced.elapsed();
        assert!(took < Duration::from_secs(12), "{took:?}");
        if heard == ["told", "asked"] {
            return;
        }
    }
    panic!("{heard:?}");
}

#[tokio::test]
async fn a_run_tells_its_end_as_json() {
    let server = Server::start().await;
    let words = [
        "run",
        "a",
        "--json",
        "--kind",
        "fenced",
        "--",
        "sh",
        "-c",
        "echo said; exit 3",
    ];
    let output = done(&server, &words).await;
    let said = text(&output.stdout);
    let (first, last) = said.split_once('\n').expect("two lines");
    assert_eq!(first, "said");
    let told: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(told["name"], "a");
    assert_eq!(told["outcome"], "done");
    assert_eq!(told["exit_code"], 3);
    assert_eq!(told["token"], 1);
    assert!(
        told["ran_ms"].is_u64() && told["waited_ms"].is_u64(),
        "{told}"
    );
    let script = "echo begun; exec sleep 60";
    let (child, _lines) = begun(&server, &["run", "a", "--", "sh", "-c", script]).await;
    for (how, expected) in [("skip", 0), ("fail", 75)] {
        let words = ["run", "a", "--json", "--if-held", how, "--", "true"];
        let output = done(&server, &words).await;
        let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&told["outcome"], &told["exit_code"]),
            (&"busy".into(), &expected.into())
        );
        assert_eq!(code(&output), Some(expected));
    }
    let lost = ["run", "b", "--json", "--lease", "1s", "--", "sleep", "60"];
    let output = done(&server, &lost).await;
    let told: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&told["outcome"], &told["exit_code"]),
        (&"lost".into(), &76.into())
    );
    assert!(told["lost_by"].is_string());
    drop(child);
}
