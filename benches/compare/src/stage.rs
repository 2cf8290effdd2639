//! The server that all peers are measured on, and the commands to peers.

use std::time::{Duration, Instant};

use compare::{Command, Failure};
use serde::de::DeserializeOwned;
use serde_json::Value;
use testbed::{Proxy, Server};

use crate::{
    counters::{Counters, Observer, Used},
    options::Plan,
    program::Program,
};

/// The latency of a far process, in each direction.
const ONE_WAY: Duration = Duration::from_millis(5);

/// The URL of a proxy, without a parameter of this crate.
pub fn plain_url(proxy: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", proxy.port())
}

/// The server that all peers are measured on, with its observer and its proxies.
pub struct Stage {
    pub server: Server,
    pub observer: Observer,
    pub plan: Plan,
    pub began: Instant,
    /// A proxy in front of the server that loses segments.
    lossy: Option<Proxy>,
    /// A proxy in front of the server with a latency.
    far: Option<Proxy>,
}

/// A peer's answer, and its cost.
pub struct Answered {
    pub value: Value,
    pub used: Used,
    pub client_cpu_seconds: f64,
}

impl Stage {
    pub async fn set_up(plan: Plan) -> Self {
        let server = Server::start().await;
        Self {
            observer: Observer::of(&server).await,
            server,
            plan,
            began: Instant::now(),
            lossy: None,
            far: None,
        }
    }

    pub async fn counters(&mut self) -> Result<Counters, Failure> {
        self.observer.counters().await
    }

    pub async fn proxy(&mut self) -> &Proxy {
        if self.lossy.is_none() {
            self.lossy = Some(Proxy::start(self.server.port()).await);
        }
        self.lossy.as_ref().expect("it was just started")
    }

    /// The proxy that a far process connects to.
    pub async fn far(&mut self) -> &Proxy {
        if self.far.is_none() {
            let proxy = Proxy::start(self.server.port()).await;
            proxy.faults().delay(ONE_WAY);
            proxy.faults().delay_replies(ONE_WAY);
            self.far = Some(proxy);
        }
        self.far.as_ref().expect("it was just started")
    }

    /// Sends a command, and reads the counters before and after it.
    pub async fn ask(
        &mut self,
        program: &mut Program,
        command: &Command,
    ) -> Result<Answered, Failure> {
        let cpu = program.cpu_seconds()?;
        let before = self.counters().await?;
        let value = program.ask(command).await?;
        let used = before.until(&self.counters().await?);
        Ok(Answered {
            value,
            used,
            client_cpu_seconds: program.cpu_seconds()? - cpu,
        })
    }
}

pub async fn asked<T: DeserializeOwned>(
    program: &mut Program,
    command: &Command,
) -> Result<T, Failure> {
    Ok(serde_json::from_value(program.ask(command).await?)?)
}

/// Waits until `so` returns a value. Calls it every millisecond.
pub async fn until<T>(
    what: &str,
    within: Duration,
    mut so: impl AsyncFnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let start = Instant::now();
    while start.elapsed() < within {
        if let Some(found) = so().await? {
            return Ok(found);
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err(format!("{what} within {within:?}").into())
}
