//! The crate `rslock`: Redlock on one server, polled at random within 200 ms, with a lease that is not renewed.
//!
//! Its defaults; a lease of 30 s, as everybody's here.

use std::{process::ExitCode, sync::Arc, time::Duration, time::Instant};

use compare::{
    Command, Failure, Kind, Peer, Task,
    failure::unsupported,
    round,
    round::micros_since,
    scripts::key,
    serve,
    standing::{Locker, Standing},
};
use rslock::{LockGuard, LockManager};
use serde_json::{Value, json};

const LEASE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    serve::<Rslock>()
}

struct Rslock {
    url: String,
    locks: Locks,
    standing: Standing<Locks>,
}

#[derive(Clone)]
struct Locks(LockManager);

impl Peer for Rslock {
    async fn connect(url: String) -> Result<Self, Failure> {
        let locks = Locks(LockManager::new(vec![url.as_str()]));
        Ok(Self {
            url,
            standing: Standing::new(locks.clone()),
            locks,
        })
    }

    async fn answer(&mut self, command: Command) -> Result<Value, Failure> {
        match command {
            Command::Pair {
                kind: Kind::Reentrant,
                tasks,
                times,
            } => self.pairs((0..tasks).map(key), times).await,
            Command::Contend { name, tasks, times } => {
                self.pairs((0..tasks).map(|_| name.clone()), times).await
            }
            Command::Pair { .. } | Command::Mixed { .. } => unsupported("has one kind of lock"),
            Command::Take(_) | Command::Release => unsupported("has no multi-lock"),
            Command::Start => {
                let from = Instant::now();
                let locks = Locks(LockManager::new(vec![self.url.as_str()]));
                let held = locks.lock(Kind::Reentrant, "bench:start".into()).await?;
                let micros = micros_since(from);
                held.release().await;
                Ok(json!(micros))
            }
            other => self.standing.answer(other).await,
        }
    }
}

impl Rslock {
    async fn pairs(
        &self,
        names: impl Iterator<Item = String>,
        times: round::Times,
    ) -> Result<Value, Failure> {
        let tasks = names.map(|name| Pairs(self.locks.0.clone(), name));
        Ok(json!(round::pairs(tasks, times).await?))
    }
}

struct Pairs(LockManager, String);

impl Task for Pairs {
    async fn pair(&mut self) -> Result<(), Failure> {
        let Self(manager, name) = self;
        manager.acquire(name.as_str(), LEASE).await?.release().await;
        Ok(())
    }
}

impl Locker for Locks {
    type Held = LockGuard;

    async fn lock(&self, kind: Kind, name: Arc<str>) -> Result<LockGuard, Failure> {
        match kind {
            Kind::Reentrant => Ok(self.0.acquire(&*name, LEASE).await?),
            _ => unsupported("has one kind of lock"),
        }
    }

    async fn unlock(&self, held: LockGuard) -> Result<(), Failure> {
        held.release().await;
        Ok(())
    }
}
