//! A real Redis (or Valkey) server as a child process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, FromRedisValue, IntoConnectionInfo,
    RedisConnectionInfo, RedisResult,
};
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::process::Process;

const READY_WITHIN: Duration = Duration::from_secs(20);
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
const PORT_FREE_WITHIN: Duration = Duration::from_secs(5);
/// Without the first letter, which is a capital only on servers with a TCP port.
const READY: &str = "eady to accept connections";
const SENTINEL_READY: &str = "Sentinel ID is";
const PORT_TAKEN: &str = "Address already in use";

/// A `redis-server` for one test: on loopback, empty, killed when dropped.
///
/// The environment variable `REDIS_SERVER` names another program, such as `valkey-server`, by an absolute path or a name in `PATH`.
#[derive(Debug)]
pub struct Server {
    process: Mutex<Process>,
    port: u16,
    _reservation: TcpSocket,
    options: Vec<String>,
    dir: TempDir,
}

/// The lines of a server's log that a failed test prints.
const LAST_LINES: usize = 15;

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
            println!("the end of the log of the server on {}:\n{last}", self.port);
        }
    }
}

impl Server {
    /// Starts a server on a free port.
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// Starts a server with further command-line options; `{port}` and `{dir}` are replaced by its port and its folder.
    pub async fn start_with(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().expect("a temporary folder can be made");
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        for _ in 0..100 {
            let (port, reservation) = reserve_port();
            if let Some(process) = launch(port, dir.path(), &options).await {
                let process = Mutex::new(process);
                return Self {
                    process,
                    port,
                    _reservation: reservation,
                    options,
                    dir,
                };
            }
        }
        panic!("no free port for redis-server after 100 attempts");
    }

    /// The server's port, which [`restart`](Self::restart) keeps.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `redis://127.0.0.1:port`, without credentials. With several databases of a cluster, the last one is its path.
    pub fn url(&self) -> String {
        let database = self.database().map(|number| format!("/{number}"));
        format!(
            "redis://127.0.0.1:{}{}",
            self.port,
            database.unwrap_or_default()
        )
    }

    /// The last database of the option `--cluster-databases`. The test bed uses that one alone.
    pub fn database(&self) -> Option<u32> {
        let databases = last_value(&self.options, "--cluster-databases")?;
        let databases: u32 = databases.parse().expect("it is a number of databases");
        Some(databases - 1)
    }

    /// The process id of the server, or of the last one after [`kill`](Self::kill).
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// The server's working folder, with its log (`redis.log`) and the socket of [`admin`](Self::admin).
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// The server's log since its last start.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir().join("redis.log")).unwrap_or_default()
    }

    /// Opens a connection by the server's unix socket. It works without TLS, without a port and with `--requirepass`. With
    /// several databases of a cluster, it uses the last one.
    pub async fn admin(&self) -> MultiplexedConnection {
        let mut settings = RedisConnectionInfo::default().set_skip_set_lib_name();
        if let Some(password) = last_value(&self.options, "--requirepass") {
            settings = settings.set_password(password);
        }
        if let Some(database) = self.database() {
            settings = settings.set_db(database.into());
        }
        let address = ConnectionAddr::Unix(self.socket()).into_connection_info();
        let address = address
            .expect("a unix socket is an address")
            .set_redis_settings(settings);
        let limits = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(ANSWER_WITHIN))
            .set_response_timeout(Some(ANSWER_WITHIN));
        let client = Client::open(address).expect("the address is good");
        match client
            .get_multiplexed_async_connection_with_config(&limits)
            .await
        {
            Ok(connection) => connection,
            Err(error) => panic!(
                "no admin connection: {error}; the server's log:\n{}",
                self.log()
            ),
        }
    }

    /// Runs one command on a new [`admin`](Self::admin) connection. Panics if it fails.
    pub async fn command<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let answer = self.ask(words).await;
        answer.unwrap_or_else(|error| panic!("{words:?} failed: {error}"))
    }

    /// As [`command`](Self::command), but returns the error.
    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let mut command = redis::Cmd::new();
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut self.admin().await).await
    }

    /// Stops the process (SIGSTOP): connections stay open without replies.
    pub fn pause(&self) {
        self.process().pause();
    }

    /// Continues a stopped process (SIGCONT).
    pub fn resume(&self) {
        self.process().resume();
    }

    /// Kills the process (SIGKILL) and reaps it.
    pub fn kill(&self) {
        self.process().kill();
    }

    /// Kills a running server, and starts an empty one on the same port.
    pub async fn restart(&self) {
        self.kill();
        let start = Instant::now();
        loop {
            if let Some(process) = launch(self.port, self.dir.path(), &self.options).await {
                *self.process() = process;
                return;
            }
            assert!(
                start.elapsed() < PORT_FREE_WITHIN,
                "another process listens on port {}",
                self.port
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills a running server, and starts one on another port, in the same folder.
    pub async fn restart_elsewhere(&mut self) {
        self.kill();
        loop {
            let (port, reservation) = reserve_port();
            if let Some(process) = launch(port, self.dir.path(), &self.options).await {
                *self.process() = process;
                (self.port, self._reservation) = (port, reservation);
                return;
            }
        }
    }

    /// The number of calls of each command since the start or [`reset_calls`](Self::reset_calls), in lower case (`config|get`).
    pub async fn calls(&self) -> BTreeMap<String, u64> {
        let info: String = self.command(&["INFO", "commandstats"]).await;
        info.lines().filter_map(calls_of_line).collect()
    }

    /// The fields of a section of `INFO`.
    pub async fn info(&self, section: &str) -> BTreeMap<String, String> {
        let mut info: RedisResult<String> = self.ask(&["INFO", section]).await;
        // A sentinel that changes a server's role closes all of its connections, this one included.
        while let Err(ended) = &info
            && ended.is_io_error()
            && !ended.is_timeout()
        {
            info = self.ask(&["INFO", section]).await;
        }
        let info = info.unwrap_or_else(|error| panic!("INFO {section} failed: {error}"));
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        fields
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect()
    }

    /// Waits until this many replicas have all writes so far. Panics if they do not receive them.
    pub async fn replicated_to(&self, replicas: u32) {
        let mut connection = self.admin().await;
        let mut pair = redis::pipe();
        // Up to Redis 7.0, WAIT covers only writes of its own connection (measured), so a write without a key precedes it.
        pair.cmd("FUNCTION").arg("FLUSH").ignore();
        pair.cmd("WAIT").arg(replicas).arg(10_000);
        let acknowledged: RedisResult<(u32,)> = pair.query_async(&mut connection).await;
        let (acknowledged,) = acknowledged.expect("WAIT is answered");
        assert!(
            acknowledged >= replicas,
            "only {acknowledged} replicas have the writes"
        );
    }

    /// Resets the counts of [`calls`](Self::calls). The reset itself is counted after it.
    pub async fn reset_calls(&self) {
        self.command::<()>(&["CONFIG", "RESETSTAT"]).await;
    }

    /// The server's processor time, user and system mode together.
    pub async fn cpu_seconds(&self) -> f64 {
        let info: String = self.command(&["INFO", "cpu"]).await;
        let seconds = |name: &str| -> f64 {
            let value = info
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            value
                .and_then(|value| value.parse().ok())
                .unwrap_or_else(|| panic!("no {name} in {info}"))
        };
        seconds("used_cpu_user") + seconds("used_cpu_sys")
    }

    fn socket(&self) -> PathBuf {
        let own = last_value(&self.options, "--unixsocket");
        own.map_or_else(
            || admin_socket(self.dir.path()),
            |path| placed(path, self.port, self.dir.path()).into(),
        )
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the process and waits until it listens. `None` if another process has its port.
async fn launch(port: u16, dir: &Path, options: &[String]) -> Option<Process> {
    let log = dir.join("redis.log");
    let mut process = spawn(port, dir, options, &log);
    let start = Instant::now();
    loop {
        let ended = process.ended();
        let logged = fs::read_to_string(&log).unwrap_or_default();
        // The log, and not a connection: another process on the port could answer a connection.
        if logged.contains(READY) || logged.contains(SENTINEL_READY) {
            return Some(process);
        }
        if ended.is_some() && logged.contains(PORT_TAKEN) {
            return None;
        }
        assert!(
            ended.is_none(),
            "redis-server ended ({ended:?}) with {options:?}:\n{logged}"
        );
        assert!(
            start.elapsed() < READY_WITHIN,
            "redis-server is not ready with {options:?}:\n{logged}"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

fn spawn(port: u16, dir: &Path, options: &[String], log: &Path) -> Process {
    let binary = std::env::var("REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
    let log = File::create(log).expect("the log can be written");
    let mut command = Command::new(&binary);
    if options.iter().any(|option| option == "--sentinel") {
        // A sentinel stores its state in this file.
        let notes = dir.join("sentinel.conf");
        let opened = File::options().create(true).append(true).open(&notes);
        opened.expect("the sentinel's file can be written");
        command.arg(notes);
    }
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(match options.iter().any(|option| option == "--sentinel") {
            true => &[][..],
            false => &["--save", "", "--appendonly", "no"],
        })
        .arg("--unixsocket")
        .arg(admin_socket(dir))
        .args(options.iter().map(|option| placed(option, port, dir)))
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a file handle can be cloned"))
        .stderr(log);
    Process::spawn_in(dir, &mut command).unwrap_or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => panic!(
            "there is no `{binary}`: `apt-get install redis-server`, or set REDIS_SERVER to the binary's path"
        ),
        _ => panic!("`{binary}` cannot be started: {error}"),
    })
}

/// Returns a free port, and the socket that reserves it. The reservation keeps servers of other tests off the port while its server is
/// down: a socket that is bound and does not listen conflicts with the first `bind` below, and not with that of a server, because
/// both have SO_REUSEADDR by then.
///
/// The port is below the kernel's range for outgoing connections, so that no connection takes it during a restart. The port of a
/// cluster's bus, 10,000 higher, is below that range too, and is no server's main port.
fn reserve_port() -> (u16, TcpSocket) {
    let mut ports = std::iter::repeat_with(|| fastrand::u16(11_000..21_000)).take(1000);
    let reserved = ports.find_map(|port| Some((port, reserve(port).ok()?)));
    reserved.expect("a port is free")
}

fn reserve(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    socket.set_reuseaddr(true)?;
    Ok(socket)
}

fn admin_socket(dir: &Path) -> PathBuf {
    dir.join("admin.sock")
}

fn placed(option: &str, port: u16, dir: &Path) -> String {
    option
        .replace("{port}", &port.to_string())
        .replace("{dir}", &dir.to_string_lossy())
}

/// The last value of a repeated option, which is the one that the server uses.
fn last_value<'a>(options: &'a [String], name: &str) -> Option<&'a str> {
    let at = options
        .iter()
        .rposition(|option| option.eq_ignore_ascii_case(name))?;
    options.get(at + 1).map(String::as_str)
}

fn calls_of_line(line: &str) -> Option<(String, u64)> {
    let (name, numbers) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
    let calls = numbers.split(',').next()?.parse().ok()?;
    Some((name.to_owned(), calls))
}
