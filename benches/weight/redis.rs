//! `make weight`: the README's program by redis-rs alone, without waiting, renewal or repetition.

use redis::{RedisError, Script, cmd};

const RELEASE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

#[tokio::main]
async fn main() -> Result<(), RedisError> {
    let client = redis::Client::open("redis://127.0.0.1:6379")?;
    let mut connection = client.get_multiplexed_async_connection().await?;
    let mut set = cmd("SET");
    set.arg(&["order:42", "owner", "NX", "PX", "30000"]);
    let taken: Option<String> = set.query_async(&mut connection).await?;
    if taken.is_some() {
        let release = Script::new(RELEASE);
        let _: i64 = release
            .key("order:42")
            .arg("owner")
            .invoke_async(&mut connection)
            .await?;
    }
    Ok(())
}
