//! The words of the command line, what is printed, and exit codes.

use std::process::Stdio;

use testbed::Server;
use tokio::process::Command;

use crate::{code, done, rlock, text};

#[tokio::test]
async fn wrong_usage_and_servers_that_are_not_there_have_codes_and_say_what_to_do() {
    let server = Server::start().await;
    for (words, says) in [
        (&["run", "a"][..], "COMMAND"),
        (&["run", "a", "--wait", "soon", "--", "true"], "soon"),
        (
            &[
                "run",
                "a",
                "--lease",
                "1s",
                "--kill-after",
                "600ms",
                "--",
                "true",
            ],
            "--kill-after",
        ),
        (
            &[
                "run",
                "a",
                "--wait",
                "1s",
                "--if-held",
                "skip",
                "--",
                "true",
            ],
            "--if-held",
        ),
        (
            &[
                "run",
                "a",
                "--wait",
                "1s",
                "--if-held",
                "fail",
                "--",
                "true",
            ],
            "--if-held",
        ),
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

/// What is missing is shown, and not what a variable has given.
#[tokio::test]
async fn an_error_in_the_usage_shows_no_option_that_a_variable_sets() {
    let server = Server::start().await;
    for (words, says) in [
        (&["unlock", "a"][..], "--force"),
        (&["run", "a"], "COMMAND"),
        (&["show"], "NAME"),
        (&["ls", "a", "--bogus"], "--bogus"),
    ] {
        let mut tool = rlock(&server, words);
        tool.env("RLOCK_USER", "app").env("RLOCK_CACERT", "ca.pem");
        let output = tool.output().await.unwrap();
        assert_eq!(code(&output), Some(64), "{words:?}");
        let told = text(&output.stderr);
        assert!(told.contains(says), "{told}");
        for option in ["--url", "--user", "--cacert"] {
            assert!(!told.contains(option), "{words:?}: {told}");
        }
    }
    let mut tool = rlock(&server, &["ls"]);
    let output = tool.env("RLOCK_MAP", "nowhere").output().await.unwrap();
    assert_eq!(code(&output), Some(64));
    assert!(
        text(&output.stderr).contains("nowhere"),
        "the variable is wrong"
    );
}

#[tokio::test]
async fn completions_and_the_manual_page_need_no_server() {
    for (words, says) in [
        (&["completions", "bash"][..], "rlock"),
        (&["man"], "76"),
        (&["man", "run"], "if\\-held"),
    ] {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_rlock"));
        let output = tool.args(words).output().await.unwrap();
        assert_eq!(code(&output), Some(0));
        assert!(text(&output.stdout).contains(says));
    }
}

/// A reader that wants no more is no error: nothing is said, and the code is the one of `SIGPIPE`.
#[tokio::test]
async fn a_closed_pipe_ends_it_without_a_word() {
    let server = Server::start().await;
    for words in [
        &["show", "a"][..],
        &["show", "a", "--json"],
        &["unlock", "a", "--force"],
        &["man"],
        &["completions", "bash"],
    ] {
        let mut tool = rlock(&server, words);
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let child = tool.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
        // The command keeps its own copy of the pipe.
        drop(tool);
        let output = child.wait_with_output().await.unwrap();
        assert_eq!(
            (code(&output), text(&output.stderr).as_str()),
            (Some(141), ""),
            "{words:?}"
        );
    }
}

/// `flock -w 5` waits for five seconds.
#[tokio::test]
async fn a_duration_without_a_unit_is_in_seconds() {
    let server = Server::start().await;
    let held = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47";
    server.command::<u32>(&["HSET", "a", held, "1"]).await;
    let began = std::time::Instant::now();
    let output = done(&server, &["run", "a", "--wait", "1.5", "--", "true"]).await;
    assert_eq!(code(&output), Some(75), "{}", text(&output.stderr));
    assert!(began.elapsed() >= std::time::Duration::from_millis(1500));
    for (words, says) in [
        (&["run", "a", "--wait", "-1", "--", "true"][..], "-1"),
        (&["run", "a", "--lease=nan", "--", "true"], "nan"),
        (&["bench", "--time", "0"], "longer than zero"),
    ] {
        let output = done(&server, words).await;
        assert_eq!(code(&output), Some(64));
        let told = text(&output.stderr);
        assert!(told.contains(says), "{told}");
    }
}

#[tokio::test]
async fn the_help_and_the_manual_omit_the_hidden_verbs() {
    let server = Server::start().await;
    for (words, expected) in [(&[][..], 64), (&["help"], 0), (&["man"], 0)] {
        let output = done(&server, words).await;
        assert_eq!(code(&output), Some(expected));
        let told = text(&output.stdout) + &text(&output.stderr);
        assert!(told.contains("doctor"), "{told}");
        assert!(!told.contains("__"), "{told}");
    }
    assert_eq!(code(&done(&server, &["man", "__die"]).await), Some(64));
}
