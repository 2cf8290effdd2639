//! The keys that scripts declare and touch: some servers refuse a script that touches another one
//! (docs/protocol.md, section 2).

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use redis::aio::MultiplexedConnection;
use redisson_lock::Config;
use testbed::Server;

use super::lives::Lives;
use crate::{
    rights::steps,
    witness::{Monitor, connect},
};

/// The scripts of all operations.
fn scripts() -> Vec<String> {
    let folder = format!("{}/lua", env!("CARGO_MANIFEST_DIR"));
    let names = fs::read_dir(folder).unwrap().map(|file| {
        let name = file.unwrap().file_name().into_string().unwrap();
        name.trim_end_matches(".lua").to_owned()
    });
    names
        .filter(|name| steps::lua(name).contains("local function operation("))
        .collect()
}

/// The words of a line of the log, and whether a script ran them.
fn words(line: &str) -> (bool, Vec<&str>) {
    let (head, words) = line
        .split_once("] \"")
        .unwrap_or_else(|| panic!("not a line of the log: {line}"));
    let words = words.strip_suffix('"').unwrap_or(words).split("\" \"");
    (head.ends_with(" lua"), words.collect())
}

/// The keys of a command, as the server knows them.
async fn keys_of(admin: &mut MultiplexedConnection, words: &[&str]) -> Vec<String> {
    if let [_keyless] = words {
        return Vec::new();
    }
    let mut command = redis::cmd("COMMAND");
    command.arg("GETKEYS").arg(words);
    let keys = command.query_async(admin).await;
    match keys {
        Ok(keys) => keys,
        Err(error) if crate::in_full(&error).contains("no key arguments") => Vec::new(),
        Err(error) => panic!("{words:?}: {error}"),
    }
}

/// Which readers have markers, and how many, only the lock's hash says. Redisson does not declare
/// these keys either.
const UNDECLARED: [&str; 5] = [
    "holders",
    "read_acquire",
    "read_release",
    "read_renew",
    "write_release",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_declare_all_keys_but_the_markers_of_readers() {
    let server = Server::start().await;
    let mut names = BTreeMap::new();
    let all = scripts();
    for script in &all {
        // A spin lock may have to go without messages.
        for more in [None, Some("unannounced")] {
            let mut files: Vec<&str> = steps::files(script).collect();
            files.splice(1..1, more);
            let text: String = files.into_iter().map(steps::lua).collect();
            let sha: String = server.command(&["SCRIPT", "LOAD", &text]).await;
            names.insert(sha, script.as_str());
        }
    }
    let connect = async || connect(&server.url(), Config::default()).await;
    let (one, other) = (connect().await, connect().await);
    let mut monitor = Monitor::start(server.port()).await;
    let server = &server;
    Lives { server, one, other }.all().await;

    let mut admin = server.admin().await;
    let (mut declared, mut script) = (BTreeSet::new(), "");
    let (mut seen, mut undeclared) = (BTreeSet::new(), BTreeMap::<_, Vec<_>>::new());
    for line in monitor.lines().await {
        // The rest are answers to the log's reader.
        if !line.starts_with('+') {
            continue;
        }
        let (is_inner, words) = words(&line);
        match (is_inner, words[0]) {
            (false, "EVALSHA") => {
                let keys: usize = words[2].parse().unwrap();
                declared = words[3..3 + keys]
                    .iter()
                    .map(|key| (*key).to_owned())
                    .collect();
                script = names[words[1]];
                seen.insert(script);
            }
            // The question whether scripts may publish.
            (false, "EVAL") if words[1].contains("acl_check_cmd") => {}
            (false, "EVAL") => panic!("a script of other files: {line}"),
            (false, _) => {}
            (true, _) => {
                for key in keys_of(&mut admin, &words).await {
                    if !declared.contains(&key) {
                        undeclared.entry(script).or_default().push(key);
                    }
                }
            }
        }
    }
    assert_eq!(seen.len(), all.len(), "not all scripts have run: {seen:?}");
    let markers = |key: &String| key.contains(":rwlock_timeout:");
    for (script, keys) in &mut undeclared {
        keys.retain(|key| !markers(key));
        assert_eq!(
            keys[..],
            [""; 0],
            "{script} touches these without declaring them"
        );
    }
    assert!(undeclared.keys().eq(&UNDECLARED), "{undeclared:?}");
}
