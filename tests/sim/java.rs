//! A client that takes plain locks as Redisson does: the effects of its scripts, its messages and its wake-ups, by
//! docs/protocol.md, sections 4 and 5. It renews nothing: its holds are short.

use std::{sync::Arc, time::Duration};

use fastrand::Rng;
use futures_util::StreamExt;
use redisson_lock::{
    Released,
    test_util::{
        InMemoryRedis,
        simulation::{Frame, Pushed, RawConnection},
    },
};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use crate::played::{
    actor::{PATIENCE, Scene},
    log::{Side, Spot, Trouble, What},
};

/// Redisson's default.
const LEASE: Duration = Duration::from_secs(30);
/// The longest stay inside.
const STAY: Duration = Duration::from_millis(5);

const ACQUIRE: &str = "
local free = redis.call('EXISTS', KEYS[1]) == 0
if free or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return -3
end
return redis.call('PTTL', KEYS[1])";

const RELEASE: &str = "
if redis.call('HEXISTS', KEYS[1], ARGV[2]) == 0 then
  return -1
end
local left = redis.call('HINCRBY', KEYS[1], ARGV[2], -1)
if left > 0 then
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
else
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', KEYS[2], '0')
end
return left";

/// A thread of a Java service.
pub struct Thread {
    pub scene: Arc<Scene>,
    pub random: Rng,
    /// What stands for its UUID and thread id.
    pub owner: u64,
}

struct Connections {
    commands: RawConnection,
    messages: RawConnection,
    /// One unlock message is one waiter's.
    unlocked: mpsc::UnboundedReceiver<()>,
}

impl Connections {
    async fn open(server: &InMemoryRedis) -> Self {
        let commands = server.raw().await.expect("the server is up");
        let messages = server.raw().await.expect("the server is up");
        let mut pushed = messages.messages();
        let (wake, unlocked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Pushed::Message { .. }) = pushed.next().await {
                let _ = wake.send(());
            }
        });
        Self {
            commands,
            messages,
            unlocked,
        }
    }

    async fn number(&self, script: &str, words: &[&str]) -> i64 {
        let words = [&[script], words].concat();
        match self.commands.send("EVAL", &words).await {
            Ok(Frame::Number(number)) => number,
            other => panic!("a script of Redisson's answered {other:?}"),
        }
    }
}

impl Thread {
    /// Locks and unlocks until the history is over.
    pub async fn run(mut self, server: InMemoryRedis) {
        let mut connections = Connections::open(&server).await;
        while !self.scene.is_over() {
            let name = self.random.usize(..self.scene.names.len());
            let spot = Spot {
                owner: self.owner,
                names: 1 << name,
                side: Side::Alone,
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
            let taken = timeout(PATIENCE, self.lock(&key, &mut connections)).await;
            if taken.is_err() {
                self.scene.log.note(spot, What::Failed(Trouble::Hung));
                break;
            }
            self.stay(spot, &key, &connections).await;
            let pause = STAY.mul_f64(self.random.f64());
            sleep(pause).await;
        }
    }

    async fn stay(&mut self, spot: Spot, key: &str, connections: &Connections) {
        let hold = self.scene.log.enters_without_guard(spot, LEASE);
        sleep(STAY.mul_f64(self.random.f64())).await;
        self.scene.log.note(spot, What::Ends { hold });
        let how = self.unlock(key, connections).await;
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

    async fn try_lock(&self, key: &str, connections: &Connections) -> Option<Duration> {
        let lease = LEASE.as_millis().to_string();
        let words = ["1", key, &lease, &self.field()];
        let answer = connections.number(ACQUIRE, &words).await;
        (answer != -3).then(|| Duration::from_millis(answer.max(0).unsigned_abs()))
    }

    /// Asks, subscribes, asks again, and then after each message or when the lease has run out.
    async fn lock(&self, key: &str, connections: &mut Connections) {
        if self.try_lock(key, connections).await.is_none() {
            return;
        }
        let channel = channel(key);
        let subscribed = connections.messages.send("SUBSCRIBE", &[&channel]).await;
        subscribed.expect("the connection is undisturbed");
        while connections.unlocked.try_recv().is_ok() {}
        while let Some(remaining) = self.try_lock(key, connections).await {
            // A real server takes time to answer: the last millisecond is over soon.
            let until = Instant::now() + remaining.max(Duration::from_millis(1));
            let _ = tokio::time::timeout_at(until, connections.unlocked.recv()).await;
        }
        let ended = connections.messages.send("UNSUBSCRIBE", &[&channel]).await;
        ended.expect("the connection is undisturbed");
    }

    async fn unlock(&self, key: &str, connections: &Connections) -> Result<Released, Trouble> {
        let (lease, channel) = (LEASE.as_millis().to_string(), channel(key));
        let words = ["2", key, &channel, &lease, &self.field()];
        match connections.number(RELEASE, &words).await {
            0 => Ok(Released::Fully),
            -1 => Err(Trouble::NotHeld),
            left => Err(Trouble::Other(format!("{left} holds are left"))),
        }
    }
}

fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}
