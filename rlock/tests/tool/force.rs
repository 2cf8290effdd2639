//! `unlock`: the release that each kind needs, and the question before it.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use testbed::Server;

use crate::{GENEROUS, code, done, done_at, is_free, pty::Pty, text};

const HOLDER: &str = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47";
const WAITER: &str = "2912f0e7-a073-4971-8b68-884e9c5d33ca:48";

/// A subscriber, as a Java waiter is.
struct Subscriber(BufReader<TcpStream>);

impl Subscriber {
    fn of(server: &Server, channel: &str) -> Self {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        stream.set_read_timeout(Some(GENEROUS / 4)).unwrap();
        write!(stream, "SUBSCRIBE {channel}\r\n").unwrap();
        let mut this = Self(BufReader::new(stream));
        this.expect("subscribe");
        this
    }

    /// Reads up to a line of this text.
    fn expect(&mut self, text: &str) {
        let mut line = String::new();
        while line.trim() != text {
            line.clear();
            let read = self.0.read_line(&mut line);
            assert!(read.is_ok(), "no {text}: {read:?}");
        }
    }
}

/// A lock of this kind, in the hands of Java.
async fn hold(server: &Server, kind: &str) {
    let write = format!("{HOLDER}:write");
    match kind {
        "simple" => server.command::<()>(&["SET", kind, HOLDER]).await,
        "read" | "write" => {
            let field = if kind == "write" { &write } else { HOLDER };
            let words = ["HSET", kind, "mode", kind, field, "1"];
            server.command::<()>(&words).await;
        }
        _ => server.command::<()>(&["HSET", kind, HOLDER, "1"]).await,
    }
    match kind {
        "fair" => {
            let words = ["RPUSH", "redisson_lock_queue:{fair}", WAITER];
            server.command::<()>(&words).await;
        }
        "fenced" => {
            let words = ["INCR", "redisson_lock_token:{fenced}"];
            server.command::<()>(&words).await;
        }
        _ => {}
    }
}

/// A fair waiter listens on a channel of its own: the release of a reentrant lock left it asleep until the end of the lease.
#[tokio::test]
async fn a_lock_of_each_kind_is_freed_by_a_release_that_wakes_its_waiters() {
    let server = Server::start().await;
    for (kind, channel) in [
        ("reentrant", "redisson_lock__channel:{reentrant}".to_owned()),
        ("fair", format!("redisson_lock__channel:{{fair}}:{WAITER}")),
        ("fenced", "redisson_lock__channel:{fenced}".to_owned()),
        ("read", "redisson_rwlock:{read}".to_owned()),
        ("write", "redisson_rwlock:{write}".to_owned()),
        ("simple", "simple_lock__channel:{simple}".to_owned()),
    ] {
        // A queue outweighs the kind that another lock of these data would have.
        for given in [
            &[][..],
            &["--kind", if kind == "fair" { "reentrant" } else { kind }],
        ] {
            hold(&server, kind).await;
            let mut waiter = Subscriber::of(&server, &channel);
            let words = [&["unlock", kind, "--force", "--yes"], given].concat();
            let output = done(&server, &words).await;
            let printed = text(&output.stdout) + &text(&output.stderr);
            assert_eq!(printed, format!("{kind}: freed"), "{words:?}");
            assert!(is_free(&server, kind).await);
            waiter.expect("message");
        }
    }
}

#[tokio::test]
async fn the_question_names_the_holder_and_frees_no_other() {
    let server = Server::start().await;
    let mut shell = Pty::shell(&server).await;
    for (answer, says, has_changed, is_freed) in [
        ("n", "not changed", false, false),
        ("y", "freed", false, true),
        ("y", "another owner", true, false),
    ] {
        server.command::<u32>(&["DEL", "a"]).await;
        server.command::<u32>(&["HSET", "a", HOLDER, "1"]).await;
        shell.asks().await;
        shell.line("$T unlock a --force; echo co''de=$?");
        let shown = shell.shows("[y/N]").await;
        assert!(shown.contains(HOLDER), "{shown:?}");
        if has_changed {
            server.command::<u32>(&["DEL", "a"]).await;
            server.command::<u32>(&["HSET", "a", WAITER, "1"]).await;
        }
        shell.line(answer);
        shell.shows(says).await;
        shell.shows("code=").await;
        assert_eq!(is_free(&server, "a").await, is_freed, "{says}");
    }
}

#[tokio::test]
async fn a_fair_waiter_that_joins_the_queue_during_the_question_is_notified() {
    let server = Server::start().await;
    let mut shell = Pty::shell(&server).await;
    server.command::<u32>(&["HSET", "a", HOLDER, "1"]).await;
    shell.line("$T unlock a --force");
    shell.shows("[y/N]").await;
    let channel = format!("redisson_lock__channel:{{a}}:{WAITER}");
    let mut waiter = Subscriber::of(&server, &channel);
    let queue = ["RPUSH", "redisson_lock_queue:{a}", WAITER];
    server.command::<u32>(&queue).await;
    shell.line("y");
    shell.shows("freed").await;
    waiter.expect("message");
}

/// The user may free locks, and not read what else is at the server.
#[tokio::test]
async fn a_user_without_rights_to_look_is_told_that_the_kind_is_not_known() {
    let server = Server::start().await;
    let user = "on >secret ~app:* &redisson_lock__channel:{app:* -@all +eval +evalsha +pttl +hmget +hexists \
                +exists +publish +del";
    let words: Vec<_> = user.split_whitespace().collect();
    let words = [&["ACL", "SETUSER", "app", "resetchannels"][..], &words].concat();
    server.command::<()>(&words).await;
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    for (given, is_told) in [(&[][..], true), (&["--kind", "reentrant"], false)] {
        server.command::<()>(&["HSET", "app:a", HOLDER, "1"]).await;
        let words = [&["unlock", "app:a", "--force", "--yes"], given].concat();
        let output = done_at(&url, &words).await;
        assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
        assert_eq!(text(&output.stdout), "app:a: freed");
        let told = text(&output.stderr);
        assert_eq!(
            told.contains("reentrant lock unless --kind"),
            is_told,
            "{told}"
        );
    }
}

/// The name of another program's data, typed by mistake.
#[tokio::test]
async fn what_is_not_a_lock_is_freed_only_if_its_kind_is_given() {
    let server = Server::start().await;
    server
        .command::<u32>(&["HSET", "user:7", "name", "Ann"])
        .await;
    let unlock = ["unlock", "user:7", "--force", "--yes"];
    let output = done(&server, &unlock).await;
    assert_eq!(code(&output), Some(70));
    let told = text(&output.stderr);
    assert!(told.contains("user:7 is not a lock (hash)"), "{told}");
    assert!(!is_free(&server, "user:7").await);
    let output = done(&server, &[&unlock[..], &["--kind", "reentrant"]].concat()).await;
    assert_eq!(text(&output.stdout), "user:7: freed");
}
