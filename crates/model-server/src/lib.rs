//! A server without frames, connections and Lua: every script of `src/wire` once more, in Rust on plain data.
//!
//! [`Server::call`] runs operations of one script on a key space with expiries, and collects the messages. Time is an input, and
//! nothing is random. The differential test of the in-memory server compares each script with its Lua: replies, keys, expiries,
//! messages. The simulator plays histories on this server.
//!
//! Left out: rights, and the script texts of a slot that arrives at another node. Arguments are those that `src/wire` writes, so an
//! argument that is no decimal number only fails its operation.

mod exclusive;
mod fair;
mod keys;
mod numbers;
mod permits;
mod read_write;
mod scripts;

use std::collections::BTreeMap;

use bytes::Bytes;

pub use keys::{Keys, Value};
pub use scripts::{SCRIPTS, Script};

/// One operation: its keys, then its arguments.
pub type Operation = Vec<Bytes>;

/// The data of a server, and the subscribers of its channels.
#[derive(Debug, Clone, Default)]
pub struct Server {
    /// The keys.
    pub keys: Keys,
    subscribers: BTreeMap<Bytes, Vec<u64>>,
    /// The messages since the caller last took them.
    pub messages: Vec<Message>,
}

/// A message for one subscriber.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The subscriber's number.
    pub to: u64,
    /// The channel.
    pub channel: Bytes,
    /// The content.
    pub payload: Bytes,
}

/// The reply to an operation, by the numbers of `lua/batch.lua`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// 0 done, 1 busy, 2 absent, 3 wrong kind, 4 failed.
    pub status: i64,
    /// What follows the status.
    pub detail: Detail,
}

/// The detail of a [`Reply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// A status alone.
    Nothing,
    /// A number.
    Number(i64),
    /// A text.
    Text(Bytes),
    /// Several numbers.
    Numbers(Vec<i64>),
}

/// Why an operation ends early.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stop {
    /// A key has a value of another type.
    WrongType,
    /// A command is refused, or the script raises an error.
    Failed(&'static str),
}

type Step<T> = Result<T, Stop>;

const DONE: Reply = Reply {
    status: 0,
    detail: Detail::Nothing,
};
const ABSENT: Reply = Reply {
    status: 2,
    detail: Detail::Number(0),
};

fn done(detail: Detail) -> Reply {
    Reply { status: 0, detail }
}

fn busy(remaining: i64) -> Reply {
    Reply {
        status: 1,
        detail: Detail::Number(remaining),
    }
}

fn wrong_kind(found: &'static str) -> Reply {
    Reply {
        status: 3,
        detail: Detail::Text(Bytes::from_static(found.as_bytes())),
    }
}

impl Server {
    /// Runs operations of one script, one after the other. The failure of one does not affect the next.
    pub fn call(&mut self, script: &Script, operations: &[Operation]) -> Vec<Reply> {
        self.keys.begin_call();
        let run = |parts: &Operation| match script.run(self, parts) {
            Ok(reply) => reply,
            Err(Stop::WrongType) => self.type_found(script, parts),
            Err(Stop::Failed(message)) => Reply {
                status: 4,
                detail: Detail::Text(Bytes::from_static(message.as_bytes())),
            },
        };
        operations.iter().map(run).collect()
    }

    fn type_found(&mut self, script: &Script, parts: &Operation) -> Reply {
        let found = parts.first().and_then(|lock| self.keys.type_of(lock));
        match found {
            Some(found) if script.keys == 1 || found != "hash" => wrong_kind(found),
            _ => wrong_kind("another type in a further key of the lock"),
        }
    }

    /// Subscribes to a channel; to `*`, which stands for every channel, as well.
    pub fn subscribe(&mut self, subscriber: u64, channel: Bytes) {
        let subscribers = self.subscribers.entry(channel).or_default();
        if !subscribers.contains(&subscriber) {
            subscribers.push(subscriber);
        }
    }

    /// Ends a subscription.
    pub fn unsubscribe(&mut self, subscriber: u64, channel: &[u8]) {
        if let Some(subscribers) = self.subscribers.get_mut(channel) {
            subscribers.retain(|other| *other != subscriber);
            if subscribers.is_empty() {
                self.subscribers.remove(channel);
            }
        }
    }

    /// The channels with subscribers.
    pub fn channels(&self) -> impl Iterator<Item = &Bytes> {
        self.subscribers.keys()
    }

    /// Sends a message to the subscribers of a channel, and returns their number.
    fn publish(&mut self, channel: &Bytes, payload: impl Into<Bytes>) -> i64 {
        let (payload, before) = (payload.into(), self.messages.len());
        let ways = [
            self.subscribers.get(channel),
            self.subscribers.get(&b"*"[..]),
        ];
        let subscribers = ways.into_iter().flatten().flatten();
        self.messages.extend(subscribers.map(|to| Message {
            to: *to,
            channel: channel.clone(),
            payload: payload.clone(),
        }));
        (self.messages.len() - before) as i64
    }
}
