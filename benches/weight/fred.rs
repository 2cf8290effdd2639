//! `make weight`: the README's program by fred alone, without waiting, renewal or repetition.

use fred::prelude::{
    Builder, ClientLike, Config, Error, Expiration, KeysInterface, LuaInterface, SetOptions,
};

const RELEASE: &str =
    "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";

#[tokio::main]
async fn main() -> Result<(), Error> {
    let config = Config::from_url("redis://127.0.0.1:6379")?;
    let client = Builder::from_config(config).build()?;
    client.init().await?;
    let lease = Some(Expiration::PX(30_000));
    let taken: Option<String> = client
        .set("order:42", "owner", lease, Some(SetOptions::NX), false)
        .await?;
    if taken.is_some() {
        let _: i64 = client.eval(RELEASE, "order:42", "owner").await?;
    }
    client.quit().await
}
