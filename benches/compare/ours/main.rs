//! This crate: one `LockClient` with its defaults.

use std::{process::ExitCode, sync::Arc, time::Instant};

use compare::{
    Command, Failure, Kind, Peer, Round, Task, Times, round,
    round::micros_since,
    scripts::key,
    serve,
    standing::{Locker, Standing},
    turns::{self, Taken, TurnLock, Turned, Turns},
};
use redisson_lock::{
    EndpointKind, Fair, Fenced, Guard, Lock, LockClient, MultiGuard, MultiLock, Read,
    ReadWriteLock, Reentrant, Semaphore, Write,
};
use serde_json::{Value, json};

fn main() -> ExitCode {
    serve::<Ours>()
}

/// A proxy of the benchmark leads to one server, which cannot see the client's address.
async fn connect(url: &str) -> Result<LockClient, redisson_lock::Error> {
    let builder = LockClient::builder().url(url);
    builder.endpoint_kind(EndpointKind::Server).build().await
}

struct Ours {
    url: String,
    client: LockClient,
    /// Of `turns` that more than one client is to do.
    more: Vec<LockClient>,
    standing: Standing<Locks>,
    taken: Option<MultiGuard>,
}

impl Peer for Ours {
    async fn connect(url: String) -> Result<Self, Failure> {
        let client = connect(&url).await?;
        Ok(Self {
            url,
            standing: Standing::new(Locks(client.clone())),
            client,
            more: Vec::new(),
            taken: None,
        })
    }

    async fn answer(&mut self, command: Command) -> Result<Value, Failure> {
        Ok(match command {
            Command::Pair { kind, tasks, times } => json!(self.pairs(kind, tasks, times).await?),
            Command::Contend { name, tasks, times } => {
                let task = |_| Pairs(self.client.reentrant_lock(&name));
                json!(round::pairs((0..tasks).map(task), times).await?)
            }
            Command::Mixed {
                tasks,
                names,
                times,
            } => json!(self.mixed(tasks, names, times).await?),
            Command::Permits {
                tasks,
                permits,
                times,
            } => {
                let semaphore = self.client.semaphore("bench:permits");
                semaphore.drain_permits().await?;
                semaphore.add_permits(permits.into()).await?;
                let task = |_| Permits(semaphore.clone());
                json!(round::pairs((0..tasks).map(task), times).await?)
            }
            Command::Turns(turns) => json!(self.turns(&turns).await?),
            Command::Take(names) => {
                let lock = self.client.multi_lock(names);
                let from = Instant::now();
                self.taken = Some(lock.lock().await?);
                json!(micros_since(from))
            }
            Command::Release => {
                let taken = self.taken.take().ok_or("nothing is taken")?;
                let from = Instant::now();
                let _ = taken.unlock().await?;
                json!(micros_since(from))
            }
            Command::Start => self.start().await?,
            other => self.standing.answer(other).await?,
        })
    }
}

impl Ours {
    #[rustfmt::skip]
    async fn pairs(&self, kind: Kind, tasks: usize, times: Times) -> Result<Round, Failure> {
        let client = &self.client;
        let names = (0..tasks).map(key);
        match kind {
            Kind::Reentrant => round::pairs(names.map(|name| Pairs(client.reentrant_lock(name))), times).await,
            Kind::Fair => round::pairs(names.map(|name| Pairs(client.fair_lock(name))), times).await,
            Kind::Read => round::pairs(names.map(|name| Pairs(client.read_write_lock(name).read().clone())), times).await,
            Kind::Write => round::pairs(names.map(|name| Pairs(client.read_write_lock(name).write().clone())), times).await,
            Kind::Fenced => round::pairs(names.map(|name| Pairs(client.fenced_lock(name))), times).await,
        }
    }

    async fn mixed(&self, tasks: usize, names: usize, times: Times) -> Result<Round, Failure> {
        let locks: Arc<[_]> = (0..names)
            .map(|i| self.client.read_write_lock(format!("bench:mixed:{i}")))
            .collect();
        let tasks = (0..tasks).map(|task| ReadersAndWriters {
            locks: locks.clone(),
            turn: task,
        });
        round::pairs(tasks, times).await
    }

    #[rustfmt::skip]
    async fn turns(&mut self, turns: &Turns) -> Result<Turned, Failure> {
        while self.more.len() + 1 < turns.clients {
            self.more.push(connect(&self.url).await?);
        }
        let name = turns.names[0].as_str();
        match turns.taken {
            Taken::One(Kind::Reentrant) => self.run(turns, |client| Pairs(client.reentrant_lock(name))).await,
            Taken::One(Kind::Fair) => self.run(turns, |client| Pairs(client.fair_lock(name))).await,
            Taken::One(Kind::Read) => self.run(turns, |client| Pairs(client.read_write_lock(name).read().clone())).await,
            Taken::One(Kind::Write) => self.run(turns, |client| Pairs(client.read_write_lock(name).write().clone())).await,
            Taken::One(Kind::Fenced) => self.run(turns, |client| Pairs(client.fenced_lock(name))).await,
            Taken::Multi => self.run(turns, |client| Several(client.multi_lock(&turns.names))).await,
        }
    }

    async fn run<L: TurnLock>(
        &self,
        turns: &Turns,
        lock: impl Fn(&LockClient) -> L,
    ) -> Result<Turned, Failure> {
        let clients = std::iter::once(&self.client).chain(&self.more);
        let clients = clients.take(turns.clients);
        let locks = clients.flat_map(|client| (0..turns.tasks).map(|_| lock(client)));
        turns::run(locks.collect(), turns).await
    }

    async fn start(&self) -> Result<Value, Failure> {
        let from = Instant::now();
        let client = connect(&self.url).await?;
        let guard = client.reentrant_lock("bench:start").lock().await?;
        let micros = micros_since(from);
        let _ = guard.unlock().await?;
        client.shutdown().await;
        Ok(json!(micros))
    }
}

struct Pairs<K: redisson_lock::Kind>(Lock<K>);

impl<K: redisson_lock::Kind> Task for Pairs<K> {
    async fn pair(&mut self) -> Result<(), Failure> {
        let _ = self.0.lock().await?.unlock().await?;
        Ok(())
    }
}

impl<K: redisson_lock::Kind> TurnLock for Pairs<K> {
    type Held = Guard<K>;

    async fn lock(&self) -> Result<Guard<K>, Failure> {
        Ok(self.0.lock().await?)
    }

    async fn unlock(&self, held: Guard<K>) -> Result<(), Failure> {
        let _ = held.unlock().await?;
        Ok(())
    }
}

struct Permits(Semaphore);

impl Task for Permits {
    async fn pair(&mut self) -> Result<(), Failure> {
        self.0.acquire().await?.release().await?;
        Ok(())
    }
}

struct Several(MultiLock);

impl TurnLock for Several {
    type Held = MultiGuard;

    async fn lock(&self) -> Result<MultiGuard, Failure> {
        Ok(self.0.lock().await?)
    }

    async fn unlock(&self, held: MultiGuard) -> Result<(), Failure> {
        let _ = held.unlock().await?;
        Ok(())
    }
}

struct ReadersAndWriters {
    locks: Arc<[ReadWriteLock]>,
    turn: usize,
}

impl Task for ReadersAndWriters {
    async fn pair(&mut self) -> Result<(), Failure> {
        self.turn += 1;
        let lock = &self.locks[self.turn % self.locks.len()];
        let _ = if self.turn.is_multiple_of(10) {
            lock.write().lock().await?.unlock().await?
        } else {
            lock.read().lock().await?.unlock().await?
        };
        Ok(())
    }
}

#[derive(Clone)]
struct Locks(LockClient);

enum Held {
    Reentrant(Guard<Reentrant>),
    Fair(Guard<Fair>),
    Read(Guard<Read>),
    Write(Guard<Write>),
    Fenced(Guard<Fenced>),
}

impl Locker for Locks {
    type Held = Held;

    async fn lock(&self, kind: Kind, name: Arc<str>) -> Result<Held, Failure> {
        let Self(client) = self;
        let name = &*name;
        Ok(match kind {
            Kind::Reentrant => Held::Reentrant(client.reentrant_lock(name).lock().await?),
            Kind::Fair => Held::Fair(client.fair_lock(name).lock().await?),
            Kind::Read => Held::Read(client.read_write_lock(name).read().lock().await?),
            Kind::Write => Held::Write(client.read_write_lock(name).write().lock().await?),
            Kind::Fenced => Held::Fenced(client.fenced_lock(name).lock().await?),
        })
    }

    async fn unlock(&self, held: Held) -> Result<(), Failure> {
        let _ = match held {
            Held::Reentrant(guard) => guard.unlock().await?,
            Held::Fair(guard) => guard.unlock().await?,
            Held::Read(guard) => guard.unlock().await?,
            Held::Write(guard) => guard.unlock().await?,
            Held::Fenced(guard) => guard.unlock().await?,
        };
        Ok(())
    }
}
