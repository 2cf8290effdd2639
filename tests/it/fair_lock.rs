//! Tests of the fair lock only: its queue, the entries in it, and entries of other clients
//! (pitfalls F).

mod cost;
mod giving_up;
mod order;
mod peers;
mod places;

use std::time::Duration;

use redisson_lock::{Config, Fair, FairLock, Guard, LockClient, Owner, Released};
use testbed::{eventually, unique_name};
use tokio::task::JoinHandle;

use crate::witness::{SOON, Witness, done};

/// The lifetime of a queue entry with [`brisk`] settings, in milliseconds: three poll intervals.
const PLACE: i64 = 1500;
/// The lifetime of a queue entry of Redisson by default, in milliseconds.
const PATIENCE: i64 = 300_000;

/// Settings with which an entry lasts for [`PLACE`].
fn brisk() -> Config {
    crate::witness::polling(Duration::from_millis(500))
}

/// One fair lock and its keys.
struct Line {
    witness: Witness,
    name: String,
    queue: String,
    places: String,
}

impl Line {
    async fn new() -> Self {
        let name = unique_name("fair");
        Self {
            witness: Witness::new().await,
            queue: format!("redisson_lock_queue:{{{name}}}"),
            places: format!("redisson_lock_timeout:{{{name}}}"),
            name,
        }
    }

    fn lock(&self, client: &LockClient) -> FairLock {
        client.fair_lock(&self.name).owned_by(&Owner::new())
    }

    /// A hold of a separate client, whose settings affect no other task.
    async fn held(&self) -> Guard<Fair> {
        let client = self.witness.a_client().await;
        self.lock(&client).lock().await.expect("the lock is free")
    }

    /// The entries of the queue, from the head.
    async fn waiting(&self) -> Vec<String> {
        self.witness.ask(&["LRANGE", &self.queue, "0", "-1"]).await
    }

    async fn score(&self, entry: &str) -> Option<i64> {
        let score: Option<f64> = self.witness.ask(&["ZSCORE", &self.places, entry]).await;
        score.map(|score| score as i64)
    }

    async fn scores(&self) -> Vec<(String, f64)> {
        self.witness
            .ask(&["ZRANGE", &self.places, "0", "-1", "WITHSCORES"])
            .await
    }

    /// Starts a waiter. Returns its entry and its task after two attempts, before and after it
    /// subscribes.
    async fn join(&self, client: &LockClient) -> (String, Waiter) {
        self.join_with(client, |lock| async move { lock.lock().await })
            .await
    }

    async fn join_with<F>(
        &self,
        client: &LockClient,
        wait: impl FnOnce(FairLock) -> F,
    ) -> (String, JoinHandle<F::Output>)
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let owner = Owner::new();
        let entry = format!("{}:{owner}", client.id());
        let lock = client.fair_lock(&self.name).owned_by(&owner);
        let before = self.witness.scripts().await;
        let task = tokio::spawn(wait(lock));
        self.witness.have_run(before + 2).await;
        self.witness.has_a_subscriber(&self.channel(&entry)).await;
        eventually("the waiter has an entry", SOON, async || {
            self.waiting().await.contains(&entry)
        })
        .await;
        (entry, task)
    }

    /// The channel of a waiter.
    fn channel(&self, entry: &str) -> String {
        format!("redisson_lock__channel:{{{}}}:{entry}", self.name)
    }

    /// Appends an entry of Redisson that expires in `lasts` ms, and returns it.
    async fn java_joins(&self, thread: u32, lasts: i64) -> String {
        let entry = format!("33333333-3333-4333-8333-333333333333:{thread}");
        let until = (self.witness.now().await + lasts).to_string();
        let () = self
            .witness
            .ask(&["ZADD", &self.places, &until, &entry])
            .await;
        let () = self.witness.ask(&["RPUSH", &self.queue, &entry]).await;
        entry
    }

    /// Grants the lock to an entry as Redisson does, if it is free and the entry is the head.
    async fn java_enters(&self, entry: &str) -> bool {
        const ENTER: &str = "
            if redis.call('exists', KEYS[1]) == 1 or redis.call('lindex', KEYS[2], 0) ~= ARGV[1] then return 0 end
            redis.call('lpop', KEYS[2])
            redis.call('zrem', KEYS[3], ARGV[1])
            for _, entry in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
                redis.call('zincrby', KEYS[3], -tonumber(ARGV[2]), entry)
            end
            redis.call('hset', KEYS[1], ARGV[1], 1)
            redis.call('pexpire', KEYS[1], 30000)
            return 1";
        let patience = PATIENCE.to_string();
        let [name, queue, places] = [&self.name, &self.queue, &self.places];
        let words = ["EVAL", ENTER, "3", name, queue, places, entry, &patience];
        self.witness.ask(&words).await
    }

    /// Releases the lock as Redisson does: removes expired entries at the head, and notifies the
    /// next waiter.
    async fn java_leaves(&self) {
        const LEAVE: &str = "
            local time = redis.call('time')
            local now = time[1] * 1000 + math.floor(time[2] / 1000)
            while true do
                local head = redis.call('lindex', KEYS[2], 0)
                local score = head and tonumber(redis.call('zscore', KEYS[3], head))
                if not score or score > now then break end
                redis.call('zrem', KEYS[3], head)
                redis.call('lpop', KEYS[2])
            end
            redis.call('del', KEYS[1])
            local head = redis.call('lindex', KEYS[2], 0)
            if head then redis.call('publish', ARGV[1] .. ':' .. head, '0') end";
        let channel = format!("redisson_lock__channel:{{{}}}", self.name);
        let [name, queue, places] = [&self.name, &self.queue, &self.places];
        let words = ["EVAL", LEAVE, "3", name, queue, places, &channel];
        let () = self.witness.ask(&words).await;
    }

    async fn nothing_left(&self) {
        self.witness.nothing_left().await;
    }
}

type Waiter = JoinHandle<Result<Guard<Fair>, redisson_lock::Error>>;

/// The guard of a waiter that acquires the lock soon.
async fn inside(what: &str, waiter: Waiter) -> Guard<Fair> {
    done(what, waiter).await.expect("the lock is granted")
}

async fn unlock(guard: Guard<Fair>) {
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
}
