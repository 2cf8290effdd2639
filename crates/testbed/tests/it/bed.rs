//! A server behind a proxy.

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, RedisResult};
use testbed::{Faults, Proxy, Server};

use crate::SOON;

const INCR: &str = "return redis.call('INCR', KEYS[1])";

pub struct Bed {
    pub server: Server,
    pub proxy: Proxy,
    pub faults: Faults,
}

impl Bed {
    pub async fn new() -> Self {
        let server = Server::start().await;
        let proxy = Proxy::start(server.port()).await;
        let faults = proxy.faults();
        Self {
            server,
            proxy,
            faults,
        }
    }

    pub async fn connect(&self) -> MultiplexedConnection {
        self.connect_with("").await.expect("the proxy lets us in")
    }

    pub async fn connect_with(&self, parameters: &str) -> RedisResult<MultiplexedConnection> {
        let url = format!("redis://127.0.0.1:{}/{parameters}", self.proxy.port());
        // Without it, requests wait for each other in the client's kernel.
        let tcp = TcpSettings::default().set_nodelay(true);
        let address = url
            .into_connection_info()
            .expect("the URL is good")
            .set_tcp_settings(tcp);
        let client = Client::open(address).expect("the address is good");
        let limits = AsyncConnectionConfig::new()
            .set_response_timeout(Some(SOON))
            .set_connection_timeout(Some(SOON));
        client
            .get_multiplexed_async_connection_with_config(&limits)
            .await
    }

    /// What the scripts have done, seen from behind the proxy.
    pub async fn counted(&self, key: &str) -> u64 {
        self.server
            .command::<Option<u64>>(&["GET", key])
            .await
            .unwrap_or(0)
    }
}

pub async fn incr(connection: &mut MultiplexedConnection, key: &str) -> RedisResult<u64> {
    redis::cmd("EVAL")
        .arg(INCR)
        .arg(1)
        .arg(key)
        .query_async(connection)
        .await
}

pub async fn ping(connection: &mut MultiplexedConnection) -> RedisResult<String> {
    redis::cmd("PING").query_async(connection).await
}
