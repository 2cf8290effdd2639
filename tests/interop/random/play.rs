//! One play of a schedule: four owners on one lock, each in Java or in Rust.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use testbed::Peer;
use testbed::peer::{Answer, Refused};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::ground::Ground;
use crate::stage::AMPLE;

use super::compare::Seen;
use super::rest::{self, MEMBERS};
use super::situation::{Family, Game, OWNERS, Step};
use super::state::Names;

/// The pause between two readings: how exactly the time of a change is known.
const POLL: Duration = Duration::from_millis(3);

pub struct Play<'a> {
    game: Game,
    server: &'a Ground,
    /// The threads and tasks that play the owners.
    players: [(&'a Peer, String); 4],
    names: Names,
    connection: MultiplexedConnection,
    pub asked: Vec<(Step, JoinHandle<Answer>)>,
    pub seen: Seen,
}

impl<'a> Play<'a> {
    /// A play whose threads and tasks have labels that begin so, two of each of two services.
    pub async fn new(
        game: Game,
        server: &'a Ground,
        services: [&'a Peer; 2],
        labels: &str,
    ) -> Self {
        let players = [0, 1, 2, 3].map(|owner| {
            let peer = services[owner / 2];
            (peer, format!("{labels}:{}:{owner}", services[0].name()))
        });
        let mut owners = Vec::new();
        for ((peer, label), owner) in players.iter().zip(OWNERS) {
            let number = peer.ask(label, &["threadid"]).await.expect("a number");
            let number = format!("{}:{}", peer.client_id(), number[0]);
            owners.push((number, owner.to_owned()));
        }
        Self {
            game,
            server,
            players,
            names: Names::new(testbed::unique_name(game.kind), owners),
            connection: server.first().await.admin().await,
            asked: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// Begins a step: sends the request of its owner, if it has one.
    pub async fn begin(&mut self, step: &Step) {
        self.read().await;
        self.seen.before = self.seen.after.clone();
        self.seen.answers.clear();
        if !step.only_waits() {
            self.ask(step.clone());
        }
    }

    /// Reads until every request is answered, or waits for a step of another owner. Returns whether that was so in time.
    pub async fn settle(&mut self, step: &Step) -> bool {
        // A lease that is renewed no longer ends meanwhile, and a waiter of Redisson asks again when it would have ended.
        let deadline = Instant::now() + 2 * AMPLE;
        while Instant::now() < deadline {
            self.read().await;
            let is_still = !self.collect().await;
            let is_over = rest::is_over(self.game, step, &self.seen);
            if is_still && is_over && self.all_wait().await {
                return true;
            }
            sleep(POLL).await;
        }
        false
    }

    async fn read(&mut self) {
        let next = self.seen.after.next(&mut self.connection, &self.names);
        self.seen.after = next.await;
    }

    /// Whether all requests without an answer wait for another owner, and can hear of its release.
    async fn all_wait(&self) -> bool {
        let mut asked = self.asked.iter();
        if !asked.all(|(step, _)| rest::waits(self.game, step, &self.seen.after)) {
            return false;
        }
        let waiting = self.asked.iter().map(|(step, _)| &self.players[step.owner]);
        let expected = match self.game.family {
            // They ask again and again.
            Family::Group => return true,
            _ if self.game.kind == "spin" => return true,
            // Each owner has a channel of its own.
            Family::Lock { queues: true, .. } => self.asked.len(),
            _ => BTreeSet::from_iter(waiting.clone().map(|(peer, _)| peer.client_id())).len(),
        };
        let channels = format!("*{}", self.names.lock());
        if self.server.listeners(&channels).await < expected as u64 {
            return false;
        }
        if self.game.family == Family::ReadWrite {
            // The message of a writer's release wakes Redisson's threads that have parked, and no later one.
            for (peer, label) in waiting.filter(|(peer, _)| peer.name() == "Java") {
                let parked = peer.ask("observer", &["isparked", label]).await;
                if parked.expect("an answer") != ["true"] {
                    return false;
                }
            }
        }
        true
    }

    /// Notes the answers that have come. Returns whether there were any.
    async fn collect(&mut self) -> bool {
        let asked = std::mem::take(&mut self.asked).into_iter();
        let (done, waiting): (Vec<_>, _) = asked.partition(|(_, answer)| answer.is_finished());
        self.asked = waiting;
        let any = !done.is_empty();
        for (step, answer) in done {
            let answer = answer.await.expect("the peer answers in time");
            if answer.as_ref().is_err_and(is_too_slow) {
                self.ask(step);
                continue;
            }
            let answer = answer.map(|values| self.shown(&step, &values));
            let answer = answer.unwrap_or_else(|refused| refusal(&refused));
            self.seen.answers.push((step.owner, answer));
        }
        self.seen.answers.sort();
        any
    }

    fn ask(&mut self, step: Step) {
        let (kind, lock, verb) = (self.game.kind, self.names.lock(), step.verb());
        let member = |member: &str| format!("{member}:{lock}:{member}");
        let target = match (self.game.family, step.side()) {
            (Family::Group, "") => format!("{kind}:{}", MEMBERS.map(member).join(",")),
            (Family::Group, side) => member(side),
            (_, "") => format!("{kind}:{lock}"),
            (_, side) => format!("{side}:{lock}"),
        };
        let mut request = match self.game.family {
            Family::Semaphore | Family::Expirable | Family::Latch => vec!["sync", kind, lock, verb],
            _ => vec![verb, &target],
        };
        let words = step.words[1..].iter().map(|word| self.names.permits(word));
        let words: Vec<_> = words.collect();
        request.extend(words.iter().map(String::as_str));
        let (peer, label) = &self.players[step.owner];
        let answer = tokio::spawn(peer.ask(label, &request));
        self.asked.push((step, answer));
    }

    /// An answer in the words that both languages share.
    fn shown(&mut self, step: &Step, values: &[String]) -> String {
        let first = values.first().map_or("", String::as_str);
        match values.get(3) {
            Some(token) if step.acquires() => return format!("{first} {token}"),
            _ if first.is_empty() => return "ok".to_owned(),
            _ => {}
        }
        if step.verb().to_lowercase().contains("acquire") {
            for id in first.split(',').filter(|id| id.len() == 32) {
                self.names.push(id);
            }
        }
        self.names.common(first)
    }
}

/// Whether a busy machine was too slow for the request to be answered, or for its owner to subscribe, within its wait. The lock was
/// not acquired, or is released.
fn is_too_slow(Refused { class, message }: &Refused) -> bool {
    class == "Unavailable" || message.contains("Unable to acquire subscription lock")
}

fn refusal(refused: &Refused) -> String {
    let Refused { class, message } = refused;
    let reason = match &class[..] {
        "IllegalMonitorStateException" if message.contains("non-reentrant") => "held already",
        "AlreadyHeld" => "held already",
        "IllegalMonitorStateException" | "NotHeld" | "Lost" => "not held",
        "WouldDeadlock" => "would deadlock",
        _ => return format!("failed: {refused}"),
    };
    format!("refused: {reason}")
}
