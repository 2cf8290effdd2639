//! What the server counts: commands, its own processor time, and, by `MONITOR`, who sent what.

use std::collections::BTreeMap;

use testbed::Server;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    net::{TcpStream, tcp},
};

use crate::round::Failure;

/// The server's counters at one time.
pub struct Counters {
    calls: BTreeMap<String, u64>,
    cpu_seconds: f64,
}

/// Between two times.
#[derive(Debug, Clone, Copy)]
pub struct Used {
    /// `EVALSHA` and `EVAL`.
    pub scripts: u64,
    /// Everything else that ran, inside the scripts too; without the questions of this module.
    pub others: u64,
    pub cpu_seconds: f64,
}

impl Counters {
    pub async fn read(server: &Server) -> Self {
        Self {
            calls: server.calls().await,
            cpu_seconds: server.cpu_seconds().await,
        }
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
        }
    }
}

/// Every command that clients send over TCP while it is open; what runs inside scripts is left out.
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

    /// How often each command was sent.
    pub async fn close(mut self, server: &Server) -> Result<BTreeMap<String, u64>, Failure> {
        server.command::<String>(&["ECHO", LAST]).await;
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
    fn only_what_clients_send_over_tcp_counts() {
        let command = |source: &str| sent_by_tcp(&format!("+17.5 [0 {source}] \"evalsha\" \"x\""));
        assert_eq!(command("127.0.0.1:4711"), Some("EVALSHA".into()));
        assert_eq!(command("lua"), None);
        assert_eq!(command("unix:/tmp/admin.sock"), None);
        assert_eq!(sent_by_tcp("+OK"), None);
    }
}
