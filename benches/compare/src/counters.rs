//! The server's counters: commands, its own processor time, and by `MONITOR` the commands that each
//! client sends.

use std::collections::BTreeMap;

use compare::Failure;
use redis::aio::MultiplexedConnection;
use testbed::Server;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{TcpStream, tcp},
};

/// A connection that reads the counters, and costs the server as little as it can.
#[derive(Clone)]
pub struct Observer(MultiplexedConnection);

/// The server's counters at one time.
pub struct Counters {
    calls: BTreeMap<String, u64>,
    cpu_seconds: f64,
    reads: u64,
    /// The bytes that the server has allocated.
    pub memory: f64,
}

/// The difference between two readings of the counters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Used {
    /// The calls of `EVALSHA` and `EVAL`.
    pub scripts: u64,
    /// All other commands, inside scripts too, except those of this module.
    pub others: u64,
    pub cpu_seconds: f64,
    /// The server's reads from connections: at least one per round trip.
    pub reads: u64,
}

impl Observer {
    pub async fn of(server: &Server) -> Self {
        Self(server.admin().await)
    }

    pub async fn counters(&mut self) -> Result<Counters, Failure> {
        let mut info = redis::cmd("INFO");
        info.arg(&["commandstats", "cpu", "memory", "stats"]);
        Counters::read(&info.query_async::<String>(&mut self.0).await?)
    }

    /// The number of listeners of each channel.
    pub async fn listeners(&mut self, channels: &[String]) -> Result<Vec<u64>, Failure> {
        let mut numsub = redis::cmd("PUBSUB");
        numsub.arg("NUMSUB").arg(channels);
        let listeners: Vec<(String, u64)> = numsub.query_async(&mut self.0).await?;
        Ok(listeners.into_iter().map(|(_, count)| count).collect())
    }

    pub async fn list(&mut self, key: &str) -> Result<Vec<String>, Failure> {
        let mut range = redis::cmd("LRANGE");
        range.arg(key).arg(&[0, -1]);
        Ok(range.query_async(&mut self.0).await?)
    }

    /// Removes the keys that a failed peer has left.
    pub async fn clear(&mut self) -> Result<(), Failure> {
        Ok(redis::cmd("FLUSHALL").query_async(&mut self.0).await?)
    }

    async fn say(&mut self, words: &str) -> Result<(), Failure> {
        Ok(redis::cmd("ECHO")
            .arg(words)
            .exec_async(&mut self.0)
            .await?)
    }
}

impl Counters {
    fn read(info: &str) -> Result<Self, Failure> {
        let fields: BTreeMap<&str, &str> = info
            .lines()
            .filter_map(|line| line.split_once(':'))
            .collect();
        let number = |name: &str| -> Result<f64, Failure> {
            let value = fields
                .get(name)
                .ok_or_else(|| format!("INFO without {name}"))?;
            Ok(value.parse()?)
        };
        let calls = fields.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix("cmdstat_")?;
            let calls = value.strip_prefix("calls=")?.split(',').next()?;
            Some((name.to_owned(), calls.parse().ok()?))
        });
        Ok(Self {
            calls: calls.collect(),
            cpu_seconds: number("used_cpu_user")? + number("used_cpu_sys")?,
            reads: number("total_reads_processed")? as u64,
            memory: number("used_memory")?,
        })
    }

    pub fn until(&self, later: &Self) -> Used {
        let (mut scripts, mut others) = (0, 0);
        for (name, calls) in &later.calls {
            let calls = calls - self.calls.get(name).copied().unwrap_or(0);
            match name.as_str() {
                "evalsha" | "eval" => scripts += calls,
                "info" | "hello" => {}
                _ => others += calls,
            }
        }
        Used {
            scripts,
            others,
            cpu_seconds: later.cpu_seconds - self.cpu_seconds,
            // The reading of the counters is one read itself.
            reads: (later.reads - self.reads).saturating_sub(1),
        }
    }
}

/// The commands that clients send over TCP while the monitor is open. Commands inside scripts are
/// left out.
pub struct Monitor {
    lines: Lines<BufReader<tcp::OwnedReadHalf>>,
    _writer: tcp::OwnedWriteHalf,
}

const LAST: &str = "the end of what is monitored";

impl Monitor {
    pub async fn open(server: &Server) -> Result<Self, Failure> {
        let stream = TcpStream::connect(("127.0.0.1", server.port())).await?;
        let (reader, mut writer) = stream.into_split();
        writer.write_all(b"MONITOR\r\n").await?;
        let mut lines = BufReader::new(reader).lines();
        match lines.next_line().await? {
            Some(line) if line == "+OK" => Ok(Self {
                lines,
                _writer: writer,
            }),
            other => Err(format!("MONITOR: {other:?}").into()),
        }
    }

    /// Ends the monitor. Returns how often each command was sent.
    pub async fn close(
        mut self,
        observer: &mut Observer,
    ) -> Result<BTreeMap<String, u64>, Failure> {
        observer.say(LAST).await?;
        let mut sent = BTreeMap::new();
        while let Some(line) = self.lines.next_line().await? {
            if line.contains(LAST) {
                return Ok(sent);
            }
            if let Some(command) = sent_by_tcp(&line) {
                *sent.entry(command).or_default() += 1;
            }
        }
        Err("MONITOR: the server closed the connection".into())
    }
}

/// The command of a line like `+1700000000.1 [0 127.0.0.1:4711] "EVALSHA" "..."`, in upper case.
fn sent_by_tcp(line: &str) -> Option<String> {
    let (_, rest) = line.split_once(" [")?;
    let (source, words) = rest.split_once("] \"")?;
    let (_, address) = source.split_once(' ')?;
    let over_tcp = !matches!(address.split(':').next(), Some("lua" | "unix"));
    let (command, _) = words.split_once('"')?;
    over_tcp.then(|| command.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn use_is_the_difference_of_two_readings_without_the_readings_themselves() {
        let info = |evalsha, set, reads| {
            let info = format!(
                "# Stats\r\ntotal_reads_processed:{reads}\r\nused_memory:1024\r\nused_cpu_sys:0.5\r\n\
                 used_cpu_user:{evalsha}\r\ncmdstat_evalsha:calls={evalsha},usec=7\r\n\
                 cmdstat_config|get:calls={set},usec=1\r\ncmdstat_info:calls={reads},usec=1\r\n"
            );
            Counters::read(&info).expect("an INFO")
        };
        let used = info(3, 1, 10).until(&info(5, 2, 20));
        let expected = Used {
            scripts: 2,
            others: 1,
            cpu_seconds: 2.0,
            reads: 9,
        };
        assert_eq!(used, expected);
        assert!(Counters::read("used_memory:1\r\n").is_err());
    }

    #[test]
    fn only_commands_of_tcp_clients_count() {
        let command = |source: &str| sent_by_tcp(&format!("+17.5 [0 {source}] \"evalsha\" \"x\""));
        assert_eq!(command("127.0.0.1:4711"), Some("EVALSHA".into()));
        assert_eq!(command("lua"), None);
        assert_eq!(command("unix:/tmp/admin.sock"), None);
        assert_eq!(sent_by_tcp("+OK"), None);
    }
}
