//! Holds the explorer's server against the models of the scripts: random calls, and after each one the answers, the messages and the data.

#[path = "server/permits.rs"]
mod permits;

use std::time::Duration;

use bytes::Bytes;
use explorer::{
    core::{
        facts::{Answer, Request, Wait},
        keys::Owner,
    },
    server::{Data, Heard, Holder},
    system::{System, TICK},
    systems,
};
use model_server::{Detail, Operation, Reply, Script, Server, Value};

const LOCK: &str = "lock";
const QUEUE: &str = "queue";
const PLACES: &str = "places";
const CHANNEL: &str = "channel";
const CALLS: usize = 20_000;
/// A tick in ms: as long as a notified head keeps its place.
const TICK_MS: u64 = 500;
/// How far a tick moves the clock of the scripts: a lease of a tick has ended then.
const PASSES: i64 = TICK_MS as i64 + 1;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

/// The owner's field: the first part is its client's.
fn name((client, owner): Holder) -> String {
    format!("{client:036}:{:08}", owner.0)
}

fn holder_of(name: &[u8]) -> Holder {
    let number = |digits| str::from_utf8(digits).unwrap().parse().unwrap();
    let owner: u64 = number(&name[37..]);
    (number(&name[..36]) as u8, Owner(owner))
}

fn in_ticks(ms: i64) -> u8 {
    (ms.max(0) as u64).div_ceil(TICK_MS) as u8
}

fn ms(span: Duration) -> String {
    (span.as_nanos() * u128::from(TICK_MS) / TICK.as_nanos()).to_string()
}

/// A lock at both servers.
struct Both {
    system: System,
    data: Data,
    server: Server,
    now: i64,
}

impl Both {
    fn new(name: &str) -> Self {
        let mut systems = systems::small().into_iter();
        let mut server = Server::default();
        server.subscribe(0, Bytes::from_static(b"*"));
        server.keys.set_now(PASSES);
        Self {
            system: systems.find(|system| system.name == name).unwrap(),
            data: Data::default(),
            server,
            now: PASSES,
        }
    }

    /// The script of a request, and its parts.
    fn script(&self, from: Holder, request: Request) -> (&'static str, Vec<String>) {
        let is_fair = self.system.limits.is_fair;
        let place = ms(TICK * u32::from(self.system.place));
        let (owner, lock, queue) = (name(from), LOCK.to_owned(), QUEUE.to_owned());
        let (places, channel) = (PLACES.to_owned(), CHANNEL.to_owned());
        match request {
            Request::Acquire { holds, lease, wait } if is_fair => {
                let waited = wait.map_or("-1".to_owned(), |wait| ms(wait.since_last));
                let notifies = u8::from(wait.is_some_and(|wait| wait.notify_head)).to_string();
                let (lease, holds, timeout) = (ms(lease), holds.to_string(), place.clone());
                let line = vec![lock, queue, places, owner, lease, holds];
                let wait = vec![waited, place, timeout, channel, notifies];
                ("fair_acquire", [line, wait].concat())
            }
            Request::Acquire { holds, lease, .. } => {
                let parts = vec![lock, owner, ms(lease), holds.to_string()];
                ("reentrant_acquire", parts)
            }
            Request::Release { holds, lease } if is_fair => {
                let line = vec![lock, queue, places, owner, holds.to_string()];
                (
                    "fair_release",
                    [line, vec![ms(lease), place, channel]].concat(),
                )
            }
            Request::Release { holds, lease } => {
                let parts = vec![lock, owner, holds.to_string(), ms(lease), channel];
                ("reentrant_release", parts)
            }
            Request::Abandon => ("fair_abandon", vec![queue, places, owner, channel]),
            Request::Renew { lease } => ("reentrant_renew", vec![lock, owner, ms(lease)]),
        }
    }

    fn call(&mut self, script: &str, parts: Vec<String>) -> (Reply, Heard) {
        let script = Script::named(script).unwrap();
        let operation: Operation = parts.into_iter().map(Bytes::from).collect();
        let reply = self.server.call(script, &[operation]).remove(0);
        let channels: Vec<Bytes> = std::mem::take(&mut self.server.messages)
            .into_iter()
            .map(|message| message.channel)
            .collect();
        let heard = match &channels[..] {
            [] => Heard::None,
            [channel] if channel == CHANNEL => Heard::All,
            [channel] => Heard::One(holder_of(&channel[CHANNEL.len() + 1..])),
            several => panic!("several messages: {several:?}"),
        };
        (reply, heard)
    }

    fn request(&mut self, from: Holder, request: Request) {
        let (script, parts) = self.script(from, request);
        let (reply, heard) = self.call(script, parts);
        let answer = match (reply.status, reply.detail) {
            (0, _) => Answer::Done,
            (1, Detail::Number(remaining)) => Answer::Busy {
                remaining: (remaining >= 0).then(|| TICK * u32::from(in_ticks(remaining))),
            },
            (2, _) => Answer::Absent,
            other => panic!("{other:?}"),
        };
        let ours = self.data.run(from, request, &self.system);
        assert_eq!(ours, (answer, heard), "{request:?} of {from:?}");
    }

    /// Whether the place of an owner has ended behind the head. The explorer does not keep for how long: the next one may last longer than that of
    /// the script.
    fn is_late(&self, owner: Holder) -> bool {
        let mut behind = self.data.queue.iter().skip(1);
        behind.any(|place| place == (owner, 0))
    }

    fn force(&mut self) {
        if self.data.holder.is_none() {
            return;
        }
        let (lock, channel) = (LOCK.to_owned(), CHANNEL.to_owned());
        let (_, heard) = match self.system.limits.is_fair {
            true => self.call("fair_force_release", vec![lock, QUEUE.to_owned(), channel]),
            false => self.call("reentrant_force_release", vec![lock, channel]),
        };
        assert_eq!(self.data.heard(&self.system), heard);
        self.data.free();
    }

    fn tick(&mut self) {
        self.now += PASSES;
        self.server.keys.set_now(self.now);
        self.data.tick();
    }

    /// Both have the same holder and the same queue.
    fn compare(&self) {
        let lock = self.server.keys.get(LOCK.as_bytes()).map(|(value, ends)| {
            let Value::Hash(fields) = value else {
                panic!("{value:?}")
            };
            let [(owner, holds)] = &fields[..] else {
                panic!("{fields:?}")
            };
            let holds = str::from_utf8(holds).unwrap().parse().unwrap();
            (holder_of(owner), holds, in_ticks(ends.unwrap() - self.now))
        });
        let Data {
            holder,
            holds,
            left,
            ..
        } = self.data;
        assert_eq!(holder.map(|holder| (holder, holds, left)), lock);
        let waiters = match self.server.keys.get(QUEUE.as_bytes()) {
            Some((Value::List(waiters), _)) => waiters.iter().cloned().collect(),
            _ => Vec::new(),
        };
        let left = |waiter: &Bytes| match self.server.keys.get(PLACES.as_bytes()) {
            Some((Value::Sorted(places), _)) => {
                let mut places = places.iter().filter(|(_, other)| other == waiter);
                let (until, _) = places.next().expect("a waiter has a place");
                in_ticks(*until as i64 - self.now)
            }
            _ => panic!("a waiter has no place"),
        };
        let places = waiters
            .iter()
            .map(|waiter| (holder_of(waiter), left(waiter)));
        assert_eq!(
            self.data.queue.iter().collect::<Vec<_>>(),
            places.collect::<Vec<_>>()
        );
    }
}

fn any_request(random: &mut Random, is_fair: bool) -> Request {
    let lease = TICK * (1 + random.below(8) as u32);
    let holds = random.below(4) as u32;
    let wait = (is_fair && random.below(4) > 0).then(|| Wait {
        since_last: TICK * random.below(9) as u32,
        notify_head: random.below(2) == 0,
    });
    match random.below(8) {
        0..4 => Request::Acquire {
            holds: if random.below(3) > 0 { 1 } else { holds.max(1) },
            lease,
            wait: wait.filter(|_| holds < 2),
        },
        4 | 5 => Request::Release {
            holds: if random.below(2) > 0 { 0 } else { holds },
            lease,
        },
        6 if is_fair => Request::Abandon,
        _ => Request::Renew { lease },
    }
}

fn agree(name: &str, seed: u64) {
    let (mut both, mut random) = (Both::new(name), Random(seed));
    for _ in 0..CALLS {
        let from = (random.below(2) as u8, Owner(random.below(2)));
        match random.below(20) {
            0..4 => both.tick(),
            4 => both.force(),
            _ => {
                let request = any_request(&mut random, both.system.limits.is_fair);
                if !both.is_late(from) {
                    both.request(from, request);
                }
            }
        }
        both.compare();
    }
}

#[test]
fn a_lock_is_that_of_the_scripts() {
    agree("pair", 0x5eed_0001);
}

#[test]
fn a_fair_lock_is_that_of_the_scripts() {
    agree("fair-pair", 0x5eed_0002);
}
