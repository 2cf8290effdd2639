//! Helpers for the tests of single kinds: a server for each test, and an administrator that reads
//! and changes its keys.

use std::{
    future::poll_fn,
    pin::pin,
    task::Poll,
    time::{Duration, Instant},
};

use redis::{FromRedisValue, aio::MultiplexedConnection};
use redisson_lock::{Config, Error, LockClient};
use testbed::{Server, eventually};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    task::JoinHandle,
    time::timeout,
};

/// The limit for steps that take milliseconds, or as long as the short times that a test sets.
pub const SOON: Duration = Duration::from_secs(20);
/// Longer than any test: a wait for it never ends within one.
pub const NEVER: Duration = Duration::from_secs(600);

/// A configuration with this poll interval.
pub fn polling(max_poll_interval: Duration) -> Config {
    let mut config = Config::default();
    config.max_poll_interval = max_poll_interval;
    config
}

/// A configuration with this watchdog lease.
pub fn watched(lease: Duration) -> Config {
    let mut config = Config::default();
    config.watchdog_lease = lease;
    config
}

/// A configuration under which only a message wakes a waiter.
pub fn only_messages() -> Config {
    let mut config = watched(NEVER);
    config.max_poll_interval = NEVER;
    config
}

pub struct Witness {
    pub server: Server,
    admin: MultiplexedConnection,
}

impl Witness {
    pub async fn new() -> Self {
        let server = Server::start().await;
        let admin = server.admin().await;
        Self { server, admin }
    }

    pub async fn client(&self, config: Config) -> LockClient {
        connect(&self.server.url(), config).await
    }

    /// A client with Redisson's settings.
    pub async fn a_client(&self) -> LockClient {
        self.client(Config::default()).await
    }

    pub async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let command = redis::cmd(words[0]).arg(&words[1..]).to_owned();
        let answer = command.query_async(&mut self.admin.clone()).await;
        answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    /// The server's clock, in milliseconds.
    pub async fn now(&self) -> i64 {
        let (seconds, micros): (i64, i64) = self.ask(&["TIME"]).await;
        seconds * 1000 + micros / 1000
    }

    pub async fn pttl(&self, key: &str) -> i64 {
        self.ask(&["PTTL", key]).await
    }

    pub async fn exists(&self, key: &str) -> bool {
        self.ask(&["EXISTS", key]).await
    }

    /// How often these commands ran since [`Server::reset_calls`], calls from scripts included.
    pub async fn ran(&self, commands: &[&str]) -> u64 {
        let calls = self.server.calls().await;
        let of = |command: &&str| calls.get(*command).copied().unwrap_or(0);
        commands.iter().map(of).sum()
    }

    /// Scripts since [`Server::reset_calls`].
    pub async fn scripts(&self) -> u64 {
        self.ran(&["eval", "evalsha"]).await
    }

    /// Waits until the server has run `scripts` since [`Server::reset_calls`].
    pub async fn have_run(&self, scripts: u64) {
        let ran = async || self.scripts().await >= scripts;
        eventually("the scripts have run", SOON, ran).await;
    }

    pub async fn has_a_subscriber(&self, channel: &str) {
        let heard = async || {
            let (_, listeners): (String, u32) = self.ask(&["PUBSUB", "NUMSUB", channel]).await;
            listeners > 0
        };
        eventually("a client subscribes", SOON, heard).await;
    }

    /// No key and no subscription is left.
    pub async fn nothing_left(&self) {
        let keys = async || self.ask::<Vec<String>>(&["KEYS", "*"]).await;
        let clean = async || keys().await.is_empty();
        // A thousand releases on a busy machine take longer than one.
        if timeout(3 * SOON, eventually("no key is left", 3 * SOON, clean))
            .await
            .is_err()
        {
            panic!("keys left: {:?}", keys().await);
        }
        let deaf = async || {
            let channels: Vec<String> = self.ask(&["PUBSUB", "CHANNELS"]).await;
            channels.is_empty()
        };
        eventually("no subscription is left", SOON, deaf).await;
    }
}

pub async fn connect(url: &str, config: Config) -> LockClient {
    let builder = LockClient::builder().url(url).config(config);
    builder.build().await.expect("the server is there")
}

/// Returns what `task` returns, and fails after [`SOON`].
pub async fn done<T>(what: &str, task: JoinHandle<T>) -> T {
    let ended = timeout(SOON, task).await;
    ended
        .unwrap_or_else(|_| panic!("not within {SOON:?}: {what}"))
        .expect("the task does not fail")
}

/// Lets real time pass, for tests that measure it.
pub async fn let_pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Fails if `condition` is false at any time within `time`.
pub async fn always(what: &str, time: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(condition().await, "no longer true: {what}");
        let_pass(Duration::from_millis(20)).await;
    }
}

/// The result of a wait with a short limit. On a busy machine the reply may come later than a call
/// waits for it (100 ms past its limit), which counts as busy.
pub fn busy_at_worst<T>(tried: Result<Option<T>, Error>) -> Option<T> {
    match tried {
        Err(Error::Unavailable { .. }) => None,
        tried => tried.expect("busy at worst"),
    }
}

/// Polls `future` at most `times` times, whenever it is woken, then drops it unless it is ready.
pub async fn poll_and_drop<F: Future>(future: F, times: u64) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        if polls == times {
            return Poll::Ready(None);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polls == times => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// A plain connection that listens to one channel, as a client of another library does.
pub struct Listener(TcpStream);

impl Listener {
    pub async fn on(server: &Server, channel: &str) -> Self {
        let address = ("127.0.0.1", server.port());
        let mut stream = TcpStream::connect(address).await.unwrap();
        let length = channel.len();
        let subscribe = format!("*2\r\n$9\r\nSUBSCRIBE\r\n${length}\r\n{channel}\r\n");
        stream.write_all(subscribe.as_bytes()).await.unwrap();
        let mut listener = Self(stream);
        listener.hears(":1\r\n").await;
        listener
    }

    /// Reads until `end`, and returns what it read.
    async fn hears(&mut self, end: &str) -> String {
        let mut heard = String::new();
        while !heard.ends_with(end) {
            let byte = timeout(SOON, self.0.read_u8()).await;
            let byte = byte.unwrap_or_else(|_| panic!("received only {heard:?}, not {end:?}"));
            heard.push(char::from(byte.unwrap()));
        }
        heard
    }

    /// The payloads of the messages since the last call.
    pub async fn messages(&mut self) -> Vec<String> {
        self.0.write_all(b"PING end\r\n").await.unwrap();
        let heard = self.hears("$3\r\nend\r\n").await;
        let lines: Vec<&str> = heard.split("\r\n").collect();
        let messages = lines
            .iter()
            .enumerate()
            .filter(|(_, line)| **line == "message");
        messages.map(|(at, _)| lines[at + 4].to_owned()).collect()
    }
}

/// The log of all commands that the server receives.
pub struct Monitor(BufReader<TcpStream>);

impl Monitor {
    pub async fn start(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut monitor = Self(BufReader::new(stream));
        monitor.0.write_all(b"MONITOR\r\n").await.unwrap();
        assert_eq!(monitor.line().await, "+OK");
        monitor
    }

    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        let read = self.0.read_until(b'\n', &mut line);
        timeout(SOON, read)
            .await
            .expect("the server sends a line")
            .unwrap();
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    /// The lines since the last call.
    pub async fn lines(&mut self) -> Vec<String> {
        self.0.write_all(b"ECHO end\r\n").await.unwrap();
        let mut lines = Vec::new();
        loop {
            let line = self.line().await;
            if line.ends_with("\"ECHO\" \"end\"") {
                return lines;
            }
            lines.push(line);
        }
    }
}
