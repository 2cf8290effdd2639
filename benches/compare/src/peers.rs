//! Who is compared.

use tokio::runtime::{Builder, Runtime};

use crate::{
    ours::{self, Ours},
    raw_fred::RawFred,
    raw_redis::RawRedis,
    redisson::Redisson,
    round::{self, Client, Failure, Round, Times},
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
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Workload {
    /// `lock()` and `unlock()` by that many tasks, each on a key of its own.
    Pair { tasks: usize },
    /// `unlock()` by one client until the `lock()` that waits in another returns.
    Handoff,
}

/// A peer, connected, with a runtime or a JVM of its own.
pub enum Peer {
    Ours {
        workers: Workers,
        client: Ours,
        url: String,
    },
    Fred(Workers, RawFred),
    RedisRs(Workers, RawRedis),
    Redisson(Redisson),
}

impl Peer {
    pub async fn connect(name: Name, url: &str) -> Result<Self, Failure> {
        let connected = Self::connect_to(name, url.to_owned()).await;
        connected.map_err(|error| format!("{}: {error}", name.text()).into())
    }

    async fn connect_to(name: Name, url: String) -> Result<Self, Failure> {
        if name == Name::Redisson {
            return Ok(Self::Redisson(Redisson::start(&url).await?));
        }
        let workers = Workers::new()?;
        let to = url.clone();
        Ok(match name {
            Name::Fred => {
                let client = workers.run(async move { RawFred::connect(&to).await });
                let client = client.await?;
                Self::Fred(workers, client)
            }
            Name::RedisRs => {
                let client = workers.run(async move { RawRedis::connect(&to).await });
                let client = client.await?;
                Self::RedisRs(workers, client)
            }
            _ => {
                let client = workers.run(async move { Ours::connect(&to).await });
                let client = client.await?;
                Self::Ours {
                    workers,
                    client,
                    url,
                }
            }
        })
    }

    pub fn name(&self) -> Name {
        match self {
            Self::Ours { .. } => Name::Ours,
            Self::Fred(..) => Name::Fred,
            Self::RedisRs(..) => Name::RedisRs,
            Self::Redisson(_) => Name::Redisson,
        }
    }

    /// Whether the peer can do it: the raw clients do not wait for a lock.
    pub fn takes_part(&self, workload: Workload) -> bool {
        workload != Workload::Handoff || matches!(self, Self::Ours { .. } | Self::Redisson(_))
    }

    pub async fn round(&mut self, workload: Workload, times: Times) -> Result<Round, Failure> {
        let name = self.name().text();
        let done = match workload {
            Workload::Pair { tasks } => self.pairs(tasks, times).await,
            Workload::Handoff => self.handoffs(times).await,
        };
        done.map_err(|error| format!("{name}: {error}").into())
    }

    async fn pairs(&mut self, tasks: usize, times: Times) -> Result<Round, Failure> {
        match self {
            Self::Ours {
                workers, client, ..
            } => workers.pairs(client, tasks, times).await,
            Self::Fred(workers, client) => workers.pairs(client, tasks, times).await,
            Self::RedisRs(workers, client) => workers.pairs(client, tasks, times).await,
            Self::Redisson(jvm) => jvm.pair(tasks, times).await,
        }
    }

    async fn handoffs(&mut self, times: Times) -> Result<Round, Failure> {
        match self {
            Self::Ours { workers, url, .. } => {
                let measured = workers.run(ours::handoff(url.clone(), times)).await?;
                Round::new(measured, times)
            }
            Self::Redisson(jvm) => jvm.handoff(times).await,
            Self::Fred(..) | Self::RedisRs(..) => Err("a raw client does not wait".into()),
        }
    }
}

/// The runtime of one peer, which lives as long as the process: two threads, as many as the smallest machine has.
pub struct Workers(&'static Runtime);

impl Workers {
    fn new() -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?;
        Ok(Self(Box::leak(Box::new(runtime))))
    }

    async fn run<T: Send + 'static>(
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
