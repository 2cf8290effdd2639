//! redis-rs by itself: one multiplexed connection, one `EVALSHA` per operation.

use std::{sync::Arc, time::Duration};

use redis::{AsyncConnectionConfig, Script, aio::MultiplexedConnection};

use crate::{
    round::{Client, Failure, Task},
    scripts::{ACQUIRE, LEASE_MILLIS, Lock, RELEASE},
};

/// Its default of half a second could fail a round on a busy machine.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct RawRedis {
    connection: MultiplexedConnection,
    scripts: Arc<(Script, Script)>,
}

impl RawRedis {
    pub async fn connect(url: &str) -> Result<Self, Failure> {
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
}

pub struct RedisTask {
    connection: MultiplexedConnection,
    scripts: Arc<(Script, Script)>,
    lock: Lock,
}

impl Client for RawRedis {
    type Task = RedisTask;

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
        crate::round::check(busy, released)
    }
}
