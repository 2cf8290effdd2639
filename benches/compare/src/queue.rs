//! A fair lock that goes through a queue of waiters in two processes, turn by turn.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use testbed::Server;

use crate::{
    peers::Name,
    program::Program,
    redisson,
    round::{Failure, Measured, Times},
    waiters,
};

/// In each of the two processes.
const WAITERS: usize = 8;
/// From when all are in line and listen until the lock is let go: they have tried once more by then, and sleep.
const SETTLED: Duration = Duration::from_millis(3);
/// A queue that takes longer to form has failed.
const IN_LINE_WITHIN: Duration = Duration::from_secs(60);

/// Two processes of one peer, of which the first also holds the lock while the queue forms.
pub struct Queue([Program; 2]);

impl Queue {
    pub async fn start(peer: Name, url: &str) -> Result<Self, Failure> {
        let command = || match peer {
            Name::Redisson => redisson::command(url),
            _ => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args([waiters::ARGUMENT, url]);
                Ok(command)
            }
        };
        let first = Program::start(command()?).await?;
        let second = Program::start(command()?).await?;
        Ok(Self([first, second]))
    }

    /// One queue after the other until the window is over.
    pub async fn round(&mut self, server: &Server, times: Times) -> Result<Measured, Failure> {
        let name = testbed::unique_name("bench:queue");
        let window = times.window();
        let mut measured = Measured::default();
        loop {
            let from = Instant::now();
            if from >= window.end {
                return Ok(measured);
            }
            for handed_over in self.one_queue(server, &name).await? {
                measured.note(&window, from, from + handed_over);
            }
        }
    }

    /// How long each hand-off took: the holder's to the first in line, and so on.
    async fn one_queue(&mut self, server: &Server, name: &str) -> Result<Vec<Duration>, Failure> {
        let Self([first, second]) = self;
        let at_once = Duration::ZERO;
        let _: bool = first.ask(&format!("hold {name}"), at_once).await?;
        for process in [&mut *first, &mut *second] {
            let words = format!("wait {name} {WAITERS}");
            let _: bool = process.ask(&words, at_once).await?;
        }
        in_line(server, name).await?;
        tokio::time::sleep(SETTLED).await;
        let freed: u64 = first.ask("free", at_once).await?;
        let mut turns = vec![freed];
        for process in [first, second] {
            turns.extend(process.ask::<Vec<u64>>("times", at_once).await?);
        }
        turns.sort_unstable();
        if turns[0] != freed || turns.len() != 2 * WAITERS + 1 {
            return Err(format!("freed at {freed}, but turns were at {turns:?}").into());
        }
        let pairs = turns.windows(2);
        Ok(pairs
            .map(|pair| Duration::from_nanos(pair[1] - pair[0]))
            .collect())
    }
}

/// Waits until all have their places, and each listens where its turn is told.
async fn in_line(server: &Server, name: &str) -> Result<(), Failure> {
    let mut admin = server.admin().await;
    let start = Instant::now();
    while start.elapsed() < IN_LINE_WITHIN {
        let owners: Vec<String> = redis::cmd("LRANGE")
            .arg(format!("redisson_lock_queue:{{{name}}}"))
            .arg(&[0, -1])
            .query_async(&mut admin)
            .await?;
        let mut listening = redis::cmd("PUBSUB");
        listening.arg("NUMSUB");
        for owner in &owners {
            listening.arg(format!("redisson_lock__channel:{{{name}}}:{owner}"));
        }
        let listening: Vec<(String, u64)> = listening.query_async(&mut admin).await?;
        let listening = listening.iter().filter(|(_, count)| *count > 0).count();
        if owners.len() == 2 * WAITERS && listening == owners.len() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Err("the waiters of a fair lock did not get in line".into())
}
