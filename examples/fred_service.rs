//! A shop that has a fred client for its data, and locks on the servers of that client: `cargo run --example fred_service`, in two
//! terminals.
//!
//! The server is that of `REDIS_URL`, or `redis://127.0.0.1:6379`. Servers, credentials and TLS are set once, for the fred client. Locks
//! have connections of their own, so a long command of the data delays no release and no renewal.

use std::error::Error;

use fred::prelude::{Builder, Client, ClientLike, Config, KeysInterface};
use redisson_lock::LockClient;

type Failure = Box<dyn Error + Send + Sync>;

/// The stock of the shop, with a number for each article.
struct Stock {
    data: Client,
    locks: LockClient,
}

impl Stock {
    async fn open(config: Config) -> Result<Self, Failure> {
        let data = Builder::from_config(config).build()?;
        let _task = data.init().await?;
        let locks = LockClient::builder().fred(&data).build().await?;
        Ok(Self { data, locks })
    }

    /// Puts `pieces` of an article into the stock, if it has no number yet.
    async fn fill(&self, article: &str, pieces: i64) -> Result<(), Failure> {
        let lock = self.locks.reentrant_lock(format!("sale:{article}"));
        let key = format!("stock:{article}");
        let filled = lock.run(async |_guard| {
            if self.data.get::<Option<i64>, _>(&key).await?.is_none() {
                let _: () = self.data.set(&key, pieces, None, None, false).await?;
            }
            Ok::<_, fred::error::Error>(())
        });
        Ok(filled.await??)
    }

    /// Sells a piece, and returns how many are left; none if it is sold out. Two sales at once would sell the last piece twice.
    async fn sell(&self, article: &str) -> Result<Option<i64>, Failure> {
        let lock = self.locks.reentrant_lock(format!("sale:{article}"));
        let key = format!("stock:{article}");
        // The loss of the lock cancels the body.
        let sold = lock.run(async |_guard| {
            let pieces: i64 = self.data.get(&key).await?;
            if pieces == 0 {
                return Ok(None);
            }
            let left = pieces - 1;
            let _: () = self.data.set(&key, left, None, None, false).await?;
            Ok::<_, fred::error::Error>(Some(left))
        });
        Ok(sold.await??)
    }

    /// The locks end first: their holders use the data.
    async fn close(self) -> Result<(), Failure> {
        self.locks.shutdown().await;
        Ok(self.data.quit().await?)
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let stock = Stock::open(Config::from_url(&url)?).await?;
    stock.fill("lamp", 10).await?;
    while let Some(left) = stock.sell("lamp").await? {
        println!("sold a lamp, {left} left");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    println!("sold out");
    stock.close().await
}

#[cfg(test)]
mod tests {
    use testbed::Server;
    use tokio::task::JoinSet;

    use super::*;

    const PASSWORD: &str = "s3cret";

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn no_piece_is_sold_twice_and_locks_log_in_as_the_fred_client_does() {
        let server = Server::start_with(&["--requirepass", PASSWORD]).await;
        let url = format!("redis://:{PASSWORD}@127.0.0.1:{}", server.port());
        let mut sales = JoinSet::new();
        for _ in 0..2 {
            let stock = Stock::open(Config::from_url(&url).unwrap()).await.unwrap();
            stock.fill("lamp", 20).await.unwrap();
            sales.spawn(async move {
                let mut sold = Vec::new();
                while let Some(left) = stock.sell("lamp").await.unwrap() {
                    sold.push(left);
                }
                stock.close().await.unwrap();
                sold
            });
        }
        let mut sold = sales.join_all().await.concat();
        sold.sort_unstable();
        assert_eq!(sold, Vec::from_iter(0..20));
    }

    #[tokio::test]
    async fn a_database_of_the_fred_client_has_the_locks_too() {
        let server = Server::start().await;
        let url = format!("redis://127.0.0.1:{}/3", server.port());
        let stock = Stock::open(Config::from_url(&url).unwrap()).await.unwrap();
        let guard = stock
            .locks
            .reentrant_lock("sale:lamp")
            .lock()
            .await
            .unwrap();
        let exists: i64 = stock.data.exists("sale:lamp").await.unwrap();
        assert_eq!(exists, 1);
        guard.unlock().await.unwrap();
        stock.close().await.unwrap();
    }
}
