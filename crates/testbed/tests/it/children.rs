use std::process::Command;
use std::time::Duration;

use testbed::{Child, Silence};

use crate::{A_WHILE, SOON};

fn shell(script: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Child::spawn(command)
}

#[tokio::test]
async fn a_child_is_asked_and_answers_in_lines() {
    let mut child = shell("while read -r line; do echo \"got $line\"; done; exit 3");
    assert_eq!(child.ask("one", SOON).await, "got one");
    child.send_line("two");
    child.send_line("three");
    assert_eq!(child.next_line(SOON).await, Ok("got two".to_owned()));
    assert_eq!(child.line(SOON).await, "got three");
    assert_eq!(
        child.next_line(Duration::from_millis(20)).await,
        Err(Silence::TimedOut)
    );
    assert_eq!(child.wait(Duration::ZERO).await, None);
    child.close_input();
    assert_eq!(child.next_line(SOON).await, Err(Silence::Ended));
    assert_eq!(
        child.wait(SOON).await.and_then(|status| status.code()),
        Some(3)
    );
}

#[tokio::test]
#[should_panic(expected = "the reason")]
async fn a_child_that_says_nothing_is_quoted() {
    let mut child = shell("echo 'the reason' >&2; exit 1");
    child.wait(SOON).await;
    child.line(SOON).await;
}

#[tokio::test]
async fn bytes_that_are_not_utf8_do_not_end_the_lines() {
    let mut child = shell(r"printf 'a\377b\n'; printf 'a\377b\n' >&2; echo next; echo last >&2");
    assert_eq!(child.line(SOON).await, "a\u{fffd}b");
    assert_eq!(child.line(SOON).await, "next");
    let tail = async || child.stderr_tail() == "a\u{fffd}b\nlast\n";
    testbed::eventually("both lines of stderr", SOON, tail).await;
}

#[tokio::test]
async fn a_paused_child_goes_on_when_resumed() {
    let mut child = shell("exec cat");
    child.pause();
    child.send_line("x");
    assert_eq!(child.next_line(A_WHILE).await, Err(Silence::TimedOut));
    child.resume();
    assert_eq!(child.line(SOON).await, "x");
}

#[tokio::test]
async fn a_killed_child_is_gone_and_its_lines_are_not() {
    let mut child = shell(r"printf 'before\nagain\n'; exec cat");
    assert_eq!(child.line(SOON).await, "before");
    child.pause();
    child.kill();
    assert_eq!(child.line(SOON).await, "again");
    assert_eq!(child.next_line(SOON).await, Err(Silence::Ended));
    child.kill();
    child.pause();
}

#[tokio::test]
async fn a_dropped_child_is_gone() {
    let child = shell("exec cat");
    let proc = format!("/proc/{}", child.pid());
    assert!(std::path::Path::new(&proc).exists());
    drop(child);
    assert!(!std::path::Path::new(&proc).exists());
}
