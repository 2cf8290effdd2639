//! The Lua scripts of `lua/` on a real server, sent by a client of another library.

/// A script of its files, as the crate sends it.
macro_rules! script {
    ($($file:literal),+) => {
        concat!(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/batch.lua")),
            $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $file, ".lua")),)+
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/run.lua")),
        )
    };
}

mod batches;
mod declared;
mod dialects;
mod fair;
mod fair_refusals;
mod fenced;
mod keeping;
mod kinds;
mod lives;
mod names;
mod read_write;
mod read_write_refusals;
mod refusals;
mod repetition;
mod simple;
mod synchronizers;
mod traffic;
mod transitions;

use std::{collections::BTreeMap, time::Duration};

use redis::{ToRedisArgs, Value, aio::MultiplexedConnection};
use testbed::Server;

use crate::witness::Listener;

pub use fair::{ABANDON as FAIR_ABANDON, ACQUIRE as FAIR_ACQUIRE, RELEASE as FAIR_RELEASE};
pub use read_write::READ_RELEASE;

const SOON: Duration = Duration::from_secs(20);
const LOCK: &str = "order:42";
const CHANNEL: &str = "redisson_lock__channel:{order:42}";
const US: &str = "11111111-1111-4111-8111-111111111111:7";
const THEM: &str = "22222222-2222-4222-8222-222222222222:7";
/// In milliseconds.
const LEASE: i64 = 60_000;

const ACQUIRE: &str = script!("expiry", "reentrant_acquire");
const RELEASE: &str = script!("shorten", "reentrant_release");
const RENEW: &str = script!("expiry", "reentrant_renew");
const FORCE_RELEASE: &str = script!("reentrant_force_release");
const INSPECT: &str = script!("reentrant_inspect");

/// The reply of one operation.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Reply {
    Done,
    Counted(i64),
    Told(Vec<i64>),
    Busy(i64),
    Absent,
    WrongKind(String),
    Failed(String),
}

impl Reply {
    fn read(value: Value) -> Self {
        let (status, detail) = match value {
            Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
                Ok([Value::Int(status), detail]) => (status, detail),
                odd => panic!("unexpected shape of a reply: {odd:?}"),
            },
            Value::Int(status) => (status, Value::Nil),
            odd => panic!("unexpected type of a reply: {odd:?}"),
        };
        match (status, detail) {
            (0, Value::Nil) => Self::Done,
            (0, Value::Int(token)) => Self::Counted(token),
            (0, numbers @ Value::Array(_)) => Self::Told(read(numbers)),
            (1, Value::Int(remaining)) => Self::Busy(remaining),
            (2, Value::Int(0)) => Self::Absent,
            (3, found) => Self::WrongKind(read(found)),
            (4, message) => Self::Failed(read(message)),
            odd => panic!("unknown status or detail: {odd:?}"),
        }
    }

    fn failed_with(&self, part: &str) -> bool {
        matches!(self, Self::Failed(message) if message.contains(part))
    }
}

fn read<T: redis::FromRedisValue>(value: Value) -> T {
    T::from_redis_value(value).expect("the status determines the type")
}

/// A lock, and the arguments of one operation on it.
type Operation<'a> = (&'a str, Vec<String>);

/// One operation of a script that needs several keys.
struct Wide {
    keys: Vec<String>,
    arguments: Vec<String>,
}

/// The user that runs scripts, by default the administrator.
#[derive(Clone)]
struct Caller(MultiplexedConnection);

impl Caller {
    /// Connects as a user with these rights.
    async fn with_rights(server: &Server, rights: &[&str]) -> Self {
        server
            .command::<()>(&[&["ACL", "SETUSER", "app", "reset", "on", ">pw"], rights].concat())
            .await;
        let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
        let client = redis::Client::open(url).unwrap();
        Self(client.get_multiplexed_async_connection().await.unwrap())
    }

    async fn run_all(&self, script: &str, operations: &[Operation<'_>]) -> Vec<Reply> {
        let operations = operations.iter().map(|(lock, arguments)| Wide {
            keys: owned(&[lock]),
            arguments: arguments.clone(),
        });
        self.run_wide(script, &operations.collect::<Vec<_>>()).await
    }

    async fn run_wide(&self, script: &str, operations: &[Wide]) -> Vec<Reply> {
        let mut command = redis::cmd("EVAL");
        let keys = operations.iter().map(|operation| operation.keys.len());
        command.arg(script).arg(keys.sum::<usize>());
        for operation in operations {
            command.arg(&operation.keys);
        }
        for operation in operations {
            command.arg(&operation.arguments);
        }
        let answer: Value = command.query_async(&mut self.0.clone()).await.unwrap();
        // The reply to a single operation is not in a list.
        let answer = match answer {
            Value::Array(replies) if operations.len() != 1 => replies,
            reply => vec![reply],
        };
        assert_eq!(answer.len(), operations.len(), "one reply per operation");
        answer.into_iter().map(Reply::read).collect()
    }

    /// One operation with several keys.
    async fn run_on(&self, script: &str, keys: &[&str], arguments: &[&str]) -> Reply {
        let operation = Wide {
            keys: owned(keys),
            arguments: owned(arguments),
        };
        self.run_wide(script, &[operation]).await.remove(0)
    }

    async fn run(&self, script: &str, arguments: &[&str]) -> Reply {
        let operation = (LOCK, owned(arguments));
        self.run_all(script, &[operation]).await.remove(0)
    }

    async fn acquire(&self, owner: &str, holds: u32) -> Reply {
        self.acquire_for(owner, LEASE, holds).await
    }

    async fn acquire_for(&self, owner: &str, lease: i64, holds: u32) -> Reply {
        let (lease, holds) = (lease.to_string(), holds.to_string());
        self.run(ACQUIRE, &[owner, &lease, &holds]).await
    }

    async fn release(&self, owner: &str, holds: u32) -> Reply {
        let (holds, lease) = (holds.to_string(), LEASE.to_string());
        self.run(RELEASE, &[owner, &holds, &lease, CHANNEL]).await
    }

    async fn renew(&self, owner: &str, lease: i64) -> Reply {
        self.run(RENEW, &[owner, &lease.to_string()]).await
    }

    async fn force_release(&self) -> Reply {
        self.run(FORCE_RELEASE, &[CHANNEL]).await
    }

    async fn inspect(&self, owner: &str) -> Reply {
        self.run(INSPECT, &[owner]).await
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

/// A server and its administrator.
struct Bed {
    server: Server,
    admin: Caller,
}

impl Bed {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(options: &[&str]) -> Self {
        let server = Server::start_with(options).await;
        let admin = Caller(server.admin().await);
        Self { server, admin }
    }

    async fn ask<T: redis::FromRedisValue>(&self, words: &[impl ToRedisArgs]) -> T {
        let mut command = redis::Cmd::new();
        command.arg(words);
        command
            .query_async(&mut self.admin.0.clone())
            .await
            .unwrap()
    }

    /// The fields of the lock's hash.
    async fn fields(&self) -> BTreeMap<String, String> {
        self.ask(&["HGETALL", LOCK]).await
    }

    /// Fails unless `owner` is the only owner, with this hold count.
    async fn is_held_by(&self, owner: &str, count: u32) {
        let expected = BTreeMap::from([(owner.to_owned(), count.to_string())]);
        assert_eq!(self.fields().await, expected);
    }

    async fn pttl(&self) -> i64 {
        self.ask(&["PTTL", LOCK]).await
    }

    /// Fails unless most of the lease is left.
    async fn expires_in_about(&self, lease: i64) {
        let left = self.pttl().await;
        assert!(
            left > lease - 30_000 && left <= lease,
            "{left} of {lease} ms"
        );
    }

    async fn is_free(&self) {
        assert_eq!(self.ask::<u32>(&["DBSIZE"]).await, 0);
    }

    /// All keys with their serialised values.
    async fn everything(&self) -> BTreeMap<String, Vec<u8>> {
        let mut all = BTreeMap::new();
        for key in self.ask::<Vec<String>>(&["KEYS", "*"]).await {
            let dump = self.ask(&["DUMP", &key]).await;
            all.insert(key, dump);
        }
        all
    }

    /// The number of calls of each command since [`Server::reset_calls`], calls from scripts only.
    async fn inner_calls(&self) -> BTreeMap<String, u64> {
        let mut calls = self.server.calls().await;
        calls.retain(|name, _| !["eval", "info", "config|resetstat"].contains(&&**name));
        calls
    }

    /// Makes the server refuse every command that may need memory. It uses more than this without
    /// any keys.
    async fn out_of_memory(&self) {
        let settings = ["maxmemory-policy", "noeviction", "maxmemory", "1"];
        self.ask::<()>(&[&["CONFIG", "SET"], &settings[..]].concat())
            .await;
    }

    /// The serialised value of the lock's key, and whether it expires.
    async fn snapshot(&self) -> (Option<Vec<u8>>, bool) {
        (self.ask(&["DUMP", LOCK]).await, self.pttl().await >= 0)
    }
}
