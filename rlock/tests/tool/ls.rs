//! `ls` and `show`: what holds what.

use std::{process::Stdio, time::Instant};

use serde_json::{Value, json};
use testbed::{Clustered, Server, eventually, slot_of};

use crate::{GENEROUS, begun, code, done, done_at, objects, rlock, rlock_at, signal, text};

const JAVA: &str = "0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:47";

fn named<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    let found = objects.iter().find(|object| object["name"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {objects:?}"))
}

#[tokio::test]
async fn locks_are_listed_with_their_holders_and_waiters() {
    let server = Server::start().await;
    let script = ["--", "sh", "-c", "echo begun; exec sleep 60"];
    let mut holders = Vec::new();
    for kind in ["reentrant", "fair", "fenced", "read", "write", "simple"] {
        let words = [&["run", kind, "--kind", kind][..], &script].concat();
        holders.push(begun(&server, &words).await);
    }
    let reader = ["run", "read", "--kind", "read"];
    holders.push(begun(&server, &[&reader[..], &script].concat()).await);
    // As Java leaves it: a hold taken twice, one without a lease, and a waiter of a free lock.
    for words in [
        &["HSET", "java", JAVA, "2"][..],
        &["PEXPIRE", "java", "20000"],
        &["HSET", "endless", JAVA, "1"],
        &["RPUSH", "redisson_lock_queue:{left}", JAVA],
        &["HSET", "cart:7", "apples", "3"],
        &["SETRANGE", "greeting", "0", "hello"],
        &["RPUSH", "jobs", "one"],
    ] {
        server.command::<u32>(words).await;
    }
    let waits = rlock(&server, &["run", "fair", "--kind", "fair", "--", "true"]).spawn();
    let mut waits = waits.unwrap();
    let queued = async || {
        server
            .command::<u32>(&["LLEN", "redisson_lock_queue:{fair}"])
            .await
            == 1
    };
    eventually("one waits", GENEROUS, queued).await;
    server.reset_calls().await;
    let all_begun = Instant::now();
    let held = all_begun.elapsed().as_millis();
    let output = done(&server, &["ls", "--json"]).await;
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let listed = objects(&output);
    for kind in ["reentrant", "fair", "fenced", "read", "write", "simple"] {
        let lock = named(&listed, kind);
        assert_eq!(lock["kind"], kind);
        assert_eq!(lock["holders"][0]["language"], "Rust");
        assert_eq!(lock["holders"][0]["count"], 1);
        let client = lock["holders"][0]["client"].as_str().unwrap();
        assert!(client.starts_with("rlock-"), "{client}");
        // The bound is never below the true age.
        let at_most = lock["holders"][0]["held_at_most_ms"].as_u64().unwrap();
        assert!((held..60_000).contains(&at_most.into()), "{held}: {lock}");
        let lease = lock["holders"][0]["remaining_lease_ms"].as_u64();
        assert!(lease.is_some_and(|lease| lease <= 30_000), "{lock}");
    }
    assert_eq!(named(&listed, "read")["holder_count"], 2);
    assert_eq!(named(&listed, "write")["holders"][0]["writes"], true);
    assert_eq!(named(&listed, "fair")["queue_length"], 1);
    let java = named(&listed, "java");
    assert_eq!(java["kind"], "reentrant");
    assert_eq!(java["holders"][0]["owner"], JAVA);
    assert_eq!(java["holders"][0]["language"], "Java");
    assert_eq!(java["holders"][0]["client"], Value::Null);
    assert_eq!(java["holders"][0]["held_at_most_ms"], Value::Null);
    assert_eq!(java["holders"][0]["count"], 2);
    assert_eq!(named(&listed, "endless")["remaining_lease_ms"], Value::Null);
    let left = named(&listed, "left");
    assert_eq!(
        (&left["kind"], &left["queue"]),
        (&json!("fair"), &json!([JAVA]))
    );
    assert_eq!(left["holder_count"], 0);
    assert_eq!(listed.len(), 9, "{listed:?}");
    let calls = server.calls().await;
    assert!(
        !calls.contains_key("keys") && calls.contains_key("scan"),
        "{calls:?}"
    );

    let output = done(&server, &["ls", "--json", "--all"]).await;
    let all = objects(&output);
    assert_eq!(named(&all, "cart:7")["kind"], json!({ "foreign": "hash" }));
    assert_eq!(
        named(&all, "greeting")["kind"],
        json!({ "foreign": "string" })
    );
    assert_eq!(named(&all, "jobs")["kind"], json!({ "foreign": "list" }));
    assert_eq!(all.len(), 12);

    let output = done(&server, &["ls", "f*"]).await;
    let shown = text(&output.stdout);
    let names = shown
        .lines()
        .skip(1)
        .map(|line| line.split(' ').next().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["fair", "fenced"]);
    assert!(!shown.contains('\x1b'), "no colours without a terminal");
    let output = done(&server, &["ls"]).await;
    assert!(text(&output.stdout).ends_with("and 3 keys that are not locks (--all names them)"));

    let output = done(&server, &["show", "java"]).await;
    assert!(
        text(&output.stdout).contains(JAVA),
        "{}",
        text(&output.stdout)
    );
    let output = done(&server, &["show", "java", "--json"]).await;
    let told = objects(&output);
    assert_eq!(
        (&told[0]["locked"], &told[0]["holders"][0]["owner"]),
        (&true.into(), &JAVA.into())
    );
    signal(&waits, "TERM").await;
    waits.wait().await.unwrap();
}

#[tokio::test]
async fn a_server_without_locks_has_none() {
    let server = Server::start().await;
    let output = done(&server, &["ls"]).await;
    assert_eq!(
        (code(&output), text(&output.stdout).as_str()),
        (Some(0), "no locks")
    );
    let output = done(&server, &["ls", "--json"]).await;
    assert_eq!(text(&output.stdout), "");
}

/// With the rights for a reentrant lock alone, a lock is shown without what is around it, and not listed.
#[tokio::test]
async fn a_user_without_rights_to_look_gets_less_detail_or_an_error() {
    let server = Server::start().await;
    let user = "on >secret ~app:* &redisson_lock__channel:{app:* -@all +eval +evalsha +pttl +hmget +hset \
                +pexpire +exists +hexists +publish +del +subscribe +unsubscribe";
    let words = [
        &["ACL", "SETUSER", "app", "resetchannels"][..],
        &user.split(' ').collect::<Vec<_>>(),
    ];
    let words: Vec<_> = words
        .concat()
        .into_iter()
        .filter(|word| !word.is_empty())
        .collect();
    server.command::<()>(&words).await;
    server.command::<()>(&["HSET", "app:a", JAVA, "1"]).await;
    let url = format!("redis://app:secret@127.0.0.1:{}", server.port());
    let output = done_at(&url, &["show", "app:a"]).await;
    assert_eq!(text(&output.stdout), "app:a: taken");
    let output = done_at(&url, &["ls"]).await;
    assert_eq!(code(&output), Some(70));
    assert!(
        text(&output.stderr).contains("scan"),
        "{}",
        text(&output.stderr)
    );
    // The rights that docs/rlock.md names are enough for the names that the user may read.
    let rights = "+scan +type +pttl +hscan +hlen +getrange +llen +lrange +exists +pubsub ~redisson_lock_queue:{app:*";
    assert!(include_str!("../../../docs/rlock.md").contains(rights.split(" ~").next().unwrap()));
    let rights: Vec<_> = rights.split(' ').collect();
    let grant = [&["ACL", "SETUSER", "app"], &rights[..]].concat();
    server.command::<()>(&grant).await;
    let output = done_at(&url, &["ls", "app:*", "--json"]).await;
    assert_eq!(named(&objects(&output), "app:a")["holder_count"], 1);
}

#[tokio::test]
async fn locks_of_all_masters_of_a_cluster_are_listed() {
    let cluster = Clustered::masters(3).await;
    let mut names = Vec::new();
    for node in 0..3 {
        let name = cluster.name_on(node, "job").await;
        let set = ["HSET", &name, JAVA, "1"];
        cluster.servers[node].command::<u32>(&set).await;
        names.push(name);
    }
    names.sort();
    let output = done_at(&cluster.url(), &["ls", "job*", "--json"]).await;
    let listed = objects(&output);
    let mut found: Vec<_> = listed
        .iter()
        .map(|lock| lock["name"].as_str().unwrap())
        .collect();
    found.sort_unstable();
    assert_eq!(found, names, "{}", text(&output.stderr));
    for name in &names {
        let output = done_at(&cluster.url(), &["show", name]).await;
        assert!(
            text(&output.stdout).contains(JAVA),
            "{}",
            text(&output.stderr)
        );
    }
}

/// An unfinished migration: of each lock, the hash or the queue has moved, and the rest has not.
#[tokio::test]
async fn locks_in_a_slot_that_migrates_are_listed_with_their_queues() {
    let cluster = Clustered::masters(2).await;
    let tag = cluster.name_on(0, "job").await;
    let names: Vec<_> = (10..50)
        .map(|number| format!("{{{tag}}}:{number}"))
        .collect();
    for name in &names {
        let queue = format!("redisson_lock_queue:{name}");
        for words in [&["HSET", name, JAVA, "1"][..], &["RPUSH", &queue, JAVA]] {
            cluster.servers[0].command::<u32>(words).await;
        }
    }
    let slot_move = cluster.begin_move(slot_of(&tag), 1).await;
    let moved: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(number, name)| match number % 2 {
            0 => name.clone(),
            _ => format!("redisson_lock_queue:{name}"),
        })
        .collect();
    cluster.move_some(slot_move, &moved).await;
    let output = done_at(&cluster.url(), &["ls", "{job*", "--json"]).await;
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    let listed = objects(&output);
    for name in &names {
        let lock = named(&listed, name);
        assert_eq!(
            (&lock["kind"], &lock["holder_count"], &lock["queue_length"]),
            (&json!("fair"), &json!(1), &json!(1)),
            "{lock}"
        );
        let output = done_at(&cluster.url(), &["show", name, "--kind", "fair"]).await;
        assert!(
            text(&output.stdout).contains(JAVA),
            "{}",
            text(&output.stdout)
        );
    }
    assert_eq!(listed.len(), names.len());
}

#[tokio::test]
async fn a_scan_that_a_change_of_the_cluster_cuts_short_is_repeated() {
    let options = ["--cluster-require-full-coverage", "no"];
    let cluster = Clustered::start_with(1, false, &options).await;
    let server = &cluster.servers[0];
    server.command::<u32>(&["HSET", "a", JAVA, "1"]).await;
    let slot = slot_of("a").to_string();
    // The server answers CLUSTERDOWN for the lock until the slot has an owner again.
    server.command::<()>(&["CLUSTER", "DELSLOTS", &slot]).await;
    server.reset_calls().await;
    let mut ls = rlock_at(&cluster.url(), &["ls", "--json"]);
    let ls = ls.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let ended = tokio::spawn(ls.unwrap().wait_with_output());
    let is_repeated = async || {
        ended.is_finished()
            || server
                .calls()
                .await
                .get("scan")
                .is_some_and(|scans| *scans > 1)
    };
    eventually("a second scan", GENEROUS, is_repeated).await;
    server.command::<()>(&["CLUSTER", "ADDSLOTS", &slot]).await;
    let output = ended.await.unwrap().unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    assert_eq!(named(&objects(&output), "a")["holder_count"], 1);
}

#[tokio::test]
async fn a_lock_of_another_kind_is_shown_by_its_kind() {
    let server = Server::start().await;
    server.command::<()>(&["SET", "simple", "mine"]).await;
    for words in [
        &["show", "simple"][..],
        &["unlock", "simple", "--force", "--yes"],
    ] {
        let output = done(&server, words).await;
        assert_eq!(code(&output), Some(70));
        let told = text(&output.stderr);
        assert!(told.contains("string") && told.contains("--kind"), "{told}");
    }
    let output = done(&server, &["show", "simple", "--kind", "simple"]).await;
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
}

/// Without a kind, `show` finds it in the data, and never calls a lock free that the other side holds.
#[tokio::test]
async fn a_lock_is_shown_by_the_kind_of_its_data() {
    let server = Server::start().await;
    server.command::<()>(&["SET", "simple", JAVA]).await;
    let write = format!("{JAVA}:write");
    let hold = ["HSET", "report", "mode", "write", &write, "1"];
    server.command::<u32>(&hold).await;
    for (words, line) in [
        (&["show", "simple"][..], "simple: taken"),
        (&["show", "report"], "report: taken"),
        (
            &["show", "report", "--kind", "read"],
            "report: taken by the write side",
        ),
    ] {
        let output = done(&server, words).await;
        let shown = text(&output.stdout);
        assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
        assert_eq!(shown.lines().next(), Some(line), "{shown}");
        assert!(shown.contains(JAVA), "{shown}");
    }
    server.command::<u32>(&["HSET", "user", "name", "5"]).await;
    let output = done(&server, &["show", "user"]).await;
    assert_eq!(code(&output), Some(70));
    let told = text(&output.stderr);
    assert!(told.contains("user is not a lock (hash)"), "{told}");
}

/// No client has the owner of a lock that is kept after its job.
#[tokio::test]
async fn a_lock_whose_job_is_done_is_listed_and_can_be_forced() {
    let server = Server::start().await;
    let client = redisson_lock::LockClient::connect(server.url());
    let client = client.await.unwrap();
    let locks = [
        client.reentrant_lock("reentrant").into_dyn(),
        client.simple_lock("simple").into_dyn(),
        client.read_write_lock("write").write().clone().into_dyn(),
    ];
    for lock in &locks {
        let ran = lock.run_at_least(GENEROUS * 10, async |_| 7).await;
        assert_eq!(ran.unwrap().ran(), Some(7));
    }
    let output = done(&server, &["ls", "--json"]).await;
    let listed = objects(&output);
    for kind in ["reentrant", "simple", "write"] {
        let lock = named(&listed, kind);
        assert_eq!(lock["kind"], kind);
        assert_eq!(lock["holders"][0]["owner"], "run_at_least:done");
        let forced = done(&server, &["unlock", kind, "--force", "--yes"]).await;
        assert_eq!(code(&forced), Some(0), "{}", text(&forced.stderr));
    }
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
}
