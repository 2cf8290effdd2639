//! fred by itself, and no lock: one connection, one `EVALSHA` per operation.

use std::process::ExitCode;

use compare::{
    Command, Failure, Peer, Task, round,
    scripts::{ACQUIRE, LEASE_MILLIS, Lock, RELEASE, check, pairs_only},
    serve,
};
use fred::{
    clients::Client as FredClient,
    interfaces::{ClientLike, LuaInterface},
    types::{
        Builder, Key, RespVersion, Value,
        config::{Config, TcpConfig},
    },
};

fn main() -> ExitCode {
    serve::<RawFred>()
}

struct RawFred {
    client: FredClient,
    acquire: String,
    release: String,
}

impl Peer for RawFred {
    async fn connect(url: String) -> Result<Self, Failure> {
        let mut config = Config::from_url(&url)?;
        config.version = RespVersion::RESP3;
        let client = Builder::from_config(config)
            .with_connection_config(|connection| {
                connection.tcp = TcpConfig {
                    nodelay: Some(true),
                    ..TcpConfig::default()
                };
            })
            .build()?;
        client.init().await?;
        Ok(Self {
            acquire: client.script_load(ACQUIRE).await?,
            release: client.script_load(RELEASE).await?,
            client,
        })
    }

    async fn answer(&mut self, command: Command) -> Result<serde_json::Value, Failure> {
        let (tasks, times) = pairs_only(command)?;
        let tasks = (0..tasks).map(|number| self.task(number));
        Ok(serde_json::to_value(round::pairs(tasks, times).await?)?)
    }
}

struct FredTask {
    client: FredClient,
    key: Key,
    acquire: (fred::bytes_utils::Str, Vec<Value>),
    release: (fred::bytes_utils::Str, Vec<Value>),
}

impl RawFred {
    fn task(&self, number: usize) -> FredTask {
        let lock = Lock::of_task(number);
        let (owner, lease) = (Value::from(lock.owner), Value::from(LEASE_MILLIS));
        FredTask {
            client: self.client.clone(),
            key: lock.key.into(),
            acquire: (
                self.acquire.as_str().into(),
                vec![lease.clone(), owner.clone()],
            ),
            release: (
                self.release.as_str().into(),
                vec![lock.channel.into(), lease, owner],
            ),
        }
    }
}

impl FredTask {
    async fn run(
        &self,
        (hash, args): &(fred::bytes_utils::Str, Vec<Value>),
    ) -> fred::prelude::FredResult<Option<i64>> {
        self.client
            .evalsha(hash.clone(), self.key.clone(), args.clone())
            .await
    }
}

impl Task for FredTask {
    async fn pair(&mut self) -> Result<(), Failure> {
        let busy = self.run(&self.acquire).await?;
        let released = self.run(&self.release).await?;
        check(busy, released)
    }
}
