//! This program as one of the two processes whose tasks wait in a queue: the Java program's `Line`, of this crate.

use std::time::{SystemTime, UNIX_EPOCH};

use redisson_lock::{Fair, FairLock, Guard, LockClient};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    task::JoinHandle,
};

use crate::{program::READY, round::Failure};

/// The first argument of such a process; the second is the server's URL.
pub const ARGUMENT: &str = "waiters";

struct Waiters {
    client: LockClient,
    held: Option<Guard<Fair>>,
    waiting: Vec<JoinHandle<Result<u64, Failure>>>,
}

/// Answers lines until there are no more.
pub async fn run(url: String) -> Result<(), Failure> {
    let mut waiters = Waiters {
        client: LockClient::connect(url).await?,
        held: None,
        waiting: Vec::new(),
    };
    println!("{READY}");
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split_whitespace().collect();
        println!("{}", waiters.answer(&words).await?);
    }
    Ok(())
}

impl Waiters {
    async fn answer(&mut self, words: &[&str]) -> Result<String, Failure> {
        match words {
            ["hold", name] => {
                self.held = Some(self.client.fair_lock(*name).lock().await?);
                Ok("true".into())
            }
            ["wait", name, tasks] => {
                let lock = self.client.fair_lock(*name);
                let turns = (0..tasks.parse()?).map(|_| tokio::spawn(turn(lock.clone())));
                self.waiting.extend(turns);
                Ok("true".into())
            }
            ["free"] => {
                let held = self.held.take().ok_or("nothing is held")?;
                Ok(turn_ends(held).await?.to_string())
            }
            ["times"] => {
                let mut times = Vec::new();
                for turn in self.waiting.drain(..) {
                    times.push(turn.await??);
                }
                Ok(serde_json::to_string(&times)?)
            }
            _ => Err(format!("no such command: {words:?}").into()),
        }
    }
}

async fn turn(lock: FairLock) -> Result<u64, Failure> {
    turn_ends(lock.lock().await?).await
}

/// When the turn ended, in nanoseconds of a clock that all processes share.
async fn turn_ends(held: Guard<Fair>) -> Result<u64, Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let _ = held.unlock().await?;
    Ok(u64::try_from(now.as_nanos())?)
}
