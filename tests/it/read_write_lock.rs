//! Tests of the read-write lock only: its two sides and their leases (pitfalls RW, R, W).

mod cost;
mod leases;
mod readers;
mod sides;

use redisson_lock::{LockClient, Owner, ReadWriteLock};
use testbed::unique_name;

use crate::witness::Witness;

/// One read-write lock and its keys.
struct Shelf {
    witness: Witness,
    name: String,
}

impl Shelf {
    async fn new() -> Self {
        Self {
            witness: Witness::new().await,
            name: unique_name("rw"),
        }
    }

    fn lock(&self, client: &LockClient) -> ReadWriteLock {
        client.read_write_lock(&self.name)
    }

    fn channel(&self) -> String {
        format!("redisson_rwlock:{{{}}}", self.name)
    }

    async fn mode(&self) -> Option<String> {
        self.witness.ask(&["HGET", &self.name, "mode"]).await
    }

    async fn pttl(&self) -> i64 {
        self.witness.pttl(&self.name).await
    }

    async fn is_free(&self) -> bool {
        !self.witness.exists(&self.name).await
    }

    /// The key of a read hold's lease.
    fn marker(&self, owner: &str, hold: u32) -> String {
        format!("{{{}}}:{owner}:rwlock_timeout:{hold}", self.name)
    }

    /// A reader of Redisson with one hold.
    async fn java_reads(&self, thread: u32, lease: i64) -> String {
        let owner = format!("33333333-3333-4333-8333-333333333333:{thread}");
        let lease = lease.to_string();
        let () = self
            .witness
            .ask(&["HSET", &self.name, "mode", "read", &owner, "1"])
            .await;
        let marker = self.marker(&owner, 1);
        let () = self.witness.ask(&["SET", &marker, "1", "PX", &lease]).await;
        let left = self.pttl().await;
        if left < lease.parse().unwrap() {
            let () = self.witness.ask(&["PEXPIRE", &self.name, &lease]).await;
        }
        owner
    }
}

/// The current task's owner in Redis.
fn me(client: &LockClient) -> String {
    entry(client, Owner::current())
}

fn entry(client: &LockClient, owner: Owner) -> String {
    format!("{}:{owner}", client.id())
}
