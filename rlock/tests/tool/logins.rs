//! Users and passwords that are not in the URL.

use std::process::{Output, Stdio};

use testbed::{Server, Watched};
use tokio::io::AsyncWriteExt;

use crate::{code, rlock, rlock_at, text};

const SECRET: &str = "s3cr3t";

fn assert_code(output: &Output, expected: i32, says: &[&str]) {
    let told = text(&output.stderr);
    assert_eq!(code(output), Some(expected), "{told}");
    assert!(says.iter().all(|part| told.contains(part)), "{told}");
    assert!(!told.contains(SECRET), "{told}");
}

/// A server on which `default` and `app` need the password.
async fn server() -> Server {
    let server = Server::start_with(&["--requirepass", SECRET]).await;
    let rule = format!(">{SECRET}");
    let user = ["ACL", "SETUSER", "app", "on", &rule, "~*", "&*", "+@all"];
    server.command::<()>(&user).await;
    server
}

#[tokio::test]
async fn password_comes_from_a_file_or_the_environment() {
    let server = server().await;
    let file = server.dir().join("password");
    let file = file.to_str().unwrap();
    for content in [
        SECRET.to_owned(),
        format!("{SECRET}\n"),
        format!("{SECRET}\r\n"),
    ] {
        std::fs::write(file, content).unwrap();
        for words in [
            &["--user", "app", "--password-file", file, "ls"][..],
            &["ls", "--password-file", file],
            &[
                "run",
                "job",
                "--user",
                "app",
                "--password-file",
                file,
                "--",
                "true",
            ],
        ] {
            let output = rlock(&server, words).output().await.unwrap();
            assert_code(&output, 0, &[]);
        }
    }
    for words in [&["--user", "app", "ls"][..], &["ls"]] {
        let mut command = rlock(&server, words);
        let output = command
            .env("RLOCK_PASSWORD", SECRET)
            .output()
            .await
            .unwrap();
        assert_code(&output, 0, &[]);
        // The file precedes it.
        let mut command = rlock(&server, words);
        command
            .env("RLOCK_PASSWORD", "old")
            .env("RLOCK_PASSWORD_FILE", file);
        assert_code(&command.output().await.unwrap(), 0, &[]);
    }
    // The login of the URL is replaced.
    let url = format!("redis://nouser:wrong@127.0.0.1:{}", server.port());
    let words = ["--user", "app", "--password-file", file, "show", "job"];
    assert_code(&rlock_at(&url, &words).output().await.unwrap(), 0, &[]);
    let output = rlock(&server, &["ls"]).output().await.unwrap();
    assert_code(&output, 64, &["requires a password"]);
    let mut wrong = rlock(&server, &["ls"]);
    let output = wrong.env("RLOCK_PASSWORD", "wrong").output().await.unwrap();
    assert_code(&output, 64, &["refused the user name or password"]);
}

/// The doctor makes several clients.
#[tokio::test]
async fn password_file_may_be_a_pipe() {
    let server = server().await;
    let words = ["--user", "app", "--password-file", "/dev/stdin", "doctor"];
    let mut command = rlock(&server, &words);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(SECRET.as_bytes()).await.unwrap();
    drop(input);
    let output = child.wait_with_output().await.unwrap();
    let printed = text(&output.stdout);
    let woken = "a release woke a waiter of another client";
    assert!(
        printed.contains(woken),
        "{printed} {}",
        text(&output.stderr)
    );
}

#[tokio::test]
async fn logins_that_cannot_be_are_refused_and_say_what_to_do() {
    let server = server().await;
    let file = |name: &str| server.dir().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("empty"), "\n").unwrap();
    std::fs::write(file("bytes"), b"\xff\xfe").unwrap();
    let (missing, empty, bytes) = (file("missing"), file("empty"), file("bytes"));
    for (words, says) in [
        (
            &["--user", "app", "ls"][..],
            &["--password-file", "RLOCK_PASSWORD"][..],
        ),
        (
            &["--password-file", &missing, "ls"],
            &[&missing, "No such file"],
        ),
        (&["--password-file", &empty, "ls"], &[&empty, "empty"]),
        (&["--password-file", &bytes, "ls"], &[&bytes, "UTF-8"]),
        (
            &["--password-file", "/dev/zero", "ls"],
            &["longer than 64 KiB"],
        ),
        (&["--password", SECRET, "ls"], &["--password"]),
        (
            &["--sentinel-user", "app", "ls"],
            &["--sentinel-password-file", "RLOCK_SENTINEL_PASSWORD"],
        ),
    ] {
        let output = rlock(&server, words).output().await.unwrap();
        let told = text(&output.stderr);
        assert_eq!(code(&output), Some(64), "{words:?}: {told}");
        assert!(
            says.iter().all(|part| told.contains(part)),
            "{words:?}: {told}"
        );
    }
    let good = file("good");
    std::fs::write(&good, SECRET).unwrap();
    let words = ["--sentinel-password-file", &good, "ls"];
    let output = rlock(&server, &words).output().await.unwrap();
    assert_code(&output, 64, &["without sentinels"]);
    let alone = format!("redis://app@127.0.0.1:{}", server.port());
    let output = rlock_at(&alone, &["ls"]).output().await.unwrap();
    assert_code(&output, 64, &["RLOCK_PASSWORD"]);
    let alone = "redis-sentinel://127.0.0.1:1/s?sentinelUsername=watcher";
    let output = rlock_at(alone, &["ls"]).output().await.unwrap();
    assert_code(&output, 64, &["RLOCK_SENTINEL_PASSWORD"]);
}

/// A URL in a configuration names the user, and a secret store has the password.
#[tokio::test]
async fn password_without_a_user_is_for_the_user_of_the_url() {
    let server = server().await;
    let own = "p@ss/w%rd #?:\u{e9}";
    let rule = format!(">{own}");
    let user = ["ACL", "SETUSER", "app", "resetpass", &rule];
    server.command::<()>(&user).await;
    let file = server.dir().join("own");
    std::fs::write(&file, own).unwrap();
    for (login, user, password) in [
        ("app@", None, own),
        ("app:@", None, own),
        ("app:old@", None, own),
        ("a%70p:o%6Cd@", None, own),
        ("", Some("app"), own),
        ("nouser@", Some("app"), own),
        ("app@", Some("default"), SECRET),
        (":old@", None, SECRET),
    ] {
        let url = format!("redis://{login}127.0.0.1:{}/0", server.port());
        let mut command = rlock_at(&url, &["ls"]);
        command.env("RLOCK_PASSWORD", password);
        if let Some(user) = user {
            command.env("RLOCK_USER", user);
        }
        let output = command.output().await.unwrap();
        let told = text(&output.stderr);
        assert_eq!(code(&output), Some(0), "{login} {user:?}: {told}");
    }
    let url = format!("redis://app@127.0.0.1:{}", server.port());
    let words = ["--password-file", file.to_str().unwrap(), "ls"];
    assert_code(&rlock_at(&url, &words).output().await.unwrap(), 0, &[]);
}

/// Every variable of an option.
const VARIABLES: [&str; 14] = [
    "RLOCK_MAP",
    "RLOCK_USER",
    "RLOCK_PASSWORD",
    "RLOCK_PASSWORD_FILE",
    "RLOCK_SENTINEL_USER",
    "RLOCK_SENTINEL_PASSWORD",
    "RLOCK_SENTINEL_PASSWORD_FILE",
    "RLOCK_CACERT",
    "RLOCK_CERT",
    "RLOCK_KEY",
    "RLOCK_SNI",
    "RLOCK_SENTINEL_SNI",
    "RLOCK_TLS_VERIFICATION",
    "RLOCK_SENTINEL_TLS_VERIFICATION",
];

/// A compose file sets `RLOCK_PASSWORD: ${PASSWORD}` to an empty text where there is no password.
#[tokio::test]
async fn empty_variable_counts_as_not_set() {
    let server = server().await;
    let url = format!("redis://app:{SECRET}@127.0.0.1:{}", server.port());
    for variable in VARIABLES {
        let mut command = rlock_at(&url, &["ls"]);
        let output = command.env(variable, "").output().await.unwrap();
        let told = text(&output.stderr);
        assert_eq!(code(&output), Some(0), "{variable}: {told}");
    }
    let output = rlock_at("", &["ls"]).output().await.unwrap();
    assert_code(&output, 64, &["no server is given"]);
    let mut command = rlock_at(&url, &["--user", "app", "ls"]);
    let output = command.env("RLOCK_PASSWORD", "").output().await.unwrap();
    assert_code(&output, 64, &["RLOCK_PASSWORD"]);
}

/// An environment has one set of variables for several servers.
#[tokio::test]
async fn variables_for_sentinels_and_clusters_do_not_concern_one_server() {
    let server = server().await;
    let one = format!("redis://app:{SECRET}@127.0.0.1:{}", server.port());
    let replicated = one.replace("redis:", "redis-replicated:");
    for (variable, value) in [
        ("RLOCK_MAP", "10.0.0.1=127.0.0.1"),
        ("RLOCK_SENTINEL_USER", "watcher"),
        ("RLOCK_SENTINEL_PASSWORD", "w4tch"),
        ("RLOCK_SENTINEL_PASSWORD_FILE", "/run/missing"),
        ("RLOCK_SENTINEL_SNI", "watcher.internal"),
        ("RLOCK_SENTINEL_TLS_VERIFICATION", "none"),
    ] {
        for words in [&["--url", &one, "ls"][..], &["--url", &replicated, "ls"]] {
            let mut command = rlock_at("redis-cluster://127.0.0.1:1", words);
            let output = command.env(variable, value).output().await.unwrap();
            let told = text(&output.stderr);
            assert_eq!(code(&output), Some(0), "{variable}, {words:?}: {told}");
        }
        // The verb's own server precedes the variable's.
        let mut command = rlock_at("redis-sentinel://127.0.0.1:1/s", &["doctor", &one]);
        let output = command.env(variable, value).output().await.unwrap();
        let (told, printed) = (text(&output.stderr), text(&output.stdout));
        assert!(printed.contains("woke a waiter"), "{variable}: {told}");
    }
    for words in [
        &["--map", "10.0.0.1=127.0.0.1", "ls"][..],
        &["ls", "--sentinel-sni", "watcher.internal"],
    ] {
        // An option is a mistake that the user can see.
        let mut command = rlock_at(&one, words);
        command.env("RLOCK_MAP", "10.0.0.2=127.0.0.1");
        let output = command.output().await.unwrap();
        assert_code(&output, 64, &["sentinels"]);
    }
}

/// The command of `run` may print its environment, or send it to a collector of crashes.
#[tokio::test]
async fn command_does_not_receive_the_passwords() {
    let server = server().await;
    let mut command = rlock(&server, &["run", "job", "--", "env"]);
    command
        .env("RLOCK_USER", "app")
        .env("RLOCK_PASSWORD", SECRET)
        .env("RLOCK_SENTINEL_PASSWORD", SECRET);
    let output = command.output().await.unwrap();
    assert_code(&output, 0, &[]);
    let environment = text(&output.stdout);
    assert!(environment.contains("RLOCK_USER=app"), "{environment}");
    assert!(!environment.contains("PASSWORD="), "{environment}");
    assert!(!environment.contains(SECRET), "{environment}");
}

/// Sentinels have users of their own, and announce an address that `--map` translates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_have_a_login_of_their_own() {
    let watched = Watched::start_as(
        &["--requirepass", SECRET, "--masterauth", SECRET],
        &["--requirepass", "w4tch"],
        &[("auth-pass", SECRET)],
    )
    .await;
    let sentinel = watched.sentinels[0].port();
    let url = format!("redis-sentinel://127.0.0.1:{sentinel}/{}", Watched::SERVICE);
    let tunnel = testbed::Proxy::start(watched.replicated.servers[0].port()).await;
    let master = watched.replicated.servers[0].port();
    let through = |port: u16| format!("127.0.0.1:{master}=127.0.0.1:{port}");
    let watcher = [
        "ACL", "SETUSER", "watcher", "on", ">eyes", "~*", "&*", "+@all",
    ];
    watched.sentinels[0].command::<()>(&watcher).await;
    for own in ["", "&sentinelPassword=old"] {
        let url = format!("{url}?sentinelUsername=w%61tcher{own}");
        let mut command = rlock_at(&url, &["run", "job", "--", "true"]);
        command.env("RLOCK_PASSWORD", SECRET);
        command.env("RLOCK_SENTINEL_PASSWORD", "eyes");
        assert_code(&command.output().await.unwrap(), 0, &[]);
    }
    for (of_sentinels, port, expected) in [
        ("w4tch", tunnel.port(), 0),
        ("w4tch", 1, 69),
        ("wrong", tunnel.port(), 64),
    ] {
        let map = through(port);
        let mut command = rlock_at(&url, &["--map", &map, "run", "job", "--", "true"]);
        command.env("RLOCK_PASSWORD", SECRET);
        command.env("RLOCK_SENTINEL_PASSWORD", of_sentinels);
        let output = command.output().await.unwrap();
        let says: &[&str] = match of_sentinels {
            "wrong" => &["--sentinel-user"],
            _ => &[],
        };
        assert_code(&output, expected, says);
    }
}
