//! redis-rs by itself, and no lock: one multiplexed connection, one `EVALSHA` per operation.

use std::{process::ExitCode, sync::Arc, time::Duration};

use compare::{
    Command, Failure, Peer, Task, round,
    scripts::{ACQUIRE, LEASE_MILLIS, Lock, RELEASE, check, pairs_only},
    serve,
};
use redis::{AsyncConnectionConfig, Script, aio::MultiplexedConnection};

fn main() -> ExitCode {
    serve::<RawRedis>()
}

/// Its default of half a second could fail a round on a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

struct RawRedis {
    connection: MultiplexedConnection,
    scripts: Arc<(Script, Script)>,
}

impl Peer for RawRedis {
    async fn connect(url: String) -> Result<Self, Failure> {
        let config = AsyncConnectionConfig::new().set_response_timeout(Some(ANSWER_WITHIN));
        let mut connection = redis::Client::open(url)?
            .get_multiplexed_async_connection_with_config(&config)
            .await?;
        let scripts = Arc::new((Script::new(ACQUIRE), Script::new(RELEASE)));
        scripts.0.load_async(&mut connection).await?;
        scripts.1.load_async(&mut connection).await?;
        Ok(Self {
            connection,
            scripts,
        })
    }

    async fn answer(&mut self, command: Command) -> Result<serde_json::Value, Failure> {
        let (tasks, times) = pairs_only(command)?;
        let tasks = (0..tasks).map(|number| self.task(number));
        Ok(serde_json::to_value(round::pairs(tasks, times).await?)?)
    }
}

struct RedisTask {
    connection: MultiplexedConnection,
    scripts: Arc<(Script, Script)>,
    lock: Lock,
}

impl RawRedis {
    fn task(&self, number: usize) -> RedisTask {
        RedisTask {
            connection: self.connection.clone(),
            scripts: self.scripts.clone(),
            lock: Lock::of_task(number),
        }
    }
}

impl Task for RedisTask {
    async fn pair(&mut self) -> Result<(), Failure> {
        let (acquire, release) = &*self.scripts;
        let Lock {
            key,
            channel,
            owner,
        } = &self.lock;
        let busy = acquire
            .key(key)
            .arg(LEASE_MILLIS)
            .arg(owner)
            .invoke_async(&mut self.connection)
            .await?;
        let released = release
            .key(key)
            .arg(channel)
            .arg(LEASE_MILLIS)
            .arg(owner)
            .invoke_async(&mut self.connection)
            .await?;
        check(busy, released)
    }
}
