//! Compares the scripts with their models in the crate `model-server`: the same random calls of both, one after the other, on keys
//! that other programs change too. After each call the replies, the keys with their expiries, and the messages are the same.
//!
//! `MODEL_ROUNDS` sets the number of rounds, `MODEL_SEED` the first seed. A difference is shown with the fewest calls that
//! show it.

mod calls;
mod replies;
mod seeded;
mod sources;

use std::collections::BTreeSet;

use bytes::Bytes;
use model_server::Server as Model;

use super::{ConnectionId, Frame, Refusal, Server, Settings, Value};
use calls::{Action, Call, Draw, Step};
use sources::{Script, Sources};

/// The steps of a round. The next round begins without keys.
const STEPS: usize = 100;
/// So many rounds call every script with success.
const ENOUGH: u64 = 600;
/// The servers' clock when a round begins.
const EPOCH: i64 = 1_700_000_000_000;

/// A step that shows a difference.
#[derive(Debug)]
struct Difference {
    at: usize,
    what: String,
}

/// A server with the scripts, their models, and a subscriber of all channels at both.
struct Pair {
    server: Server,
    model: Model,
    now: i64,
    caller: ConnectionId,
    /// It subscribes to all channels.
    monitor: ConnectionId,
    /// It subscribes to some channels, so that scripts count different numbers of listeners.
    listener: ConnectionId,
    /// The messages to the monitor, for both servers.
    heard: [Vec<(Bytes, Bytes)>; 2],
}

impl Pair {
    fn new() -> Self {
        let mut server = Server::new(Settings::default());
        let [caller, monitor, listener] =
            ["10.0.0.1:1", "10.0.0.1:2", "10.0.0.1:3"].map(|from| server.open(from, EPOCH as u64));
        let mut pair = Self {
            server,
            model: Model::default(),
            now: EPOCH,
            caller,
            monitor,
            listener,
            heard: Default::default(),
        };
        pair.run(monitor, "PSUBSCRIBE", &[Bytes::from_static(b"*")]);
        pair.model.subscribe(monitor.0, Bytes::from_static(b"*"));
        pair
    }

    /// Runs a command at the server with the scripts.
    fn run(&mut self, connection: ConnectionId, name: &str, args: &[Bytes]) -> Frame {
        let mut deliveries = Vec::new();
        let now = self.now as u64;
        let reply = self
            .server
            .execute(connection, name, args, now, &mut deliveries);
        let to_monitor = deliveries
            .into_iter()
            .filter(|delivery| delivery.connection == self.monitor);
        let heard = to_monitor.map(|delivery| (delivery.channel, delivery.payload));
        self.heard[0].extend(heard);
        reply
    }

    /// Plays a step on both. Returns what differs afterwards.
    fn play(&mut self, step: &Step, scripts: &[Script]) -> Result<bool, String> {
        self.now += step.pause;
        self.model.keys.set_now(self.now);
        let mut is_good = false;
        match &step.action {
            Action::Foreign { key, change } => {
                for (name, args) in change.commands(key) {
                    self.run(self.caller, name, &args);
                }
                let present = self.model.keys.get(key);
                match change.value(present) {
                    Some((value, ends)) => self.model.keys.put(key.clone(), value, ends),
                    None => drop(self.model.keys.take(key)),
                }
            }
            Action::Listen { channel, on } => {
                let name = if *on { "SUBSCRIBE" } else { "UNSUBSCRIBE" };
                self.run(self.listener, name, std::slice::from_ref(channel));
                match on {
                    true => self.model.subscribe(self.listener.0, channel.clone()),
                    false => self.model.unsubscribe(self.listener.0, channel),
                }
            }
            Action::Call(call) => is_good = self.call(call, &scripts[call.script])?,
        }
        self.compare_keys()?;
        Ok(is_good)
    }

    /// Calls a script and its model. Returns whether an operation was done.
    fn call(&mut self, call: &Call, script: &Script) -> Result<bool, String> {
        self.server.settings.refusal = call.is_full.then_some(Refusal::OutOfMemory);
        self.model.keys.is_full = call.is_full;
        let writes = self.server.data.writes;
        let frame = self.run(self.caller, "EVAL", &script.words(&call.operations));
        self.server.settings.refusal = None;
        let wrote = self.server.data.writes > writes;
        let expected = self.model.call(script.model, &call.operations);
        let monitor = self.monitor.0;
        let messages = self.model.messages.drain(..);
        let to_monitor = messages.filter(|message| message.to == monitor);
        let heard = to_monitor.map(|message| (message.channel, message.payload));
        self.heard[1].extend(heard);
        let [heard, heard_of_model] = self.heard.each_mut().map(std::mem::take);
        if replies::read(&frame, call.operations.len()).as_ref() != Some(&expected) {
            return Err(format!("the reply is {frame:?}, of the model {expected:?}"));
        }
        if heard != heard_of_model {
            return Err(format!(
                "the messages are {heard:?}, of the model {heard_of_model:?}"
            ));
        }
        if wrote != self.model.keys.wrote() {
            return Err(format!("the script wrote: {wrote}, its model differs"));
        }
        Ok(expected.iter().any(|reply| reply.status == 0))
    }

    fn compare_keys(&self) -> Result<(), String> {
        let now = self.now as u64;
        let keys = self.server.data.database(0).expect("a database");
        let names = keys.names(b"*", now);
        let mut of_model: Vec<Bytes> = self.model.keys.all().map(|(key, ..)| key.clone()).collect();
        of_model.sort_unstable();
        if names != of_model {
            return Err(format!("the keys are {names:?}, of the model {of_model:?}"));
        }
        for name in names {
            let entry = keys.peek(&name, now).expect("a listed key");
            let (value, ends) = self.model.keys.get(&name).expect("a listed key");
            let own = plain(&entry.value);
            let own_ends = entry.expires_at.map(|ends| ends as i64);
            if own != *value || own_ends != ends {
                return Err(format!(
                    "{name:?} is {own:?} until {own_ends:?}, of the model {value:?} until {ends:?}"
                ));
            }
        }
        Ok(())
    }
}

/// A value in the model's type.
fn plain(value: &Value) -> model_server::Value {
    match value {
        Value::Text(text) => model_server::Value::Text(text.clone()),
        Value::Hash(fields) => model_server::Value::Hash(fields.iter().cloned().collect()),
        Value::List(list) => model_server::Value::List(list.clone()),
        Value::SortedSet(set) => {
            let members = set.iter().map(|member| (member.score, member.name.clone()));
            model_server::Value::Sorted(members.collect())
        }
    }
}

/// Plays steps from the beginning. Returns the names of the scripts that were done.
fn play(steps: &[Step], scripts: &[Script]) -> Result<BTreeSet<&'static str>, Difference> {
    let (mut pair, mut done) = (Pair::new(), BTreeSet::new());
    for (at, step) in steps.iter().enumerate() {
        let is_good = pair
            .play(step, scripts)
            .map_err(|what| Difference { at, what })?;
        if let (true, Action::Call(call)) = (is_good, &step.action) {
            done.insert(scripts[call.script].model.name);
        }
    }
    Ok(done)
}

/// Leaves out each step without which there is still a difference.
fn shrunk(mut steps: Vec<Step>, scripts: &[Script], mut last: Difference) -> String {
    steps.truncate(last.at + 1);
    for at in (0..steps.len()).rev() {
        let mut fewer = steps.clone();
        let left_out = fewer.remove(at);
        if let Some(next) = fewer.get_mut(at) {
            next.pause += left_out.pause;
        }
        if let Err(difference) = play(&fewer, scripts) {
            fewer.truncate(difference.at + 1);
            (steps, last) = (fewer, difference);
        }
    }
    let lines = steps.iter().map(|step| step.shown(scripts) + "\n");
    format!("{}{}", lines.collect::<String>(), last.what)
}

/// A round that shows a difference.
struct Found {
    seed: u64,
    steps: Vec<Step>,
    difference: Difference,
}

/// Plays the rounds of seeds. Returns the names of the scripts that were done.
fn rounds(
    seeds: std::ops::Range<u64>,
    scripts: &[Script],
) -> Result<BTreeSet<&'static str>, Found> {
    let mut done = BTreeSet::new();
    for seed in seeds {
        let mut draw = Draw::new(seed, scripts);
        let steps: Vec<Step> = (0..STEPS).map(|_| draw.step()).collect();
        match play(&steps, scripts) {
            Ok(more) => done.extend(more),
            Err(difference) => {
                return Err(Found {
                    seed,
                    steps,
                    difference,
                });
            }
        }
    }
    Ok(done)
}

#[test]
fn each_script_does_what_its_model_does() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let most = number("MODEL_ROUNDS").unwrap_or(ENOUGH);
    let first = number("MODEL_SEED").unwrap_or_else(|| fastrand::u64(..1 << 32));
    let scripts = Sources::read().scripts();
    let began = std::time::Instant::now();
    let done = rounds(first..first + most, &scripts).unwrap_or_else(|found| {
        let shown = shrunk(found.steps, &scripts, found.difference);
        panic!("MODEL_SEED={}\n{shown}", found.seed)
    });
    let steps = most * STEPS as u64;
    let rate = steps as f64 / began.elapsed().as_secs_f64();
    println!("{steps} steps, {rate:.0} a second");
    // Refusals alone compare little.
    let all = model_server::SCRIPTS.iter().map(|script| script.name);
    let missing: Vec<&str> = all.filter(|name| !done.contains(name)).collect();
    assert!(
        most < ENOUGH || missing.is_empty(),
        "never done: {missing:?}"
    );
}

#[test]
fn each_script_of_the_wire_has_a_model_and_the_reverse() {
    let used: BTreeSet<String> = Sources::read().names().collect();
    let models = model_server::SCRIPTS
        .iter()
        .map(|script| script.name.to_owned());
    assert_eq!(used, models.collect());
}
