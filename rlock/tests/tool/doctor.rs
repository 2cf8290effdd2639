//! `doctor`: what is wrong with a server is found, and what is right is not called wrong.

use serde_json::Value;
use testbed::{Clustered, Fate, Impostor, Proxy, Replicated, Server, Watched};

use crate::{code, done_at, objects, text};

/// The exit code and the findings.
async fn examined(url: &str, more: &[&str]) -> (Option<i32>, Vec<Value>) {
    let output = done_at(url, &[&["doctor", "--json"], more].concat()).await;
    let told = text(&output.stderr);
    assert!(told.is_empty(), "{told}");
    (code(&output), objects(&output))
}

/// What was found about this, not being fine.
fn bad<'a>(findings: &'a [Value], about: &str) -> Vec<&'a Value> {
    let fits = |finding: &&Value| finding["about"] == about && finding["level"] != "ok";
    findings.iter().filter(fits).collect()
}

fn levels(findings: &[Value], level: &str) -> usize {
    findings
        .iter()
        .filter(|found| found["level"] == level)
        .count()
}

#[tokio::test]
async fn a_server_that_may_be_a_proxy_is_reported() {
    let server = Server::start_with(&["--appendonly", "yes"]).await;
    let tunnel = Proxy::start(server.port()).await;
    let url = format!("redis://127.0.0.1:{}", tunnel.port());
    let (code, findings) = examined(&url, &[]).await;
    assert_eq!(code, Some(0), "{findings:#?}");
    let found = bad(&findings, "end point");
    let to_do = found[0]["to_do"].as_str().unwrap();
    assert!(to_do.contains("?endpoint=server"), "{to_do}");
    for vouched in [tunnel.url(), format!("{url}?endpoint=proxy"), server.url()] {
        let (_, findings) = examined(&vouched, &[]).await;
        assert_eq!(bad(&findings, "end point").len(), 0, "{vouched}");
    }
}

#[tokio::test]
async fn a_good_server_is_fine() {
    let server = Server::start_with(&["--appendonly", "yes"]).await;
    let (code, findings) = examined(&server.url(), &[]).await;
    assert_eq!(code, Some(0), "{findings:#?}");
    assert_eq!(
        levels(&findings, "warning") + levels(&findings, "problem"),
        0
    );
    let messages = findings.iter().find(|found| found["about"] == "messages");
    assert_eq!(messages.unwrap()["level"], "ok");
    assert_eq!(
        server.command::<u32>(&["DBSIZE"]).await,
        0,
        "it leaves nothing"
    );
}

#[tokio::test]
async fn doctor_reports_each_finding_with_a_remedy() {
    let options = [
        "--maxmemory",
        "100mb",
        "--maxmemory-policy",
        "volatile-lru",
        "--timeout",
        "5",
    ];
    let server = Server::start_with(&options).await;
    let (code, findings) = examined(&server.url(), &[]).await;
    assert_eq!(code, Some(2));
    for (about, level) in [
        ("memory", "problem"),
        ("persistence", "warning"),
        ("timeout", "warning"),
    ] {
        let found = bad(&findings, about);
        assert_eq!(found.len(), 1, "{about}: {findings:#?}");
        assert_eq!(found[0]["level"], level);
        assert!(found[0]["to_do"].is_string());
    }
    let output = done_at("redis://nowhere:1", &["doctor", &server.url()]).await;
    let shown = text(&output.stdout);
    assert!(
        shown.contains("noeviction") && shown.contains("problems: 1"),
        "{shown}"
    );
    assert!(!shown.contains('\x1b'), "no colours without a terminal");
    let url = server.url();
    drop(server);
    let output = done_at(&url, &["doctor"]).await;
    assert_eq!(crate::code(&output), Some(69), "{}", text(&output.stderr));
}

/// A user as docs/operations.md has it for reentrant and fair locks, but for one right.
#[tokio::test]
async fn rights_that_are_missing_are_named() {
    let server = Server::start_with(&["--appendonly", "yes"]).await;
    let user = "on >secret resetchannels -@all ~app:* ~redisson_lock_queue:{app:* ~redisson_lock_timeout:{app:* \
        &redisson_lock__channel:{app:* +eval +evalsha +subscribe +unsubscribe +pttl +hmget +hset +pexpire +exists +hexists \
        +publish +del +time +lindex +llen +lpop +lpos +lpush +lrange +lrem +rpush +zcard +zrem +zscore";
    let words: Vec<_> = user.split(' ').filter(|word| !word.is_empty()).collect();
    let words = [&["ACL", "SETUSER", "app"], &words[..]].concat();
    server.command::<()>(&words).await;
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let (code, findings) = examined(&url, &["--name", "app:x"]).await;
    assert_eq!(
        code,
        Some(0),
        "a kind that may not be in use is no warning: {findings:#?}"
    );
    let named = ["--name", "app:x", "--kind", "reentrant"];
    let (code, findings) = examined(&url, &named).await;
    assert_eq!(code, Some(0), "{findings:#?}");
    // A right that only run_at_least needs is no problem of the kind.
    let told = format!("{findings:?}");
    assert!(
        told.contains("lacks +hdel, which only run_at_least needs"),
        "{told}"
    );
    let (code, findings) = examined(&url, &["--name", "app:x", "--kind", "fair"]).await;
    assert_eq!(code, Some(2), "{findings:#?}");
    let problem = findings.iter().find(|found| found["level"] == "problem");
    let to_do = problem.unwrap()["to_do"].as_str().unwrap();
    assert!(
        to_do.starts_with("ACL SETUSER app +hdel +zadd ("),
        "{to_do}"
    );
    let (code, findings) = examined(&url, &["--name", "other:x"]).await;
    assert_eq!(code, Some(2), "{findings:#?}");
    server
        .command::<()>(&["ACL", "SETUSER", "app", "+zadd"])
        .await;
    let (code, _) = examined(&url, &["--name", "app:x", "--kind", "fair"]).await;
    assert_eq!(code, Some(0));
}

#[tokio::test]
async fn a_replica_is_no_server_for_locks() {
    let replicated = Replicated::start(1).await;
    let (code, findings) = examined(&replicated.servers[1].url(), &[]).await;
    assert_eq!(code, Some(2));
    assert!(
        bad(&findings, "role")[0]["finding"]
            .as_str()
            .unwrap()
            .contains("replica")
    );
    let (_, findings) = examined(&replicated.url(), &[]).await;
    assert!(bad(&findings, "role").is_empty(), "{findings:#?}");
    assert_eq!(bad(&findings, "min-replicas").len(), 1);
    assert_eq!(bad(&findings, "replicas").len(), 1, "one is too few");
}

#[tokio::test]
async fn sentinels_are_asked_each() {
    let options = ["--min-replicas-to-write", "1", "--appendonly", "yes"];
    let patient = [("down-after-milliseconds", "10000")];
    let watched = Watched::start_as(&options, &[], &patient).await;
    let (code, findings) = examined(&watched.url(), &[]).await;
    assert_eq!(code, Some(0), "{findings:#?}");
    let sentinels = findings.iter().filter(|found| found["about"] == "sentinel");
    assert_eq!(sentinels.count(), 3);
    for sentinel in &watched.sentinels {
        let slow = [
            "SENTINEL",
            "SET",
            Watched::SERVICE,
            "down-after-milliseconds",
            "30000",
        ];
        sentinel.command::<()>(&slow).await;
    }
    let (code, findings) = examined(&watched.url(), &[]).await;
    assert_eq!(code, Some(1), "{findings:#?}");
    assert_eq!(bad(&findings, "timeouts").len(), 1);
    watched.sentinels[1].kill();
    watched.sentinels[2].kill();
    let (_, findings) = examined(&watched.url(), &[]).await;
    assert_eq!(bad(&findings, "sentinel").len(), 2, "{findings:#?}");
    // At a sentinel itself there are no locks.
    let output = done_at(&watched.sentinels[0].url(), &["doctor"]).await;
    assert_ne!(crate::code(&output), Some(0));
}

#[tokio::test]
async fn a_cluster_is_looked_at_as_a_whole() {
    let cluster = Clustered::masters(3).await;
    let (code, findings) = examined(&cluster.url(), &[]).await;
    assert_eq!(code, Some(1), "{findings:#?}");
    assert_eq!(
        bad(&findings, "cluster").len(),
        3,
        "no master has a replica"
    );
    let versions = findings.iter().filter(|found| found["about"] == "version");
    assert_eq!(versions.count(), 3);
    let (code, findings) = examined(&cluster.servers[0].url(), &[]).await;
    assert_eq!(code, Some(2));
    assert_eq!(bad(&findings, "role").len(), 1);
}

/// What was found about commands, and about the rights of kinds of lock.
fn said_about(findings: &[Value], about: &str, part: &str) -> Vec<Value> {
    let says = |finding: &&Value| {
        finding["about"] == about && finding["finding"].as_str().unwrap().contains(part)
    };
    findings.iter().filter(says).cloned().collect()
}

/// Each command that a peer may refuse, and what the doctor says of it.
const REFUSED: [(&str, &str, &str); 8] = [
    ("HELLO", "note", "speaks RESP2"),
    ("EVALSHA", "note", "text of scripts by EVAL"),
    ("WAIT", "note", "Durability::Auto goes on"),
    ("CLIENT INFO", "note", "each name travels alone"),
    ("CLIENT KILL", "note", "does not drop an old connection"),
    ("CLIENT SETNAME", "note", "without a name"),
    ("INFO", "note", "memory policy"),
    ("SUBSCRIBE", "warning", "max_poll_interval"),
];

#[tokio::test]
async fn a_refused_command_is_named_with_the_words_and_the_cost() {
    let mut examinations = tokio::task::JoinSet::new();
    for (command, level, cost) in REFUSED {
        for words in [
            "ERR unknown command (odd one)",
            "NOPERM this user may not run it",
        ] {
            if command == "EVALSHA" && words.starts_with("NOPERM") {
                continue;
            }
            examinations.spawn(async move {
                let server = Server::start_with(&["--appendonly", "yes"]).await;
                let peer = Impostor::start(Some(server.port()), move |said| {
                    let mut named = command.split(' ').zip(said);
                    match named.all(|(word, said)| word.as_bytes() == *said) {
                        true => Fate::Answer(format!("-{words}\r\n").into_bytes()),
                        false => Fate::Pass,
                    }
                });
                let (code, findings) = examined(&peer.await.url(), &[]).await;
                let case = format!("{command}, {words}: {findings:#?}");
                let found = bad(&findings, "commands");
                assert_eq!(found.len(), 1, "{case}");
                assert_eq!(found[0]["level"], level, "{case}");
                let says = found[0]["finding"].as_str().unwrap();
                let begins = format!("{command} is refused ({words}): ");
                assert!(says.starts_with(&begins) && says.contains(cost), "{case}");
                assert!(found[0]["to_do"].is_string(), "{case}");
                // Without messages, the check of messages finds a problem.
                let expected = if command == "SUBSCRIBE" { 2 } else { 0 };
                assert_eq!(code, Some(expected), "{case}");
                let unchecked = said_about(&findings, "server", words);
                assert_eq!(unchecked.len(), usize::from(command == "INFO"), "{case}");
            });
        }
    }
    while let Some(examined) = examinations.join_next().await {
        examined.unwrap();
    }
}

#[tokio::test]
async fn a_peer_that_closes_on_a_command_ends_no_examination() {
    for command in ["SUBSCRIBE", "INFO"] {
        let server = Server::start_with(&["--appendonly", "yes"]).await;
        let peer = Impostor::start(Some(server.port()), move |said| {
            match said[0] == command.as_bytes() {
                true => Fate::HangUp,
                false => Fate::Pass,
            }
        });
        let (_, findings) = examined(&peer.await.url(), &[]).await;
        let found = bad(&findings, "commands");
        assert_eq!(found.len(), 1, "{findings:#?}");
        let says = found[0]["finding"].as_str().unwrap();
        assert!(
            says.starts_with(&format!("{command} is refused (")),
            "{says}"
        );
        let rights = said_about(&findings, "rights", "reentrant");
        assert_eq!(rights[0]["level"], "ok", "{findings:#?}");
        assert_eq!(
            said_about(&findings, "messages", "").len(),
            1,
            "{findings:#?}"
        );
    }
}

#[tokio::test]
async fn a_renamed_command_counts_as_missing() {
    let renamed = |commands: &[&'static str]| {
        let options = commands
            .iter()
            .flat_map(|command| ["--rename-command", command, ""]);
        ["--appendonly", "yes"]
            .into_iter()
            .chain(options)
            .collect::<Vec<_>>()
    };
    // Locks work without these.
    let server = Server::start_with(&renamed(&["EVALSHA", "WAIT", "UNSUBSCRIBE"])).await;
    let (code, findings) = examined(&server.url(), &["--kind", "reentrant"]).await;
    assert_eq!(code, Some(0), "{findings:#?}");
    for command in ["EVALSHA", "WAIT"] {
        assert_eq!(
            said_about(&findings, "commands", command).len(),
            1,
            "{findings:#?}"
        );
    }
    for right in ["+evalsha", "+unsubscribe"] {
        let found = said_about(&findings, "rights", right);
        assert_eq!(found[0]["level"], "note", "{findings:#?}");
    }
    let server = Server::start_with(&renamed(&["PUBLISH"])).await;
    let (code, findings) = examined(&server.url(), &["--kind", "reentrant"]).await;
    assert_eq!(code, Some(2), "{findings:#?}");
    let found = said_about(&findings, "commands", "PUBLISH in scripts is refused");
    assert_eq!(found[0]["level"], "problem", "{findings:#?}");
    let found = said_about(&findings, "rights", "lacks the commands of +publish");
    let kind = said_about(&found, "rights", "reentrant");
    assert_eq!(kind[0]["level"], "problem", "{findings:#?}");
    assert!(
        kind[0]["to_do"]
            .as_str()
            .unwrap()
            .contains("rename-command")
    );
    let server = Server::start_with(&renamed(&["ZADD"])).await;
    let (code, findings) = examined(&server.url(), &[]).await;
    assert_eq!(code, Some(0), "only fair locks need it: {findings:#?}");
    let found = said_about(&findings, "rights", "lacks the commands of +zadd");
    assert!(!found.is_empty() && found.iter().all(|found| found["level"] == "note"));
}

#[tokio::test]
async fn resp2_by_choice_is_no_finding() {
    let server = Server::start_with(&["--appendonly", "yes"]).await;
    let url = format!("{}?protocol=resp2", server.url());
    let (_, findings) = examined(&url, &[]).await;
    assert!(bad(&findings, "commands").is_empty(), "{findings:#?}");
}
