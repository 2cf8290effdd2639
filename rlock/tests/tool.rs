//! The tool as its users have it: real processes and signals, and a real server.

use std::{
    process::{Output, Stdio},
    time::Duration,
};

use testbed::{Server, eventually};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

const GENEROUS: Duration = Duration::from_secs(20);

fn rlock(server: &Server, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rlock"));
    command.args(words).env("REDIS_URL", server.url());
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

async fn done(server: &Server, words: &[&str]) -> Output {
    rlock(server, words).output().await.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// A command under the lock that says that it has begun, and its process.
async fn begun(server: &Server, words: &[&str]) -> (Child, BufReader<tokio::process::ChildStdout>) {
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

async fn is_free(server: &Server, name: &str) -> bool {
    server.command::<u32>(&["EXISTS", name]).await == 0
}

fn code(output: &Output) -> Option<i32> {
    output.status.code()
}

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
        (&["--wait", "100ms"], 75),
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

async fn signal(child: &Child, name: &str) {
    let pid = child.id().expect("it runs").to_string();
    let sent = Command::new("kill")
        .args([&format!("-{name}"), &pid])
        .status()
        .await;
    assert!(sent.unwrap().success());
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
    let lease = ["--lease", "2s", "--kill-after", "1s"];
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
        "2s",
        "--kill-after",
        "1s",
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

#[tokio::test]
async fn wrong_usage_and_servers_that_are_not_there_have_codes_and_say_what_to_do() {
    let server = Server::start().await;
    for (words, says) in [
        (&["run", "a"][..], "COMMAND"),
        (&["run", "a", "--wait", "soon", "--", "true"], "soon"),
        (&["run", "a", "--lease", "1s", "--", "true"], "--kill-after"),
        (
            &["run", "a", "--kill-after", "21s", "--", "true"],
            "--kill-after",
        ),
        (
            &[
                "run",
                "a",
                "--kill-after",
                "18446744073709551615s",
                "--",
                "true",
            ],
            "--kill-after",
        ),
        (&["show", "a", "--url", "http://127.0.0.1"], "http"),
        (&["show", ""], "name"),
    ] {
        let output = done(&server, words).await;
        assert_eq!(
            code(&output),
            Some(64),
            "{words:?}: {}",
            text(&output.stderr)
        );
        assert!(
            text(&output.stderr).contains(says),
            "{words:?}: {}",
            text(&output.stderr)
        );
    }
    let mut nowhere = rlock(&server, &["show", "a"]);
    let output = nowhere.env_remove("REDIS_URL").output().await.unwrap();
    assert_eq!(code(&output), Some(64));
    assert!(text(&output.stderr).contains("--url"));
    let port = server.port();
    drop(server);
    let url = format!("redis://user:s3cret@127.0.0.1:{port}");
    let mut gone = Command::new(env!("CARGO_BIN_EXE_rlock"));
    let output = gone
        .args(["--url", &url, "show", "a"])
        .output()
        .await
        .unwrap();
    assert_eq!(code(&output), Some(69), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("s3cret"));
}

#[tokio::test]
async fn completions_and_the_manual_page_need_no_server() {
    for (words, says) in [(&["completions", "bash"][..], "rlock"), (&["man"], "76")] {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_rlock"));
        let output = tool.args(words).output().await.unwrap();
        assert_eq!(code(&output), Some(0));
        assert!(text(&output.stdout).contains(says));
    }
}
