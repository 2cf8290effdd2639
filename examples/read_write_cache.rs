//! A catalogue on a shared disk, read by many instances and rebuilt by one: `cargo run --example read_write_cache`.
//!
//! The server is that of `REDIS_URL`, or `redis://127.0.0.1:6379`. Java takes part with `redisson.getReadWriteLock("catalogue")`.

use std::{fs, io, path::PathBuf, time::Duration};

use redisson_lock::{Error, LockClient, ReadWriteLock};

/// Two files that belong together: the entries, and their number.
struct Catalogue {
    lock: ReadWriteLock,
    folder: PathBuf,
}

impl Catalogue {
    fn new(locks: &LockClient, folder: PathBuf) -> Self {
        Self {
            lock: locks.read_write_lock("catalogue"),
            folder,
        }
    }

    /// All entries, never those of half a rebuild.
    async fn read(&self) -> Result<io::Result<Vec<String>>, Error> {
        self.lock.read().run(async |_guard| self.load()).await
    }

    /// Rewrites the entries without readers. Returns whether they changed.
    async fn rebuild(
        &self,
        entries: &[String],
        pause: Duration,
    ) -> Result<io::Result<bool>, Error> {
        let body = async |_guard: &_| {
            // The previous holder may have rebuilt them.
            if self.load().is_ok_and(|found| found == entries) {
                return Ok(false);
            }
            fs::write(self.folder.join("entries"), entries.join("\n"))?;
            // The disk is slow: meanwhile the files do not belong together.
            tokio::time::sleep(pause).await;
            fs::write(self.folder.join("count"), entries.len().to_string())?;
            Ok(true)
        };
        self.lock.write().run(body).await
    }

    fn load(&self) -> io::Result<Vec<String>> {
        let text = fs::read_to_string(self.folder.join("entries"))?;
        let entries: Vec<_> = text.lines().map(str::to_owned).collect();
        match fs::read_to_string(self.folder.join("count"))? == entries.len().to_string() {
            true => Ok(entries),
            false => Err(io::Error::other("the files do not belong together")),
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let locks = LockClient::connect(url).await?;
    let folder = std::env::temp_dir().join("redisson-lock-catalogue");
    fs::create_dir_all(&folder)?;
    let catalogue = Catalogue::new(&locks, folder);
    let entries = ["apple", "pear", "plum"].map(str::to_owned);
    let changed = catalogue
        .rebuild(&entries, Duration::from_millis(100))
        .await??;
    println!("{}", if changed { "rebuilt" } else { "up to date" });
    println!("{:?}", catalogue.read().await??);
    Ok(())
}

#[cfg(test)]
mod tests {
    use redisson_lock_test::InMemoryRedis;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_never_sees_half_a_rebuild() {
        let server = InMemoryRedis::new();
        let folder = std::env::temp_dir().join(format!("catalogue-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mut instances = Vec::new();
        for _ in 0..4 {
            let locks = server.client().await.unwrap();
            instances.push(Catalogue::new(&locks, folder.clone()));
        }
        let writer = instances.pop().unwrap();
        let of = |length: usize| -> Vec<_> { (0..length).map(|n| n.to_string()).collect() };
        let pause = Duration::from_millis(50);
        assert!(writer.rebuild(&of(1), pause).await.unwrap().unwrap());
        assert!(!writer.rebuild(&of(1), pause).await.unwrap().unwrap());
        let mut readers = tokio::task::JoinSet::new();
        for instance in instances {
            readers.spawn(async move {
                for _ in 0..30 {
                    let entries = instance
                        .read()
                        .await
                        .unwrap()
                        .expect("a reader saw half a rebuild");
                    assert!(!entries.is_empty());
                    tokio::time::sleep(Duration::from_millis(7)).await;
                }
            });
        }
        for length in 2..6 {
            assert!(writer.rebuild(&of(length), pause).await.unwrap().unwrap());
        }
        readers.join_all().await;
        assert_eq!(writer.read().await.unwrap().unwrap(), of(5));
        fs::remove_dir_all(folder).unwrap();
    }
}
