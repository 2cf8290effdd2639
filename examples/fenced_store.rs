//! A store that compares fencing tokens, and a late holder: `cargo run --example fenced_store`.
//!
//! A holder is stopped for longer than its lease, another owner works, and the first holder continues unaware. No lock can prevent
//! its late write; a store that compares tokens refuses it. The example starts its own Redis server. The exit code is 0 if it
//! observed every printed event.

use std::{process::ExitCode, time::Duration};

use redisson_lock::{Error, LockClient};
use testbed::Server;

const LOCK: &str = "account:7";
/// Short, to keep the example short. A renewed lock ends too, when its holder is stopped for the 30 s of the watchdog's lease.
const LEASE: Duration = Duration::from_millis(500);

/// The store: a hash with a balance and the largest token of all writes. In SQL:
/// `update account set balance = $1, token = $2 where id = 7 and token <= $2`, and a check of the number of rows.
///
/// An equal token belongs to the same holder, which may write more than once.
const WRITE: &str = "
  local seen = tonumber(redis.call('HGET', KEYS[1], 'token') or 0)
  if tonumber(ARGV[1]) < seen then
    return 0
  end
  redis.call('HSET', KEYS[1], 'token', ARGV[1], 'balance', ARGV[2])
  return 1";

/// The reason of a failure.
type Failure = String;

#[tokio::main]
async fn main() -> ExitCode {
    // Boxed: the compiler limits the nesting of futures.
    match tokio::time::timeout(Duration::from_secs(60), Box::pin(play())).await {
        Ok(Ok(())) => return ExitCode::SUCCESS,
        Ok(Err(failure)) => println!("fenced_store: {failure}"),
        Err(_) => println!("fenced_store: not done after a minute"),
    }
    ExitCode::FAILURE
}

async fn play() -> Result<(), Failure> {
    let server = Server::start().await;
    println!("A store that accepts every write:");
    late_writer(&server, &Store::careless(&server)).await?;
    println!("\nA store that compares tokens:");
    late_writer(&server, &Store::guarded(&server)).await
}

/// One holder reads and is stopped, another holder adds 50, and the first resumes and adds 1.
async fn late_writer(server: &Server, store: &Store<'_>) -> Result<(), Failure> {
    let (slow, quick) = (connect(server).await?, connect(server).await?);
    store.set_up().await;

    let lock = slow.fenced_lock(LOCK).with_lease(LEASE);
    let stopped = lock.lock().await.map_err(told)?;
    let read = store.balance().await;
    println!(
        "  slow   holds the lock, token {}, reads {read} and is stopped",
        stopped.token()
    );

    // Waits until the lease of the stopped holder ends.
    let working = quick.fenced_lock(LOCK).lock().await.map_err(told)?;
    ensure(
        working.token() > stopped.token(),
        "the later holder's token is not larger",
    )?;
    let sum = store.balance().await + 50;
    let accepted = store.write(working.token(), sum).await;
    ensure(accepted, "the holder of the lock was refused")?;
    println!(
        "  quick  holds the lock, token {}, writes {sum}: accepted",
        working.token()
    );
    working.unlock().await.map_err(told)?;

    // The slow holder does not check its guard, which would report the loss.
    let accepted = store.write(stopped.token(), read + 1).await;
    let left = store.balance().await;
    let (word, outcome) = match accepted {
        true => ("accepted", "quick's 50 is gone"),
        false => ("refused", "nothing is lost"),
    };
    println!(
        "  slow   wakes and writes {} with token {}: {word}; the balance is {left}, {outcome}",
        read + 1,
        stopped.token()
    );
    let expected = if store.compares { sum } else { read + 1 };
    ensure(
        left == expected,
        &format!("the balance should be {expected}"),
    )?;

    ensure(stopped.is_lost(), "the guard should report the loss")?;
    let unlocked = stopped.unlock().await;
    ensure(
        matches!(unlocked, Err(Error::Lost { .. })),
        &format!("the unlock returned {unlocked:?}"),
    )?;
    println!("  slow   unlocks, and learns that it had lost the lock");
    Ok(())
}

struct Store<'a> {
    server: &'a Server,
    key: &'static str,
    compares: bool,
}

impl<'a> Store<'a> {
    fn careless(server: &'a Server) -> Self {
        Self {
            server,
            key: "balance, careless",
            compares: false,
        }
    }

    fn guarded(server: &'a Server) -> Self {
        Self {
            server,
            key: "balance, guarded",
            compares: true,
        }
    }

    async fn set_up(&self) {
        self.server
            .command::<()>(&["HSET", self.key, "balance", "100"])
            .await;
    }

    async fn balance(&self) -> i64 {
        self.server.command(&["HGET", self.key, "balance"]).await
    }

    /// Returns whether the store accepted the write.
    async fn write(&self, token: i64, balance: i64) -> bool {
        let (token, balance) = (token.to_string(), balance.to_string());
        if !self.compares {
            let words = ["HSET", self.key, "balance", &balance];
            self.server.command::<()>(&words).await;
            return true;
        }
        let words = ["EVAL", WRITE, "1", self.key, &token, &balance];
        self.server.command::<i64>(&words).await == 1
    }
}

async fn connect(server: &Server) -> Result<LockClient, Failure> {
    LockClient::connect(server.url()).await.map_err(told)
}

fn told(error: Error) -> Failure {
    error.to_string()
}

fn ensure(observed: bool, otherwise: &str) -> Result<(), Failure> {
    observed.then_some(()).ok_or_else(|| otherwise.to_owned())
}

#[tokio::test]
async fn the_story_of_the_example_is_observed() {
    play().await.unwrap();
}
