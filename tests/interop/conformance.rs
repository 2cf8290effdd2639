//! The same steps, with Java alone and with Rust alone: after each, both have left the same data and said the same.

use std::collections::BTreeMap;
use std::fmt::Write;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Value, from_redis_value};
use testbed::{Peer, Server, eventually};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::kinds::Kind;
use crate::stage::{AMPLE, Case};

/// What is done, one after the other: a worker, a verb and what comes after the lock. `expired` waits until nothing of
/// the lock is left.
///
/// Two things that Redisson does are left out, as this crate does otherwise on purpose: a re-entry with a shorter lease
/// shortens the time that is left, and an unlock of an inner hold sets the lease that its own `RLock` object used last,
/// or the watchdog's, whatever the outer hold was taken for.
const STEPS: &[&str] = &[
    "a unlock",
    "a forceunlock",
    "a lock",
    "a lock",
    "a holdcount",
    "b trylock",
    "b trylock 100",
    "b trylock 100 60000",
    "b holdcount",
    "b unlock",
    "a trylock",
    "a unlock",
    "a unlock",
    "b islocked",
    "b unlock",
    "a unlock",
    "a unlock",
    "b islocked",
    // A fixed lease; a re-entry makes it longer.
    "a lock 60000",
    "b trylock",
    "a unlock",
    "b trylock 0 60000",
    "b lock 120000",
    "a unlock",
    "b trylock 0 120000",
    "b forceunlock",
    "b forceunlock",
    "b unlock",
    "b isheld",
    // Forced open by another while it was held twice.
    "a lock",
    "a lock",
    "b forceunlock",
    "a isheld",
    "a unlock",
    "b trylock",
    "a unlock",
    "b unlock",
    // A watched hold becomes one with a lease of its own, and the other way round.
    "a lock",
    "a lock 60000",
    "b trylock",
    "b forceunlock",
    "a lock 20000",
    "a lock",
    "b forceunlock",
    // A lease that runs out tells nobody.
    "a lock 1500",
    "a expired",
    "a islocked",
    "a unlock",
    "b trylock 0 1500",
    "a trylock 5000",
    "b unlock",
    "a unlock",
];

/// What is seen after a step.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    answer: String,
    keys: Vec<String>,
    messages: Vec<String>,
}

pub async fn every_step_leaves_the_same_data(case: Case) {
    let stage = case.own_stage(None).await;
    let alone = Server::start().await;
    let rust = crate::stage::rust_peer(&alone, None).await;
    let (java, rust) = tokio::join!(
        perform(&stage.server, &stage.java, case.kind),
        perform(&alone, &rust, case.kind)
    );
    let told: usize = java.iter().map(|seen| seen.messages.len()).sum();
    assert!(told > 0, "no message of Java's was seen");
    let table = table(&java, &rust);
    assert!(
        java == rust,
        "Redisson {} and Rust differ (!):\n{table}",
        case.redisson
    );
}

async fn perform(server: &Server, peer: &Peer, kind: &Kind) -> Vec<Seen> {
    let mut scene = Scene::on(server).await;
    let mut all = Vec::new();
    for step in STEPS {
        let words: Vec<&str> = step.split(' ').collect();
        let (label, verb) = (words[0], words[1]);
        let answer = if verb == "expired" {
            eventually(step, AMPLE, async || scene.keys().await.is_empty()).await;
            String::new()
        } else {
            let lock = format!("{}:{NAME}", kind.name);
            let answer = peer.ask(label, &[&[verb, &lock], &words[2..]].concat());
            match answer.await {
                Ok(values) => values.into_iter().next().unwrap_or_default(),
                Err(_) => "refused".to_owned(),
            }
        };
        let (keys, messages) = (scene.keys().await, scene.messages().await);
        let seen = Seen {
            answer,
            keys,
            messages,
        };
        all.push(scene.anonymous(peer, seen).await);
    }
    all
}

const NAME: &str = "order:42";
/// Ends the messages that were published before.
const MARK: &str = "the end of the step";

/// A server, looked at by somebody who takes no part.
struct Scene {
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
}

impl Scene {
    async fn on(server: &Server) -> Self {
        let client = Client::open(format!("{}/?protocol=resp3", server.url()));
        let (sender, pushes) = unbounded_channel();
        let settings = AsyncConnectionConfig::new()
            .set_push_sender(sender)
            .set_response_timeout(Some(AMPLE));
        let mut connection = client
            .expect("the address is good")
            .get_multiplexed_async_connection_with_config(&settings)
            .await
            .expect("the server is there");
        connection
            .psubscribe("*")
            .await
            .expect("it can be listened to");
        Self { connection, pushes }
    }

    async fn command<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let answer = command.query_async(&mut self.connection).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// All keys, with what is in them and how long they live.
    async fn keys(&mut self) -> Vec<String> {
        let mut names: Vec<String> = self.command(&["KEYS", "*"]).await;
        names.retain(|name| !name.starts_with("redisson_unlock_latch"));
        names.sort();
        let mut shown = Vec::new();
        for name in names {
            let kind: String = self.command(&["TYPE", &name]).await;
            let content = self.content(&name, &kind).await;
            let lease = self.command(&["PTTL", &name]).await;
            shown.push(format!("{name} ({kind}) {content} {}", class(lease)));
        }
        shown
    }

    async fn content(&mut self, name: &str, kind: &str) -> String {
        match kind {
            "none" => "gone meanwhile".to_owned(),
            "hash" => {
                let fields: BTreeMap<String, String> = self.command(&["HGETALL", name]).await;
                format!("{fields:?}")
            }
            "list" => {
                let items: Vec<String> = self.command(&["LRANGE", name, "0", "-1"]).await;
                format!("{items:?}")
            }
            "zset" => {
                // Not the scores: they are times.
                let items: Vec<String> = self.command(&["ZRANGE", name, "0", "-1"]).await;
                format!("{items:?}")
            }
            _ => self.command(&["GET", name]).await,
        }
    }

    /// What was published since the last call: channel and payload.
    async fn messages(&mut self) -> Vec<String> {
        self.command::<()>(&["PUBLISH", MARK, ""]).await;
        let mut messages = Vec::new();
        loop {
            let push = timeout(AMPLE, self.pushes.recv()).await;
            let push = push.expect("the mark comes").expect("it is connected");
            if push.kind != PushKind::PMessage {
                continue;
            }
            let [_, channel, payload] = &push.data[..] else {
                panic!("{push:?}");
            };
            let text = |value: &Value| from_redis_value(value.clone()).expect("it is text");
            let (channel, payload): (String, String) = (text(channel), text(payload));
            if channel == MARK {
                return messages;
            }
            messages.push(format!("{channel} <- {payload:?}"));
        }
    }

    /// With `<owner a>` and `<owner b>` for the owners, who differ from run to run.
    async fn anonymous(&self, peer: &Peer, mut seen: Seen) -> Seen {
        for label in ["a", "b"] {
            let number = peer.ask(label, &["threadid", "-"]).await;
            let number = number.expect("it has a number");
            let owner = format!("{}:{}", peer.client_id(), number[0]);
            let texts = seen.keys.iter_mut().chain(&mut seen.messages);
            for text in texts {
                *text = text.replace(&owner, &format!("<owner {label}>"));
            }
        }
        seen
    }
}

/// The lease that a key was last given, a few seconds ago at most.
fn class(pttl: i64) -> String {
    if pttl == -1 {
        return "without expiry".to_owned();
    }
    let leases = [20_000, 30_000, 60_000, 120_000];
    let given = leases
        .iter()
        .find(|&&lease| lease - 9_000 < pttl && pttl <= lease);
    match given {
        Some(lease) => format!("for {} s", lease / 1000),
        None if (0..=1_500).contains(&pttl) => "for 1.5 s".to_owned(),
        None => format!("for {pttl} ms"),
    }
}

/// All steps, with what both have left where they agree, and what each has left where they do not.
fn table(java: &[Seen], rust: &[Seen]) -> String {
    let mut text = String::new();
    for ((step, java), rust) in STEPS.iter().zip(java).zip(rust) {
        if java == rust {
            let _ = writeln!(text, "  {step:20} both: {}", shown(java));
        } else {
            let _ = writeln!(text, "! {step:20} Java: {}", shown(java));
            let _ = writeln!(text, "  {:20} Rust: {}", "", shown(rust));
        }
    }
    text
}

fn shown(seen: &Seen) -> String {
    format!("{:8} {:?} {:?}", seen.answer, seen.keys, seen.messages)
}
