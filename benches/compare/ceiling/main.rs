//! What the server can do at best with one operation per command: `EVALSHA`s that are encoded before the clock starts,
//! in pipelines over several connections, with replies that are compared and not parsed.
//!
//! The tasks are shared out among the connections; how many of these do most is tried when a number of tasks comes first.

use std::{
    collections::BTreeMap,
    process::ExitCode,
    time::{Duration, Instant},
};

use compare::{
    Command, Failure, Peer, Round, Times,
    round::{Measured, Window},
    scripts::{ACQUIRE, LEASE_MILLIS, Lock, RELEASE, pairs_only},
    serve,
};
use redis::{Cmd, Script, cmd};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Tried in turn.
const CONNECTIONS: [usize; 5] = [1, 2, 4, 8, 16];
const TRIAL: Times = Times {
    warm_up: Duration::from_millis(20),
    measured: Duration::from_millis(100),
};
/// The replies of a free lock, in RESP2.
const GRANTED: &[u8] = b"$-1\r\n";
const RELEASED: &[u8] = b":1\r\n";

fn main() -> ExitCode {
    serve::<Ceiling>()
}

struct Ceiling {
    /// `host:port`.
    address: String,
    /// By the number of tasks.
    best: BTreeMap<usize, usize>,
}

impl Peer for Ceiling {
    async fn connect(url: String) -> Result<Self, Failure> {
        let mut connection = redis::Client::open(url.as_str())?
            .get_multiplexed_async_connection()
            .await?;
        for script in [ACQUIRE, RELEASE] {
            Script::new(script).load_async(&mut connection).await?;
        }
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        Ok(Self {
            address: address.to_owned(),
            best: BTreeMap::new(),
        })
    }

    async fn answer(&mut self, command: Command) -> Result<Value, Failure> {
        let (tasks, times) = pairs_only(command)?;
        self.pairs(tasks, times).await
    }
}

impl Ceiling {
    async fn pairs(&mut self, tasks: usize, times: Times) -> Result<Value, Failure> {
        let connections = match self.best.get(&tasks) {
            Some(best) => *best,
            None => self.find_best(tasks).await?,
        };
        let mut answer = json!(self.round(tasks, connections, times).await?);
        answer["connections"] = json!(connections);
        Ok(answer)
    }

    async fn find_best(&mut self, tasks: usize) -> Result<usize, Failure> {
        let mut best = (0, 1);
        for connections in CONNECTIONS.into_iter().filter(|number| *number <= tasks) {
            let round = self.round(tasks, connections, TRIAL).await?;
            best = best.max((round.count, connections));
        }
        self.best.insert(tasks, best.1);
        Ok(best.1)
    }

    async fn round(
        &self,
        tasks: usize,
        connections: usize,
        times: Times,
    ) -> Result<Round, Failure> {
        let mut pipelines = Vec::new();
        let locks: Vec<Lock> = (0..tasks).map(Lock::of_task).collect();
        for share in locks.chunks(tasks.div_ceil(connections)) {
            pipelines.push(Pipeline::open(&self.address, share).await?);
        }
        let window = times.window();
        let running: Vec<_> = pipelines
            .into_iter()
            .map(|pipeline| tokio::spawn(pipeline.run(window)))
            .collect();
        let mut measured = Measured::default();
        for pipeline in running {
            measured.add(pipeline.await??);
        }
        Round::new(measured, times)
    }
}

/// A connection, and what it sends for its share of the locks.
struct Pipeline {
    stream: TcpStream,
    locks: usize,
    acquire: Vec<u8>,
    release: Vec<u8>,
    replies: Vec<u8>,
}

impl Pipeline {
    async fn open(address: &str, locks: &[Lock]) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (acquire, release) = (Script::new(ACQUIRE), Script::new(RELEASE));
        let packed = |command: fn(&Script, &Lock) -> Cmd, script: &Script| -> Vec<u8> {
            let commands = locks.iter().map(|lock| command(script, lock));
            commands
                .flat_map(|command| command.get_packed_command())
                .collect()
        };
        Ok(Self {
            stream,
            locks: locks.len(),
            acquire: packed(
                |script, lock| {
                    let mut command = call(script, lock);
                    command.arg(LEASE_MILLIS).arg(&lock.owner);
                    command
                },
                &acquire,
            ),
            release: packed(
                |script, lock| {
                    let mut command = call(script, lock);
                    command.arg(&lock.channel).arg(LEASE_MILLIS);
                    command.arg(&lock.owner);
                    command
                },
                &release,
            ),
            replies: Vec::new(),
        })
    }

    async fn run(mut self, window: Window) -> Result<Measured, Failure> {
        let mut measured = Measured::default();
        let mut from = Instant::now();
        let (acquire, release) = (
            std::mem::take(&mut self.acquire),
            std::mem::take(&mut self.release),
        );
        while from < window.end {
            self.exchange(&acquire, GRANTED).await?;
            self.exchange(&release, RELEASED).await?;
            let to = Instant::now();
            measured.note_together(&window, from, to, self.locks);
            from = to;
        }
        Ok(measured)
    }

    /// Sends all of it, and checks that each lock is answered like that.
    async fn exchange(&mut self, commands: &[u8], reply: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(commands).await?;
        self.replies.resize(self.locks * reply.len(), 0);
        self.stream.read_exact(&mut self.replies).await?;
        if self.replies.chunks(reply.len()).all(|one| one == reply) {
            return Ok(());
        }
        let replies = String::from_utf8_lossy(&self.replies);
        Err(format!("the scripts replied {replies:?} to free locks").into())
    }
}

fn call(script: &Script, lock: &Lock) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(script.get_hash()).arg(1).arg(&lock.key);
    command
}
