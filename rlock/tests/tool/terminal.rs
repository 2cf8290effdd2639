//! `run` at a terminal, in a shell with job control: keys, stops, and programs that read.

use testbed::{Server, eventually};

use crate::{GENEROUS, is_free, pty::Pty};

/// A command whose inner process tells what it hears, as an editor does that a script has started.
const TELLS: &str = r#"$T run a -- sh -c 'trap : INT QUIT; sh -c "trap \"echo inner heard\" INT QUIT; echo beg\"\"un; while :; do sleep 0.05; done"; :'"#;

async fn is_taken(server: &Server) {
    let taken = async || !is_free(server, "a").await;
    eventually("the lock is taken", GENEROUS, taken).await;
}

async fn is_released(server: &Server) {
    let free = async || is_free(server, "a").await;
    eventually("the lock is free", GENEROUS, free).await;
}

#[tokio::test]
async fn keys_reach_all_that_the_command_has_started() {
    let server = Server::start().await;
    let mut shell = Pty::shell(&server).await;
    shell.line(TELLS);
    shell.shows("begun").await;
    for key in ["\x03", "\x1c"] {
        shell.keys(key);
        shell.shows("inner heard").await;
    }
    // So does a signal to the tool.
    shell.keys("\x1a");
    shell.shows("Stopped").await;
    shell.asks().await;
    shell.line("kill -TERM %1; fg; echo co''de=$?");
    shell.shows("code=143").await;
    is_released(&server).await;
}

#[tokio::test]
async fn keys_end_the_command_and_the_loop_around_it() {
    let server = Server::start().await;
    let mut shell = Pty::shell(&server).await;
    for (key, code) in [("\x03", 130), ("\x1c", 131)] {
        shell.line("$T run a -- sh -c 'echo beg\"\"un; exec sleep 60'");
        shell.shows("begun").await;
        shell.keys(key);
        shell.asks().await;
        shell.line("echo co''de=$?");
        shell.shows(&format!("code={code}")).await;
        shell.asks().await;
        is_released(&server).await;
    }
    // A loop of the shell, and a script, go no further.
    shell.line(
        "for i in 1 2; do $T run a -- sh -c 'echo beg\"\"un; exec sleep 60'; echo ne''xt; done",
    );
    shell.shows("begun").await;
    shell.keys("\x03");
    shell.asks().await;
    shell.line("echo do''ne");
    let shown = shell.shows("done").await;
    assert!(
        !shown.contains("next") && !shown.contains("begun"),
        "{shown:?}"
    );
    shell.asks().await;
    shell.line("sh -c '$T run a -- sh -c \"echo be''gun; exec sleep 60\"; echo ne\"\"xt'");
    shell.shows("begun").await;
    shell.keys("\x03");
    shell.asks().await;
    shell.line("echo do''ne");
    let shown = shell.shows("done").await;
    assert!(!shown.contains("next"), "{shown:?}");
    is_released(&server).await;
}

/// The lock is kept, and nothing of the command runs, until the shell lets it go on.
#[tokio::test]
async fn a_command_is_stopped_by_a_key_and_goes_on() {
    let server = Server::start().await;
    let mut shell = Pty::shell(&server).await;
    shell.line("$T run a -- sh -c 'echo beg\"\"un; read line; echo \"got $line\"; read line; echo \"got $line\"'");
    shell.shows("begun").await;
    shell.line("one");
    shell.shows("got one").await;
    shell.keys("\x1a");
    shell.shows("Stopped").await;
    shell.asks().await;
    is_taken(&server).await;
    // In the background it may not read: it stops by itself.
    shell.line("bg; wait %1; jobs");
    shell.shows("Stopped").await;
    shell.asks().await;
    shell.line("fg");
    shell.line("two");
    shell.shows("got two").await;
    shell.asks().await;
    shell.line("echo co''de=$?");
    shell.shows("code=0").await;
    is_released(&server).await;
}

#[tokio::test]
async fn a_command_that_is_stopped_for_longer_than_its_lease_does_not_go_on() {
    let server = Server::start().await;
    let mut shell = Pty::shell(&server).await;
    shell.line("$T run a --lease 6s -- sh -c 'echo beg\"\"un; read line; echo \"got $line\"'");
    shell.shows("begun").await;
    shell.keys("\x1a");
    shell.shows("Stopped").await;
    shell.asks().await;
    is_released(&server).await;
    shell.line("fg; echo co''de=$?");
    let shown = shell.shows("code=").await;
    assert!(shown.contains("was lost"), "{shown:?}");
    shell.shows("76").await;
    shell.asks().await;
    shell.line("echo tw''o");
    let shown = shell.shows("two").await;
    assert!(!shown.contains("got"), "{shown:?}");
}

/// Its neighbours keep the terminal, and it gets that when it reads from it.
#[tokio::test]
async fn a_command_in_a_pipeline_may_read_from_the_terminal() {
    let server = Server::start().await;
    let mut shell = Pty::shell(&server).await;
    shell.line("$T run a -- sh -c 'echo beg\"\"un; read line </dev/tty; echo \"got $line\"' | cat; echo do''ne");
    shell.shows("begun").await;
    shell.line("one");
    shell.shows("got one").await;
    shell.shows("done").await;
    // A key ends both ends of a pipeline.
    shell.line("$T run a -- sh -c 'echo beg\"\"un; exec sleep 60' | cat");
    shell.shows("begun").await;
    shell.keys("\x03");
    shell.asks().await;
    shell.line("echo do''ne");
    shell.shows("done").await;
    is_released(&server).await;
    shell.line("$T run a -- sh -c 'echo beg\"\"un; exec sleep 60' | cat");
    shell.shows("begun").await;
    shell.keys("\x1a");
    shell.shows("Stopped").await;
    shell.asks().await;
    is_taken(&server).await;
    shell.line("kill -TERM %1; fg");
    is_released(&server).await;
}

/// Without a shell above it, nothing would ever let it go on.
#[tokio::test]
async fn a_session_of_its_own_cannot_be_stopped() {
    let server = Server::start().await;
    let tool = env!("CARGO_BIN_EXE_rlock");
    let script = "echo begun; read line; echo got $line";
    let mut alone = Pty::start(&server, &[tool, "run", "a", "--", "sh", "-c", script]);
    alone.shows("begun").await;
    alone.keys("\x1a");
    alone.line("one");
    alone.shows("got one").await;
    is_released(&server).await;
}

/// What the terminal's end does: it hangs up.
#[tokio::test]
async fn a_terminal_that_is_closed_ends_the_command() {
    let server = Server::start().await;
    let mut shell = Pty::shell(&server).await;
    shell.line("$T run a -- sh -c 'echo beg\"\"un; exec sleep 60'");
    shell.shows("begun").await;
    drop(shell);
    is_released(&server).await;
}
