//! The synchronizers of a client that behaves like Redisson: the effects of its scripts, its messages and its waits, by
//! docs/semaphore.md, docs/permit-expirable-semaphore.md and docs/count-down-latch.md. It polls nothing: only a message ends
//! its waits for permits and openings, but those for permits that end, which the nearest end ends too. Unlike Redisson, it takes the time
//! of the server.

use std::time::Duration;

use fastrand::Rng;
use redisson_lock_test::InMemoryRedis;
use tokio::time::Instant;

use super::histories::{Openings, Out, work};
use crate::world::{redisson_connections::Connections, servers::World};

/// A wait that only a message ends.
const WITHOUT_END: Duration = Duration::from_secs(1_000_000);

const POOL: &str = "pool";
const POOL_CHANNEL: &str = "redisson_sc:{pool}";
const LATCH: &str = "ready";
const LATCH_CHANNEL: &str = "redisson_countdownlatch__channel__{ready}";

/// Answers 1 when granted, else 0. `KEYS[1]` is the semaphore, `ARGV[1]` the permits.
const ACQUIRE: &str = "
local value = redis.call('GET', KEYS[1])
if value and tonumber(value) >= tonumber(ARGV[1]) then
  redis.call('DECRBY', KEYS[1], ARGV[1])
  return 1
end
return 0";

/// `ARGV[1]` is the permits, `ARGV[2]` the channel.
const RELEASE: &str = "
local value = redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('PUBLISH', ARGV[2], value)
return value";

/// Removes an expired permit first, because one is wanted. Answers -1 when granted, else the ms until the next end, or -2 without one.
/// `KEYS[2]` is the acquired permits. `ARGV` is the id, the lease and the channel.
const ACQUIRE_WITH_END: &str = "
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ended = redis.call('ZRANGEBYSCORE', KEYS[2], 0, now, 'LIMIT', 0, 1)
if #ended > 0 then
  redis.call('ZREM', KEYS[2], unpack(ended))
  local value = redis.call('INCRBY', KEYS[1], #ended)
  if value > 0 then
    redis.call('PUBLISH', ARGV[3], value)
  end
end
local value = redis.call('GET', KEYS[1])
if value and tonumber(value) >= 1 then
  redis.call('DECRBY', KEYS[1], 1)
  redis.call('ZADD', KEYS[2], now + ARGV[2], ARGV[1])
  return -1
end
local first = redis.call('ZRANGE', KEYS[2], 0, 0, 'WITHSCORES')
return first[2] and math.max(0, first[2] - now) or -2";

/// Answers whether the permit was there. `ARGV` is the id and the channel.
const RELEASE_WITH_END: &str = "
if redis.call('ZREM', KEYS[2], ARGV[1]) == 0 then
  return 0
end
redis.call('PUBLISH', ARGV[2], redis.call('INCRBY', KEYS[1], 1))
return 1";

const COUNT: &str = "return tonumber(redis.call('GET', KEYS[1]) or 0)";

/// `ARGV[1]` is the channel.
const COUNT_DOWN: &str = "
local left = redis.call('DECR', KEYS[1])
if left <= 0 then
  redis.call('DEL', KEYS[1])
end
if left == 0 then
  redis.call('PUBLISH', ARGV[1], '0')
end
return left";

/// Whether a semaphore's message wakes a waiter: it wakes as many as there are permits.
fn are_available(permits: i64) -> bool {
    permits > 0
}

/// Whether a latch's message wakes its waiters.
fn opens(number: i64) -> bool {
    number == 0
}

/// A thread of a Java service.
pub struct Thread {
    connections: Connections,
    random: Rng,
    ids: u64,
}

impl Thread {
    pub async fn new(server: &InMemoryRedis, random: Rng) -> Self {
        Self {
            connections: Connections::open(&World::Node(server.clone()), "", false).await,
            random,
            ids: 0,
        }
    }

    /// Acquires and releases a permit a few times.
    pub async fn use_permits(mut self, out: Out, turns: u32) {
        for _ in 0..self.random.u32(1..=turns) {
            self.acquire().await;
            out.take(1);
            work(&mut self.random).await;
            out.give(1);
            let words = ["1", POOL, "1", POOL_CHANNEL];
            self.connections.number(RELEASE, &words).await;
            work(&mut self.random).await;
        }
    }

    async fn acquire(&mut self) {
        let words = ["1", POOL, "1"];
        if self.connections.number(ACQUIRE, &words).await == 1 {
            return;
        }
        self.connections.subscribe(POOL_CHANNEL).await;
        while self.connections.number(ACQUIRE, &words).await == 0 {
            let until = Instant::now() + WITHOUT_END;
            self.connections.next_message(until, are_available).await;
        }
        self.connections.unsubscribe(POOL_CHANNEL).await;
    }

    /// Acquires permits that end, and releases some of them.
    pub async fn use_permits_with_ends(mut self, out: Out) {
        for _ in 0..self.random.u32(1..=5) {
            let lease = self.random.u64(100..20_000);
            let id = self.acquire_with_end(lease).await;
            out.take(1);
            work(&mut self.random).await;
            out.give(1);
            if self.random.bool() {
                let words = ["2", POOL, "{pool}:timeout", &id, POOL_CHANNEL];
                let released = self.connections.number(RELEASE_WITH_END, &words).await;
                assert_eq!(released, 1, "its lease has not ended");
            }
        }
    }

    /// Returns the id of a permit: 16 bytes, as in Redisson.
    async fn acquire_with_end(&mut self, lease: u64) -> String {
        self.ids += 1;
        let id = format!("{:08}{:08x}", self.ids, self.random.u32(..));
        let lease = lease.to_string();
        let words = ["2", POOL, "{pool}:timeout", &id, &lease, POOL_CHANNEL];
        if self.connections.number(ACQUIRE_WITH_END, &words).await == -1 {
            return id;
        }
        self.connections.subscribe(POOL_CHANNEL).await;
        loop {
            let wait = match self.connections.number(ACQUIRE_WITH_END, &words).await {
                -1 => break,
                -2 => WITHOUT_END,
                // In memory an answer takes no time, so a wait of 0 ms would ask without end.
                left => Duration::from_millis(left.max(1).unsigned_abs()),
            };
            let until = Instant::now() + wait;
            self.connections.next_message(until, are_available).await;
        }
        self.connections.unsubscribe(POOL_CHANNEL).await;
        id
    }

    /// Waits until the latch is open.
    pub async fn wait(mut self, openings: Openings) {
        work(&mut self.random).await;
        let before = openings.0.get();
        if self.count().await > 0 {
            self.connections.subscribe(LATCH_CHANNEL).await;
            while self.count().await > 0 {
                let until = Instant::now() + WITHOUT_END;
                self.connections.next_message(until, opens).await;
            }
            self.connections.unsubscribe(LATCH_CHANNEL).await;
        }
        openings.assert_opened_since(before);
    }

    async fn count(&self) -> i64 {
        self.connections.number(COUNT, &["1", LATCH]).await
    }

    pub async fn count_down(&self) {
        let words = ["1", LATCH, LATCH_CHANNEL];
        self.connections.number(COUNT_DOWN, &words).await;
    }
}
