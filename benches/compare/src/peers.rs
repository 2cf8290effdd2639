//! Who is compared.

use redisson_lock::{Kind, Lock, LockClient};
use testbed::Server;
use tokio::runtime::{Builder, Runtime};

use crate::{
    multi::Held,
    ours::{self, Ours},
    queue::Queue,
    raw_fred::RawFred,
    raw_redis::RawRedis,
    redisson::Redisson,
    round::{self, Client, Failure, Round, Times},
    workload::{LockKind, Workload},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    Ours,
    Fred,
    RedisRs,
    Redisson,
}

impl Name {
    pub const ALL: [Self; 4] = [Self::Ours, Self::Fred, Self::RedisRs, Self::Redisson];

    pub fn text(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Fred => "fred",
            Self::RedisRs => "redis-rs",
            Self::Redisson => "redisson",
        }
    }

    pub fn read(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.text() == text)
    }

    /// Whose failure it is.
    fn failed(self, error: Failure) -> Failure {
        format!("{}: {error}", self.text()).into()
    }
}

/// A peer, connected, with a runtime or a JVM of its own.
pub struct Peer {
    means: Means,
    url: String,
    /// Two more processes, from the first queue on.
    queue: Option<Queue>,
}

enum Means {
    Ours(Workers, LockClient),
    Fred(Workers, RawFred),
    RedisRs(Workers, RawRedis),
    Redisson(Redisson),
}

impl Peer {
    pub async fn connect(name: Name, url: &str) -> Result<Self, Failure> {
        let means = Means::connect(name, url.to_owned()).await;
        let means = means.map_err(|error| name.failed(error))?;
        Ok(Self {
            means,
            url: url.to_owned(),
            queue: None,
        })
    }

    pub fn name(&self) -> Name {
        match self.means {
            Means::Ours(..) => Name::Ours,
            Means::Fred(..) => Name::Fred,
            Means::RedisRs(..) => Name::RedisRs,
            Means::Redisson(_) => Name::Redisson,
        }
    }

    /// Whether it is a lock, which the raw clients are not: they neither wait nor know kinds.
    pub fn is_lock(&self) -> bool {
        matches!(self.name(), Name::Ours | Name::Redisson)
    }

    /// Whether the peer can do it.
    pub fn takes_part(&self, workload: Workload) -> bool {
        let reentrant = LockKind::Reentrant;
        self.is_lock() || matches!(workload, Workload::Pair { kind, .. } if kind == reentrant)
    }

    pub async fn round(
        &mut self,
        server: &Server,
        workload: Workload,
        times: Times,
    ) -> Result<Round, Failure> {
        let name = self.name();
        let done = match workload {
            Workload::Pair { kind, tasks } => self.means.pairs(kind, tasks, times).await,
            Workload::Handoff => self.means.handoffs(&self.url, times).await,
            Workload::Queue => self.queues(server, times).await,
        };
        done.map_err(|error| name.failed(error))
    }

    async fn queues(&mut self, server: &Server, times: Times) -> Result<Round, Failure> {
        let queue = match &mut self.queue {
            Some(queue) => queue,
            None => self
                .queue
                .insert(Queue::start(self.name(), &self.url).await?),
        };
        Round::new(queue.round(server, times).await?, times)
    }

    /// Takes a multi-lock over the names, and says how many microseconds that took.
    pub async fn take(&mut self, names: &[String]) -> Result<(Held, f64), Failure> {
        let name = self.name();
        let taken = match &mut self.means {
            Means::Ours(workers, client) => {
                let taking = ours::take(client.clone(), names.to_vec());
                let taken = workers.run(taking).await;
                taken.map(|(guard, micros)| (Held::Ours(guard), micros))
            }
            Means::Redisson(jvm) => jvm.take(names).await.map(|micros| (Held::Redisson, micros)),
            Means::Fred(..) | Means::RedisRs(..) => Err(NO_LOCK.into()),
        };
        taken.map_err(|error| name.failed(error))
    }

    /// Releases what [`take`](Self::take) has taken: likewise.
    pub async fn release(&mut self, held: Held) -> Result<f64, Failure> {
        let name = self.name();
        let released = match (&mut self.means, held) {
            (Means::Ours(workers, _), Held::Ours(guard)) => workers.run(ours::release(guard)).await,
            (Means::Redisson(jvm), Held::Redisson) => jvm.release().await,
            _ => Err("held by another".into()),
        };
        released.map_err(|error| name.failed(error))
    }
}

const NO_LOCK: &str = "a raw client is no lock";

impl Means {
    async fn connect(name: Name, url: String) -> Result<Self, Failure> {
        if name == Name::Redisson {
            return Ok(Self::Redisson(Redisson::start(&url).await?));
        }
        let workers = Workers::new()?;
        Ok(match name {
            Name::Fred => {
                let client = workers.run(async move { RawFred::connect(&url).await });
                let client = client.await?;
                Self::Fred(workers, client)
            }
            Name::RedisRs => {
                let client = workers.run(async move { RawRedis::connect(&url).await });
                let client = client.await?;
                Self::RedisRs(workers, client)
            }
            _ => {
                let client = workers.run(async move { Ok(LockClient::connect(&url).await?) });
                let client = client.await?;
                Self::Ours(workers, client)
            }
        })
    }

    async fn pairs(
        &mut self,
        kind: LockKind,
        tasks: usize,
        times: Times,
    ) -> Result<Round, Failure> {
        match self {
            Self::Ours(workers, client) => {
                let of = PairsOf {
                    workers,
                    client,
                    tasks,
                    times,
                };
                of.kind(kind).await
            }
            Self::Redisson(jvm) => jvm.pair(kind, tasks, times).await,
            _ if kind != LockKind::Reentrant => Err(NO_LOCK.into()),
            Self::Fred(workers, client) => workers.pairs(client, tasks, times).await,
            Self::RedisRs(workers, client) => workers.pairs(client, tasks, times).await,
        }
    }

    async fn handoffs(&mut self, url: &str, times: Times) -> Result<Round, Failure> {
        match self {
            Self::Ours(workers, _) => {
                let measured = workers.run(ours::handoff(url.to_owned(), times)).await?;
                Round::new(measured, times)
            }
            Self::Redisson(jvm) => jvm.handoff(times).await,
            Self::Fred(..) | Self::RedisRs(..) => Err(NO_LOCK.into()),
        }
    }
}

/// Pairs of this crate, of whatever kind.
struct PairsOf<'a> {
    workers: &'a Workers,
    client: &'a LockClient,
    tasks: usize,
    times: Times,
}

impl PairsOf<'_> {
    async fn kind(&self, kind: LockKind) -> Result<Round, Failure> {
        match kind {
            LockKind::Reentrant => self.run(|client, name| client.reentrant_lock(name)).await,
            LockKind::Fair => self.run(|client, name| client.fair_lock(name)).await,
            LockKind::Read => {
                self.run(|client, name| client.read_write_lock(name).read().clone())
                    .await
            }
            LockKind::Write => {
                self.run(|client, name| client.read_write_lock(name).write().clone())
                    .await
            }
            LockKind::Fenced => self.run(|client, name| client.fenced_lock(name)).await,
        }
    }

    async fn run<K: Kind>(
        &self,
        lock: fn(&LockClient, String) -> Lock<K>,
    ) -> Result<Round, Failure> {
        let client = self.client.clone();
        let ours = Ours { client, lock };
        self.workers.pairs(&ours, self.tasks, self.times).await
    }
}

/// The runtime of one peer, which lives as long as the process: two threads, as many as the smallest machine has.
pub struct Workers(&'static Runtime);

impl Workers {
    pub fn new() -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        Ok(Self(Box::leak(Box::new(runtime))))
    }

    pub async fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        self.0.spawn(future).await?
    }

    async fn pairs<C: Client>(
        &self,
        client: &C,
        tasks: usize,
        times: Times,
    ) -> Result<Round, Failure> {
        let client = client.clone();
        let measured = self
            .run(async move { round::pairs(&client, tasks, times).await })
            .await?;
        Round::new(measured, times)
    }
}
