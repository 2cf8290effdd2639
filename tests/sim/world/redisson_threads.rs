//! A client that behaves like Redisson: the effects of its scripts, its messages and its wake-ups, by docs/protocol.md. Its holds
//! are short, so it renews nothing. Unlike Redisson, it waits for no replicas, and each thread has its own subscription.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use histories::{
    actor::Scene,
    dropping::PATIENCE,
    log::{Side, Spot, Trouble, What},
};
use redisson_lock::Released;
use tokio::time::{Instant, sleep, timeout};

use super::{redisson_connections::Connections, servers::World};

/// Redisson's default lease.
const LEASE: Duration = Duration::from_secs(30);
/// How long a holder relies on its lease. The rules leave some of it for clocks that differ.
const RELIED: Duration = Duration::from_millis(29_900);
/// The longest time with the lock.
const STAY: Duration = Duration::from_millis(5);

/// How long a fair waiter keeps its place, in ms: Redisson's `fairLockWaitTimeout`.
const FAIR_WAIT: &str = "300000";

/// A kind of lock as Redisson has it. `KEYS[1]` is the lock, `KEYS[2]` and `[3]` are the queue and timeouts of a fair lock,
/// `KEYS[4]` is the counter of a fenced lock. `ARGV` is the lease, the owner, the channel, and [`FAIR_WAIT`] or the prefix of the
/// readers' markers.
#[derive(Clone, Copy)]
pub struct Dialect {
    side: Side,
    /// Answers -3 when granted, else the ms that a waiter sleeps.
    acquire: &'static str,
    /// Answers the remaining holds of the owner, or -1 without a hold.
    release: &'static str,
    channel: &'static str,
    /// Whether each waiter has a channel of its own.
    is_fair: bool,
    is_fenced: bool,
}

impl Dialect {
    /// The dialects of a kind: two for a read-write lock, none where Redisson has no such lock.
    pub fn of(kind: &str) -> &'static [Dialect] {
        match kind {
            "reentrant" | "non_reentrant" | "spin" => &[PLAIN],
            "fenced" => &[FENCED],
            "fair" | "non_reentrant_fair" => &[FAIR],
            "read_write" => &[READ, WRITE],
            _ => &[],
        }
    }
}

const PLAIN: Dialect = Dialect {
    side: Side::Alone,
    channel: "redisson_lock__channel",
    is_fair: false,
    is_fenced: false,
    acquire: "
local free = redis.call('EXISTS', KEYS[1]) == 0
if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return -3
end
return redis.call('PTTL', KEYS[1])",
    release: "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return -1
end
local left = redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
if left > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
else
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[3], '0')
end
return left",
};

const FENCED: Dialect = Dialect {
    is_fenced: true,
    acquire: "
local free = redis.call('EXISTS', KEYS[1]) == 0
if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('INCR', KEYS[4])
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return -3
end
return redis.call('PTTL', KEYS[1])",
    ..PLAIN
};

/// Removes timed-out heads of the queue, then runs the script.
macro_rules! pruned {
    ($script:literal) => {
        concat!(
            "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head
while true do
  head = redis.call('LINDEX', KEYS[2], 0)
  local score = head and redis.call('ZSCORE', KEYS[3], head)
  if not score or tonumber(score) > now then
    break
  end
  redis.call('ZREM', KEYS[3], head)
  redis.call('LPOP', KEYS[2])
end",
            $script
        )
    };
}

const FAIR: Dialect = Dialect {
    is_fair: true,
    acquire: pruned!(
        "
local lease, owner, wait = ARGV[1], ARGV[2], tonumber(ARGV[4])
local free = redis.call('EXISTS', KEYS[1]) == 0
if free and (not head or head == owner) then
  redis.call('LPOP', KEYS[2])
  redis.call('ZREM', KEYS[3], owner)
  for _, waiter in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
    redis.call('ZINCRBY', KEYS[3], -wait, waiter)
  end
  redis.call('HSET', KEYS[1], owner, 1)
  redis.call('PEXPIRE', KEYS[1], lease)
  return -3
end
if redis.call('HEXISTS', KEYS[1], owner) == 1 then
  redis.call('HINCRBY', KEYS[1], owner, 1)
  redis.call('PEXPIRE', KEYS[1], lease)
  return -3
end
local left = redis.call('PTTL', KEYS[1])
if redis.call('ZSCORE', KEYS[3], owner) then
  return math.max(0, left)
end
local last = redis.call('LINDEX', KEYS[2], -1)
local score = last and last ~= owner and redis.call('ZSCORE', KEYS[3], last)
if score then
  left = tonumber(score) - now
end
if redis.call('ZADD', KEYS[3], left + wait + now, owner) == 1 then
  redis.call('RPUSH', KEYS[2], owner)
end
return left"
    ),
    release: pruned!(
        "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return -1
end
local left = redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
if left > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return left
end
redis.call('DEL', KEYS[1])
if head then
  redis.call('PUBLISH', ARGV[3] .. ':' .. head, '0')
end
return left"
    ),
    ..PLAIN
};

const READ: Dialect = Dialect {
    side: Side::Shared,
    channel: "redisson_rwlock",
    is_fair: false,
    is_fenced: false,
    acquire: "
local lease, owner = ARGV[1], ARGV[2]
local mode = redis.call('HGET', KEYS[1], 'mode')
if mode and mode ~= 'read' and redis.call('HEXISTS', KEYS[1], owner .. ':write') == 0 then
  return redis.call('PTTL', KEYS[1])
end
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
local hold = redis.call('HINCRBY', KEYS[1], owner, 1)
redis.call('SET', ARGV[4] .. ':' .. owner .. ':rwlock_timeout:' .. hold, '1', 'PX', lease)
redis.call('PEXPIRE', KEYS[1], math.max(redis.call('PTTL', KEYS[1]), tonumber(lease)))
return -3",
    release: "
local owner = ARGV[2]
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call('PUBLISH', ARGV[3], '0')
  return -1
end
if redis.call('HEXISTS', KEYS[1], owner) == 0 then
  return -1
end
local left = redis.call('HINCRBY', KEYS[1], owner, -1)
if left == 0 then
  redis.call('HDEL', KEYS[1], owner)
end
redis.call('DEL', ARGV[4] .. ':' .. owner .. ':rwlock_timeout:' .. (left + 1))
local longest, fields = -3, redis.call('HGETALL', KEYS[1])
for i = 1, #fields, 2 do
  for hold = 1, tonumber(fields[i + 1]) or 0 do
    local marker = ARGV[4] .. ':' .. fields[i] .. ':rwlock_timeout:' .. hold
    longest = math.max(longest, redis.call('PTTL', marker))
  end
end
if longest > 0 then
  redis.call('PEXPIRE', KEYS[1], longest)
elseif mode ~= 'write' then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[3], '0')
end
return left",
};

const WRITE: Dialect = Dialect {
    side: Side::Alone,
    acquire: "
local writer = ARGV[2] .. ':write'
local mode = redis.call('HGET', KEYS[1], 'mode')
if not mode then
  redis.call('HSET', KEYS[1], 'mode', 'write', writer, 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return -3
end
local left = redis.call('PTTL', KEYS[1])
if mode == 'write' and redis.call('HEXISTS', KEYS[1], writer) == 1 then
  redis.call('HINCRBY', KEYS[1], writer, 1)
  redis.call('PEXPIRE', KEYS[1], left + ARGV[1])
  return -3
end
return left",
    release: "
local writer = ARGV[2] .. ':write'
if redis.call('HEXISTS', KEYS[1], writer) == 0 then
  return -1
end
local left = redis.call('HINCRBY', KEYS[1], writer, -1)
if left > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return left
end
redis.call('HDEL', KEYS[1], writer)
if redis.call('HLEN', KEYS[1]) == 1 then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[3], '1')
else
  redis.call('HSET', KEYS[1], 'mode', 'read')
end
return left",
    ..READ
};

/// A thread of a Java service, as the task of a history.
pub struct Thread {
    pub scene: Arc<Scene>,
    pub random: Rng,
    /// The thread id.
    pub owner: u64,
    pub dialects: &'static [Dialect],
    /// Whether messages are published within a shard of the cluster.
    pub is_sharded: bool,
}

impl Thread {
    /// Locks and unlocks until the history is over.
    pub async fn run(mut self, world: World) {
        let mut connections = Vec::new();
        for name in &self.scene.names {
            connections.push(Connections::open(&world, name, self.is_sharded).await);
        }
        while !self.scene.is_over() {
            let name = self.random.usize(..self.scene.names.len());
            let which = self.random.usize(..self.dialects.len());
            let dialect = &self.dialects[which];
            let spot = Spot {
                owner: self.owner,
                names: 1 << name,
                side: dialect.side,
            };
            let lease = LEASE;
            self.scene.log.note(
                spot,
                What::Asks {
                    limited: false,
                    lease,
                },
            );
            let key = self.scene.names[name].clone();
            let connections = &mut connections[name];
            let taken = timeout(PATIENCE + LEASE, self.lock(dialect, &key, connections)).await;
            let Ok(asked) = taken else {
                self.scene.log.note(spot, What::Failed(Trouble::Hung));
                break;
            };
            self.stay(spot, dialect, &key, connections, asked).await;
            let pause = STAY.mul_f64(self.random.f64());
            sleep(pause).await;
        }
    }

    /// Holds the lock that was granted to an attempt of the time `asked`, and releases it.
    async fn stay(
        &mut self,
        spot: Spot,
        dialect: &Dialect,
        key: &str,
        connections: &Connections,
        asked: Instant,
    ) {
        let token = match dialect.is_fenced {
            true => Some(
                connections
                    .number(
                        "return tonumber(redis.call('GET', KEYS[1]))",
                        &["1", &counter(key)],
                    )
                    .await,
            ),
            false => None,
        };
        let log = &self.scene.log;
        let hold = log.enters_without_guard(spot, LEASE, asked + RELIED, token);
        sleep(STAY.mul_f64(self.random.f64())).await;
        self.scene.log.note(spot, What::Ends { hold });
        let how = self.unlock(dialect, key, connections).await;
        self.scene.log.note(
            spot,
            What::Ended {
                hold,
                how: Some(how),
            },
        );
    }

    fn field(&self) -> String {
        format!("11111111-2222-4333-8444-555555555555:{}", self.owner)
    }

    /// Runs a script of the dialect.
    async fn ask(
        &self,
        dialect: &Dialect,
        script: &str,
        key: &str,
        connections: &Connections,
    ) -> i64 {
        let lease = LEASE.as_millis().to_string();
        let [queue, places] =
            ["queue", "timeout"].map(|of| format!("redisson_lock_{of}:{{{key}}}"));
        let (channel, base) = (channel(dialect, key), format!("{{{key}}}"));
        let last = if dialect.is_fair { FAIR_WAIT } else { &base };
        let words = [
            "4",
            key,
            &queue,
            &places,
            &counter(key),
            &lease,
            &self.field(),
            &channel,
            last,
        ];
        connections.number(script, &words).await
    }

    async fn try_lock(
        &self,
        dialect: &Dialect,
        key: &str,
        connections: &Connections,
    ) -> Option<Duration> {
        let answer = self.ask(dialect, dialect.acquire, key, connections).await;
        (answer != -3).then(|| Duration::from_millis(answer.max(0).unsigned_abs()))
    }

    /// Acquires like Redisson: sends an attempt, subscribes, and sends another at once, after each message, and at the end of the lease.
    /// Returns the time of the granted attempt.
    async fn lock(&self, dialect: &Dialect, key: &str, connections: &mut Connections) -> Instant {
        let asked = Instant::now();
        if self.try_lock(dialect, key, connections).await.is_none() {
            return asked;
        }
        let channel = match dialect.is_fair {
            true => format!("{}:{}", channel(dialect, key), self.field()),
            false => channel(dialect, key),
        };
        connections.subscribe(&channel).await;
        loop {
            let asked = Instant::now();
            let Some(remaining) = self.try_lock(dialect, key, connections).await else {
                connections.unsubscribe(&channel).await;
                return asked;
            };
            // In memory an answer takes no time, so a wait of 0 ms would ask without end.
            let until = Instant::now() + remaining.max(Duration::from_millis(1));
            let is_unlock = |number| matches!(number, 0 | 1);
            connections.next_message(until, is_unlock).await;
        }
    }

    async fn unlock(
        &self,
        dialect: &Dialect,
        key: &str,
        connections: &Connections,
    ) -> Result<Released, Trouble> {
        match self.ask(dialect, dialect.release, key, connections).await {
            0 => Ok(Released::Fully),
            -1 => Err(Trouble::NotHeld),
            left => Err(Trouble::Other(format!("{left} holds are left"))),
        }
    }
}

fn channel(dialect: &Dialect, key: &str) -> String {
    format!("{}:{{{key}}}", dialect.channel)
}

fn counter(key: &str) -> String {
    format!("redisson_lock_token:{{{key}}}")
}
