//! The locks of the tests, and the threads and tasks that use them.

use std::fmt;
use std::time::{Duration, Instant};

use testbed::peer::{Answer, Peer};
use testbed::{eventually, unique_name};

use crate::kinds::Kind;
use crate::stage::AMPLE;

/// A lock that no other test uses.
#[derive(Clone, Debug)]
pub struct Lock {
    pub name: String,
    pub kind: &'static Kind,
}

impl Lock {
    pub fn new(kind: &'static Kind) -> Self {
        let name = (kind.lock)(&unique_name(kind.name));
        Self { name, kind }
    }

    /// The lock of the kind that other owners cannot acquire while this one is held.
    pub fn rival(&self) -> Self {
        self.of(self.kind.rival)
    }

    /// A lock of another kind with the same name.
    pub fn of(&self, kind: &'static Kind) -> Self {
        let name = self.name.clone();
        Self { name, kind }
    }

    /// A new thread or task that uses this lock.
    pub fn worker<'a>(&self, peer: &'a Peer) -> Worker<'a> {
        Worker {
            peer,
            label: unique_name("worker"),
            lock: self.clone(),
        }
    }
}

/// A thread of the Java service or a task of the Rust service, and its lock. Each method starts its
/// request at once, and the future is only the answer.
pub struct Worker<'a> {
    pub peer: &'a Peer,
    pub label: String,
    pub lock: Lock,
}

impl fmt::Display for Worker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.peer.name().fmt(f)
    }
}

impl Worker<'_> {
    /// The same thread or task, with a lock of another kind of the same name.
    pub fn with(&self, kind: &'static Kind) -> Self {
        Self {
            peer: self.peer,
            label: self.label.clone(),
            lock: self.lock.of(kind),
        }
    }

    pub fn ask(&self, verb: &str, args: &[&str]) -> impl Future<Output = Answer> + Send + use<> {
        let lock = format!("{}:{}", self.lock.kind.name, self.lock.name);
        self.peer.ask(&self.label, &[&[verb, &lock], args].concat())
    }

    /// Like [`ask`](Self::ask), for `VERB`, or for `KIND.VERB` with a lock of another kind of the
    /// same name.
    pub fn ask_for(
        &self,
        verb: &str,
        args: &[&str],
    ) -> impl Future<Output = Answer> + Send + use<> {
        let (kind, verb) = verb.split_once('.').unwrap_or((self.lock.kind.name, verb));
        let lock = format!("{kind}:{}", self.lock.name);
        self.peer.ask(&self.label, &[&[verb, &lock], args].concat())
    }

    /// Like [`ask`](Self::ask), for a request that must succeed. Returns its first value.
    fn get(&self, verb: &str, args: &[&str]) -> impl Future<Output = String> + Send + use<> {
        let what = format!("{self}: {verb} {args:?}");
        let answer = self.ask(verb, args);
        async move {
            match answer.await {
                Ok(values) => values.into_iter().next().unwrap_or_default(),
                Err(refused) => panic!("{what}: {refused}"),
            }
        }
    }

    /// Acquires the lock, and returns the time of the grant in epoch ms.
    pub fn lock(&self) -> impl Future<Output = u64> + Send + use<> {
        inside(self.ask("lock", &[]))
    }

    /// Like [`lock`](Self::lock), with a fixed lease.
    pub fn lock_for(&self, lease: Duration) -> impl Future<Output = u64> + Send + use<> {
        inside(self.ask("lock", &[&lease.as_millis().to_string()]))
    }

    pub async fn try_lock(&self) -> bool {
        self.get("trylock", &[]).await == "true"
    }

    /// Tries to acquire the lock within `wait`. Returns whether it did, and the elapsed time.
    pub async fn try_lock_for(&self, wait: Duration) -> (bool, Duration) {
        let wait = wait.as_millis().to_string();
        let began = Instant::now();
        let values = loop {
            match self.ask("trylock", &[&wait]).await {
                Ok(values) => break values,
                // Redisson subscribes within the wait, and a busy machine may be too slow for that. It has not acquired the lock.
                Err(refused)
                    if began.elapsed() < AMPLE
                        && refused
                            .message
                            .contains("Unable to acquire subscription lock") => {}
                Err(refused) => panic!("{self}: {refused}"),
            }
        };
        let elapsed = values[2].parse().expect("a number of ms");
        (values[0] == "true", Duration::from_millis(elapsed))
    }

    /// Acquires the lock, and returns the fencing token.
    pub async fn token(&self) -> i64 {
        let answer = self.ask("lock", &[]).await;
        let values = answer.unwrap_or_else(|refused| panic!("{self}: {refused}"));
        values[3].parse().expect("a token")
    }

    /// Ends the current wait: with an interrupt in Java, with a dropped future in Rust.
    pub async fn interrupt(&self) {
        let interrupted = self.peer.ask("interrupter", &["interrupt", &self.label]);
        interrupted
            .await
            .unwrap_or_else(|refused| panic!("{self}: {refused}"));
    }

    pub async fn unlock(&self) {
        self.get("unlock", &[]).await;
    }

    /// Unlocks a lock whose slot moves. Redisson's call may fail meanwhile with an unknown result
    /// (`Unexpected exception while processing command`, or an undiscovered node;
    /// measured with 4.7.0). The call is repeated until it succeeds.
    pub async fn unlock_while_it_moves(&self) {
        let mut doubt = false;
        let unlocked = async || match self.ask("unlock", &[]).await {
            Ok(_) => true,
            Err(refused)
                if ["RedisException", "RedisNodeNotFoundException"].contains(&&*refused.class) =>
            {
                doubt = true;
                false
            }
            Err(refused) if doubt && refused.class == "IllegalMonitorStateException" => true,
            Err(refused) => panic!("{self}: unlock: {refused}"),
        };
        eventually("the lock is released", AMPLE, unlocked).await;
    }

    /// An unlock that must be refused. Returns the error.
    pub async fn refused_unlock(&self) -> String {
        match self.ask("unlock", &[]).await {
            Ok(_) => panic!("{self}: the unlock was not refused"),
            Err(refused) => refused.class,
        }
    }

    pub async fn force_unlock(&self) -> bool {
        self.get("forceunlock", &[]).await == "true"
    }

    pub async fn is_locked(&self) -> bool {
        self.get("islocked", &[]).await == "true"
    }

    pub async fn is_held(&self) -> bool {
        self.get("isheld", &[]).await == "true"
    }

    pub async fn hold_count(&self) -> u32 {
        let count = self.get("holdcount", &[]).await;
        count.parse().expect("a number of holds")
    }

    /// The rest of the lease in ms.
    pub async fn remaining(&self) -> i64 {
        let left = self.get("ttl", &[]).await;
        left.parse().expect("a number of ms")
    }

    /// The worker as an owner.
    pub async fn owner(&self) -> String {
        let number = self.get("threadid", &[]).await;
        format!("{}:{number}", self.peer.client_id())
    }

    /// The worker's field in the lock's hash.
    pub async fn field(&self) -> String {
        self.owner().await + self.lock.kind.field_ends
    }
}

async fn inside(answer: impl Future<Output = Answer>) -> u64 {
    match answer.await {
        Ok(values) => {
            assert_eq!(values[0], "true", "not acquired: {values:?}");
            values[1].parse().expect("epoch ms")
        }
        Err(refused) => panic!("not acquired: {refused}"),
    }
}
