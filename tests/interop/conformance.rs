//! The same steps in Java and in Rust, each with its own lock. After each step, both have left the
//! same data and given the same answer. Intended differences of this crate are in the
//! [kind](crate::kinds) or the [step](crate::steps).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Value, from_redis_value};
use testbed::peer::Answer;
use testbed::{Peer, eventually, unique_name};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use crate::ground::Ground;
use crate::kinds::{Kind, Waits};
use crate::stage::{AMPLE, Case, Stage};
use crate::worker::{Lock, Worker};

/// The state after a step.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    answer: String,
    keys: Vec<String>,
    messages: Vec<String>,
}

pub async fn every_step_leaves_the_same_data(case: Case) {
    let stage = &*case.stage().await;
    let (mut published_by_java, mut published_by_rust) = (0, 0);
    for steps in case.kind.steps {
        let (mut java, mut rust) = tokio::join!(
            Scene::played(stage, &stage.java, case.kind, steps),
            Scene::played(stage, &stage.rust, case.kind, steps)
        );
        published_by_java += java.iter().map(|seen| seen.messages.len()).sum::<usize>();
        published_by_rust += rust.iter().map(|seen| seen.messages.len()).sum::<usize>();
        let mut before = Vec::new();
        for (step, (java, rust)) in steps.iter().zip(java.iter_mut().zip(&mut rust)) {
            allow(case.kind, step, java, rust);
            let is_inside = before.iter().any(|key: &String| key.contains(RENEWED));
            if (rust.keys == before || is_inside) && were_renewed(&java.keys, &rust.keys) {
                java.keys.clone_from(&rust.keys);
            }
            before.clone_from(&rust.keys);
        }
        let table = table(steps, &java, &rust);
        assert!(
            java == rust,
            "{}: Redisson {} and Rust differ (!):\n{table}",
            case.kind.name,
            case.version
        );
    }
    assert!(published_by_rust > 0, "no message was published");
    assert!(published_by_java > 0 || case.kind.java_is_silent);
}

/// Removes the allowed differences.
fn allow(kind: &Kind, step: &str, java: &mut Seen, rust: &mut Seen) {
    if let Some((_, message)) = step.split_once(" | rust also says ") {
        java.messages.push(message.to_owned());
    }
    if kind.java_is_silent {
        let unlocks = step.ends_with("unlock") && rust.answer != "refused";
        let frees = unlocks && rust.answer != "false" && rust.keys.is_empty();
        let message = format!("{} <- 0", (kind.channel)(NAME));
        java.messages.extend(frees.then_some(message));
    }
    if kind.unlock_forgives && step.contains("unlock") && rust.answer == "refused" {
        java.answer.clone_from(&rust.answer);
        java.messages.clone_from(&rust.messages);
    }
}

/// The lease of a hold that is renewed.
const RENEWED: &str = " for 30 s";

/// Whether Redisson's watchdog has shortened a lease, as it does at any time when a hold with a longer lease is inside a renewed one.
fn were_renewed(java: &[String], rust: &[String]) -> bool {
    let renewed = |key: &String| {
        key.replace(" for 60 s", RENEWED)
            .replace(" for 120 s", RENEWED)
    };
    java == rust.iter().map(renewed).collect::<Vec<_>>()
}

const NAME: &str = "NAME";
const LABELS: [&str; 4] = ["a", "b", "c", "d"];

/// A lock, and a client that reads its data and takes no part.
struct Scene<'a> {
    stage: &'a Stage,
    kind: &'static Kind,
    name: String,
    workers: BTreeMap<&'static str, Worker<'a>>,
    owners: BTreeMap<&'static str, String>,
    begun: BTreeMap<&'static str, Pending>,
    connection: MultiplexedConnection,
    pushes: UnboundedReceiver<PushInfo>,
}

type Pending = std::pin::Pin<Box<dyn Future<Output = Answer> + Send>>;

impl<'a> Scene<'a> {
    async fn played(
        stage: &'a Stage,
        peer: &'a Peer,
        kind: &'static Kind,
        steps: &[&str],
    ) -> Vec<Seen> {
        let mut scene = Self::with(stage, peer, kind).await;
        let mut all = Vec::new();
        for step in steps {
            let (actions, _) = step.split_once(" | ").unwrap_or((step, ""));
            let mut answer = String::new();
            for action in actions.split("; ") {
                answer = scene.act(action).await;
            }
            let (keys, messages) = (scene.keys().await, scene.messages().await);
            all.push(Seen {
                answer,
                keys,
                messages,
            });
        }
        all
    }

    async fn with(stage: &'a Stage, peer: &'a Peer, kind: &'static Kind) -> Self {
        let name = unique_name(kind.name);
        let lock = Lock {
            name: (kind.lock)(&name),
            kind,
        };
        let workers = BTreeMap::from(LABELS.map(|label| (label, lock.worker(peer))));
        let mut owners = BTreeMap::new();
        for (label, worker) in &workers {
            owners.insert(*label, worker.owner().await);
        }
        let (connection, pushes) = listener(&stage.server).await;
        Self {
            stage,
            kind,
            workers,
            owners,
            begun: BTreeMap::new(),
            name,
            connection,
            pushes,
        }
    }

    /// Executes the actions of a step, and returns the answer.
    async fn act(&mut self, action: &str) -> String {
        let words: Vec<&str> = action.split(' ').collect();
        let (&label, worker) = self.workers.get_key_value(words[0]).expect("a worker");
        let answer = match &words[1..] {
            [verb] if verb.ends_with("expired") => {
                let exists = ["EXISTS", &worker.lock.name];
                eventually(action, AMPLE, async || {
                    self.stage.server.command::<u64>(&exists).await == 0
                })
                .await;
                return String::new();
            }
            ["begin", verb, args @ ..] => {
                self.begun
                    .insert(label, Box::pin(worker.ask_for(verb, args)));
                self.waits(label).await;
                return String::new();
            }
            ["end"] => {
                self.begun
                    .remove(label)
                    .expect("the action has begun")
                    .await
            }
            [verb, args @ ..] => worker.ask_for(verb, args).await,
            [] => panic!("no verb: {action}"),
        };
        match answer {
            Ok(values) => {
                let answer = values.into_iter().next().unwrap_or_default();
                if words[1] == "trylock" && answer == "false" {
                    self.leaves(label).await;
                }
                answer
            }
            Err(refused) => {
                println!("{action}: {refused}");
                "refused".to_owned()
            }
        }
    }

    /// Waits until a worker that timed out is in no queue. The Rust peer leaves it in the
    /// background.
    async fn leaves(&self, label: &str) {
        let pattern = format!("redisson_lock_queue:*{}*", self.name);
        eventually("the worker's entry is gone", AMPLE, async || {
            let server = &self.stage.server;
            let mut waiting: Vec<String> = Vec::new();
            for queue in server.command::<Vec<String>>(&["KEYS", &pattern]).await {
                let here: Vec<String> = server.command(&["LRANGE", &queue, "0", "-1"]).await;
                waiting.extend(here);
            }
            !waiting.contains(&self.owners[label])
        })
        .await;
    }

    /// Waits until a worker waits for the lock.
    async fn waits(&self, label: &str) {
        let worker = &self.workers[label];
        if self.kind.waits != Waits::Queued {
            return self.stage.waiting(&worker.lock).await;
        }
        let owner = &self.owners[label];
        let queue = format!("redisson_lock_queue:{{{}}}", self.name);
        eventually("the worker is the last in the queue", AMPLE, async || {
            let last: Option<String> = self.stage.server.command(&["LINDEX", &queue, "-1"]).await;
            last.as_ref() == Some(owner)
        })
        .await;
    }

    async fn command<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let answer = command.query_async(&mut self.connection).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// All keys of the lock, with their data and lifetimes.
    async fn keys(&mut self) -> Vec<String> {
        let pattern = format!("*{}*", self.name);
        let mut names: Vec<String> = self.command(&["KEYS", &pattern]).await;
        // The intent of a writer of this crate concerns only this crate's readers.
        names.retain(|name| !name.contains(":write_intent"));
        names.retain(|name| !name.starts_with("redisson_unlock_latch"));
        let mut shown = Vec::new();
        for name in names {
            let kind: String = self.command(&["TYPE", &name]).await;
            let content = self.content(&name, &kind).await;
            let lease: i64 = self.command(&["PTTL", &name]).await;
            let once = !content.contains(":write") || content.contains(":write\": \"1\"");
            let differs = !once || name.starts_with("redisson_lock_token");
            let lease = if differs && self.kind.leases_differ {
                "for some time".to_owned()
            } else {
                class(lease)
            };
            let name = self.anonymous(&name);
            shown.push(format!("{name} ({kind}) {content} {lease}"));
        }
        shown.sort();
        shown
    }

    async fn content(&mut self, name: &str, kind: &str) -> String {
        match kind {
            "none" => "deleted meanwhile".to_owned(),
            "hash" => {
                let fields: BTreeMap<String, String> = self.command(&["HGETALL", name]).await;
                let fields = fields
                    .iter()
                    .map(|(field, value)| (self.anonymous(field), value));
                format!("{:?}", fields.collect::<BTreeMap<_, _>>())
            }
            "list" => {
                let items: Vec<String> = self.command(&["LRANGE", name, "0", "-1"]).await;
                self.anonymous(&format!("{items:?}"))
            }
            "zset" => {
                // Scores are times, and a waiter of this crate moves its own, so only members are compared. The queue has their order.
                let items: Vec<String> = self.command(&["ZRANGE", name, "0", "-1"]).await;
                let members = items.iter().map(|item| self.anonymous(item));
                format!("{:?}", members.collect::<BTreeSet<_>>())
            }
            _ => self.command(&["GET", name]).await,
        }
    }

    /// The messages since the last call: channel and payload.
    async fn messages(&mut self) -> Vec<String> {
        let mark = format!("the end of the step: {}", self.name);
        self.command::<()>(&["PUBLISH", &mark, ""]).await;
        let mut messages = Vec::new();
        loop {
            let push = timeout(AMPLE, self.pushes.recv()).await;
            let push = push
                .expect("the mark arrives")
                .expect("the connection is open");
            if push.kind != PushKind::PMessage {
                continue;
            }
            let [_, channel, payload] = &push.data[..] else {
                panic!("{push:?}");
            };
            let text = |value: &Value| from_redis_value(value.clone()).expect("the value is text");
            let (channel, payload): (String, String) = (text(channel), text(payload));
            if channel == mark {
                if self.kind.is_group() {
                    // The members of a group are released in any order.
                    messages.sort();
                }
                return messages;
            }
            if channel.contains(&self.name) {
                messages.push(self.anonymous(&format!("{channel} <- {payload}")));
            }
        }
    }

    /// Replaces the name with `NAME` and owners with `<owner a>` and so on, because they differ
    /// from run to run.
    fn anonymous(&self, text: &str) -> String {
        let mut text = text.replace(&self.name, NAME);
        for (label, owner) in &self.owners {
            let mut parts = text.split(owner);
            let mut shown = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                // Another owner's number may have this one's as a prefix.
                if part.starts_with(|next: char| next.is_ascii_digit()) {
                    shown += owner;
                } else {
                    let _ = write!(shown, "<owner {label}>");
                }
                shown += part;
            }
            text = shown;
        }
        text
    }
}

/// A connection for commands, and the messages published meanwhile.
async fn listener(server: &Ground) -> (MultiplexedConnection, UnboundedReceiver<PushInfo>) {
    let client = Client::open(format!("{}/?protocol=resp3", server.url()));
    let (sender, pushes) = unbounded_channel();
    let settings = AsyncConnectionConfig::new()
        .set_push_sender(sender)
        .set_response_timeout(Some(AMPLE));
    let mut connection = client
        .expect("the address is good")
        .get_multiplexed_async_connection_with_config(&settings)
        .await
        .expect("the server runs");
    connection
        .psubscribe("*")
        .await
        .expect("the server accepts the subscription");
    (connection, pushes)
}

/// The lease that a key was given a few seconds ago at most.
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
        None if (0..=4_000).contains(&pttl) => "for 4 s".to_owned(),
        None => format!("for {pttl} ms"),
    }
}

/// All steps: the common state where both agree, else the state of each.
fn table(steps: &[&str], java: &[Seen], rust: &[Seen]) -> String {
    let mut text = String::new();
    for ((step, java), rust) in steps.iter().zip(java).zip(rust) {
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
