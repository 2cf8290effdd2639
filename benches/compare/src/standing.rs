//! Holds and waits that outlast a command: the same code for every lock in Rust.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    command::Command,
    failure::{Failure, unsupported},
    kind::Kind,
    round::now,
};

/// The number of locks that are acquired or released at the same time.
const AT_A_TIME: usize = 64;

/// A client that locks by kind and name.
pub trait Locker: Clone + Send + Sync + 'static {
    type Held: Send + 'static;

    fn lock(
        &self,
        kind: Kind,
        name: Arc<str>,
    ) -> impl Future<Output = Result<Self::Held, Failure>> + Send;

    fn unlock(&self, held: Self::Held) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// The holds and the waits of a peer.
pub struct Standing<L: Locker> {
    locker: L,
    held: Option<L::Held>,
    turns: Vec<JoinHandle<Result<u64, Failure>>>,
    many: Vec<L::Held>,
    waiting: Vec<JoinHandle<Result<L::Held, Failure>>>,
}

impl<L: Locker> Standing<L> {
    pub fn new(locker: L) -> Self {
        Self {
            locker,
            held: None,
            turns: Vec::new(),
            many: Vec::new(),
            waiting: Vec::new(),
        }
    }

    /// Answers the commands from `hold` to `give-up`.
    pub async fn answer(&mut self, command: Command) -> Result<Value, Failure> {
        match command {
            Command::Hold { kind, name } => {
                self.held = Some(self.locker.lock(kind, name.into()).await?);
            }
            Command::Wait { kind, name, tasks } => {
                let name: Arc<str> = name.into();
                let turns = (0..tasks).map(|_| {
                    let (locker, name) = (self.locker.clone(), name.clone());
                    tokio::spawn(async move {
                        let held = locker.lock(kind, name).await?;
                        let now = now()?;
                        locker.unlock(held).await?;
                        Ok(now)
                    })
                });
                self.turns.extend(turns);
            }
            Command::Free => {
                let held = self.held.take().ok_or("nothing is held")?;
                let now = now()?;
                self.locker.unlock(held).await?;
                return Ok(now.into());
            }
            Command::Times => {
                let mut times = Vec::new();
                for turn in self.turns.drain(..) {
                    times.push(turn.await??);
                }
                return Ok(json!(times));
            }
            Command::HoldMany { prefix, count } => self.hold_many(&prefix, count).await?,
            Command::FreeMany => self.free_many().await?,
            Command::WaitMany {
                prefix,
                count,
                names,
            } => self.wait_many(&prefix, count, names),
            Command::GiveUp => self.give_up().await,
            _ => return unsupported("not this peer's"),
        }
        Ok(true.into())
    }

    async fn hold_many(&mut self, prefix: &str, count: usize) -> Result<(), Failure> {
        let taking = (0..count).map(|i| {
            let name = format!("{prefix}:{i}").into();
            self.locker.lock(Kind::Reentrant, name)
        });
        let taking = stream::iter(taking).buffer_unordered(AT_A_TIME);
        self.many = taking.try_collect().await?;
        Ok(())
    }

    async fn free_many(&mut self) -> Result<(), Failure> {
        let (locker, many) = (&self.locker, self.many.drain(..));
        let freeing = many.map(|held| locker.unlock(held));
        let freeing = stream::iter(freeing).buffer_unordered(AT_A_TIME);
        freeing.try_collect().await
    }

    fn wait_many(&mut self, prefix: &str, count: usize, names: usize) {
        let names: Vec<Arc<str>> = (0..names).map(|i| format!("{prefix}:{i}").into()).collect();
        let names = names.iter().cycle().take(count).cloned();
        self.waiting = names
            .map(|name| {
                let locker = self.locker.clone();
                tokio::spawn(async move { locker.lock(Kind::Reentrant, name).await })
            })
            .collect();
    }

    async fn give_up(&mut self) {
        for waiting in &self.waiting {
            waiting.abort();
        }
        for waiting in self.waiting.drain(..) {
            let _ = waiting.await;
        }
    }
}
