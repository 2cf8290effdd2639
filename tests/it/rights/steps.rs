//! Every path through the scripts of each kind, including those that need a lost reply or a dead
//! waiter.

use std::fs;

use redis::{IntoConnectionInfo, Value, aio::MultiplexedConnection};
use testbed::Server;

const DONE: i64 = 0;
const BUSY: i64 = 1;
const ABSENT: i64 = 2;
const FAILED: i64 = 4;
/// The holder of a lock whose job is done.
const KEPT: &str = "run_at_least:done";

/// Owners of this crate: the number has 19 digits.
const A: &str = "11111111-1111-4111-8111-111111111111:4611686018427387905";
const B: &str = "22222222-2222-4222-8222-222222222222:4611686018427387906";
/// In milliseconds.
const LEASE: &str = "60000";
const LONGER: &str = "90000";

type Step = Result<(), String>;

/// The text `lua/<name>.lua`.
pub fn lua(name: &str) -> String {
    let path = format!("{}/lua/{name}.lua", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The files that make up a script, in order.
pub fn files(script: &str) -> impl Iterator<Item = &str> {
    let shared: &[&str] = match script {
        "read_release" => &["read_write"],
        "write_release" => &["read_write", "shorten"],
        "reentrant_release" => &["shorten"],
        "fair_release" => &["shorten", "owners"],
        "read_acquire" | "read_renew" => &["read_write", "expiry"],
        "fair_acquire" => &["expiry", "clock", "owners"],
        "fair_waiters" => &["clock"],
        "semaphore_acquire" | "semaphore_release" | "semaphore_drain" | "number_begin"
        | "latch_count_down" | "latch_delete" => &["attempts", "number"],
        "number_inspect" | "latch_look" | "permit_set" => &["number"],
        "permit_release" => &["attempts", "number", "clock", "permits"],
        "permit_acquire" | "permit_extend" | "permit_left" | "permit_count" => {
            &["number", "clock", "permits"]
        }
        _ if script.ends_with("acquire") || script.ends_with("renew") => &["expiry"],
        _ => &[],
    };
    let shared = shared.iter().copied();
    ["batch"].into_iter().chain(shared).chain([script, "run"])
}

/// One lock, a user with limited rights to it, and the administrator.
struct Steps {
    user: MultiplexedConnection,
    admin: MultiplexedConnection,
    name: String,
}

impl Steps {
    async fn new(server: &Server, url: &str, name: &str) -> Self {
        let info = url.into_connection_info().expect("a URL");
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let client = redis::Client::open(info.set_redis_settings(settings)).expect("a URL");
        let user = client.get_multiplexed_async_connection().await;
        Self {
            user: user.expect("the user may connect"),
            admin: server.admin().await,
            name: name.to_owned(),
        }
    }

    fn prefixed(&self, prefix: &str) -> String {
        if self.name.contains('{') {
            format!("{prefix}:{}", self.name)
        } else {
            format!("{prefix}:{{{}}}", self.name)
        }
    }

    async fn admin(&self, words: &[&str]) -> Value {
        let mut admin = self.admin.clone();
        let answer = redis::cmd(words[0])
            .arg(&words[1..])
            .query_async(&mut admin)
            .await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// Runs a script that must return `status`.
    async fn run(&self, status: i64, script: &str, keys: &[&str], arguments: &[&str]) -> Step {
        let text: String = files(script).map(lua).collect();
        let mut command = redis::cmd("EVAL");
        command.arg(text).arg(keys.len()).arg(keys).arg(arguments);
        let answer = command.query_async(&mut self.user.clone()).await;
        let (answered, detail) = match answer.map_err(|error| crate::in_full(&error))? {
            Value::Int(status) => (status, Value::Nil),
            Value::Array(parts) => match <[Value; 2]>::try_from(parts) {
                Ok([Value::Int(status), detail]) => (status, detail),
                odd => panic!("{script}: {odd:?}"),
            },
            odd => panic!("{script}: {odd:?}"),
        };
        if answered == FAILED {
            return Err(format!("{script}: {detail:?}"));
        }
        assert_eq!(answered, status, "{script} {arguments:?}: {detail:?}");
        Ok(())
    }
}

/// Runs all operations of a kind as the user of `url`, and returns the first failure.
pub async fn all_of(kind: &str, server: &Server, url: &str, name: &str) -> Step {
    let steps = Steps::new(server, url, name).await;
    match kind {
        "fair" | "non-reentrant-fair" => steps.fair().await,
        "fenced" => steps.fenced().await,
        "read" | "write" => steps.read_write().await,
        "simple" => steps.simple().await,
        "spin" => steps.plain("reentrant_acquire", &[&steps.name], &[]).await,
        _ => steps.reentrant().await,
    }
}

impl Steps {
    async fn plain(&self, acquire: &str, keys: &[&str], more: &[&str]) -> Step {
        let lock = [self.name.as_str()];
        let channel = &self.prefixed("redisson_lock__channel");
        let take = async |status, owner, lease, holds| {
            let arguments = [&[owner, lease, holds], more].concat();
            self.run(status, acquire, keys, &arguments).await
        };
        take(DONE, A, LEASE, "1").await?;
        take(DONE, A, LONGER, "2").await?;
        take(BUSY, B, LEASE, "1").await?;
        self.run(DONE, "reentrant_inspect", &lock, &[A]).await?;
        self.run(DONE, "reentrant_renew", &lock, &[A, LONGER])
            .await?;
        let release = [A, "1", LEASE, channel];
        self.run(DONE, "reentrant_release", &lock, &release).await?;
        let release = [A, "0", "0", channel];
        self.run(DONE, "reentrant_release", &lock, &release).await?;
        take(DONE, A, LEASE, "1").await?;
        let keep = [A, KEPT, LEASE, channel];
        self.run(DONE, "reentrant_keep", &lock, &keep).await?;
        let force = "reentrant_force_release";
        self.run(DONE, force, &lock, &[channel]).await
    }

    async fn reentrant(&self) -> Step {
        let keys = [self.name.as_str()];
        self.plain("reentrant_acquire", &keys, &[]).await
    }

    async fn fenced(&self) -> Step {
        let counter = self.prefixed("redisson_lock_token");
        let keys = [self.name.as_str(), &counter];
        self.plain("fenced_acquire", &keys, &[]).await?;
        // A repetition.
        for _ in 0..2 {
            let again = [A, LEASE, "1"];
            self.run(DONE, "fenced_acquire", &keys, &again).await?;
        }
        let lock = &keys[..1];
        self.run(ABSENT, "election_leader", lock, &[""]).await?;
        self.run(DONE, "election_announce", lock, &[A, "1", "me"])
            .await?;
        self.run(DONE, "election_leader", lock, &[""]).await?;
        self.admin(&["DEL", &self.name]).await;
        // From 2^53 on, the script reads a token as text.
        self.admin(&["SET", &counter, "9007199254740992"]).await;
        self.run(DONE, "fenced_acquire", &keys, &[A, LEASE, "1"])
            .await?;
        self.admin(&["DEL", &self.name]).await;
        Ok(())
    }

    async fn simple(&self) -> Step {
        let lock = [self.name.as_str()];
        let channel = &self.prefixed("simple_lock__channel");
        self.run(DONE, "simple_acquire", &lock, &[A, LEASE]).await?;
        self.run(DONE, "simple_acquire", &lock, &[A, LONGER])
            .await?;
        self.run(BUSY, "simple_acquire", &lock, &[B, LEASE]).await?;
        self.run(DONE, "simple_inspect", &lock, &[A]).await?;
        self.run(DONE, "simple_holders", &lock, &[""]).await?;
        self.run(DONE, "simple_renew", &lock, &[A, LONGER]).await?;
        self.run(DONE, "simple_release", &lock, &[A, channel])
            .await?;
        self.run(DONE, "simple_acquire", &lock, &[A, LEASE]).await?;
        self.run(DONE, "simple_keep", &lock, &[A, KEPT, LEASE, channel])
            .await?;
        self.run(DONE, "simple_force_release", &lock, &[channel])
            .await
    }

    async fn read_write(&self) -> Step {
        let lock = [self.name.as_str()];
        let channel = &self.prefixed("redisson_rwlock");
        let base = if self.name.contains('{') {
            self.name.clone()
        } else {
            format!("{{{}}}", self.name)
        };
        let intent = &format!("{base}:write_intent");
        let rest = &format!("{intent}:rest");
        let with_intent = [lock[0], intent, rest];
        let read = async |owner, writes| {
            let arguments = [owner, LEASE, "1", writes, "0", channel, &base];
            let keys = &with_intent[..2];
            self.run(DONE, "read_acquire", keys, &arguments).await
        };
        let write = async |status, owner, intends| {
            let arguments = [owner, LEASE, "1", intends];
            let keys = &with_intent[..2];
            self.run(status, "write_acquire", keys, &arguments).await
        };
        let end = async |script, owner| {
            let arguments = [owner, "0", "0", channel, &base];
            self.run(DONE, script, &lock, &arguments).await
        };
        read(A, "0").await?;
        read(B, "0").await?;
        for length in ["4", "0"] {
            self.run(DONE, "write_intend", &with_intent, &[length])
                .await?;
        }
        self.run(DONE, "read_inspect", &lock, &[A]).await?;
        self.run(DONE, "read_renew", &lock, &[A, LONGER, &base])
            .await?;
        end("read_release", B).await?;
        self.run(DONE, "read_force_release", &lock, &[channel])
            .await?;
        self.run(ABSENT, "read_force_release", &lock, &[channel])
            .await?;
        // A forced-out reader leaves these keys.
        self.admin(&["FLUSHALL"]).await;

        write(DONE, A, "1").await?;
        write(BUSY, B, "0").await?;
        self.run(DONE, "write_inspect", &lock, &[A]).await?;
        self.run(DONE, "write_renew", &lock, &[A, LONGER]).await?;
        read(A, "1").await?;
        self.run(DONE, "read_inspect", &lock, &[A]).await?;
        end("write_release", A).await?;
        end("read_release", A).await?;
        write(DONE, A, "0").await?;
        let keep = [A, KEPT, LEASE, channel];
        self.run(DONE, "write_keep", &lock, &keep).await?;
        let force = "write_force_release";
        self.run(DONE, force, &lock, &[channel]).await?;
        self.run(ABSENT, force, &lock, &[channel]).await
    }

    async fn fair(&self) -> Step {
        let queue = &self.prefixed("redisson_lock_queue");
        let places = &self.prefixed("redisson_lock_timeout");
        let channel = &self.prefixed("redisson_lock__channel");
        let keys = [self.name.as_str(), queue, places];
        let take = async |status, owner, holds, waited| {
            let arguments = [owner, LEASE, holds, waited, "15000", "300000", channel, "0"];
            self.run(status, "fair_acquire", &keys, &arguments).await
        };
        let release = async |holds, lease| {
            let arguments = [A, holds, lease, "15000", channel];
            self.run(DONE, "fair_release", &keys, &arguments).await
        };
        take(DONE, A, "1", "0").await?;
        take(DONE, A, "2", "0").await?;
        self.run(DONE, "reentrant_inspect", &keys[..1], &[A])
            .await?;
        self.run(DONE, "reentrant_renew", &keys[..1], &[A, LONGER])
            .await?;
        release("1", LEASE).await?;
        // B queues, polls again, leaves, and later finds its entry removed.
        take(BUSY, B, "1", "0").await?;
        take(BUSY, B, "1", "10").await?;
        self.run(DONE, "fair_waiters", &keys[1..], &[""]).await?;
        self.run(DONE, "fair_abandon", &keys[1..], &[B, channel])
            .await?;
        take(BUSY, B, "1", "10").await?;
        // The entry's timeout was removed, and the entry was not.
        self.admin(&["ZREM", places, B]).await;
        take(BUSY, B, "1", "10").await?;
        if self.admin(&["LLEN", queue]).await != Value::Int(1) {
            return Err("it stands in the queue twice".into());
        }
        release("0", "0").await?;
        take(DONE, B, "1", "10").await?;
        self.admin(&["RPUSH", queue, A]).await;
        let keep = [B, KEPT, LEASE, channel];
        self.run(DONE, "fair_keep", &keys[..2], &keep).await?;
        self.admin(&["DEL", queue]).await;
        let force = "fair_force_release";
        self.run(DONE, force, &keys[..2], &[channel]).await?;
        // A dead process leaves an entry in the queue.
        self.admin(&["RPUSH", queue, B]).await;
        self.admin(&["ZADD", places, "1", B]).await;
        take(DONE, A, "1", "0").await?;
        release("0", "0").await
    }
}
