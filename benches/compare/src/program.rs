//! A peer's process, which answers each line with a line of JSON.

use std::{process::Command as Process, time::Duration};

use compare::{
    Command, Failure,
    peer::{READY, read_answer},
};
use procfs::process::Process as Stat;
use serde_json::Value;
use testbed::{Child, Silence};

/// The time that a JVM may take to start on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(60);

pub struct Program {
    child: Child,
    /// The time for an answer, beyond the duration of the command itself.
    timeout: Duration,
}

impl Program {
    pub async fn start(command: Process, timeout: Duration) -> Result<Self, Failure> {
        let child = Child::spawn(command);
        let mut program = Self { child, timeout };
        match program.line(READY_WITHIN).await? {
            line if line == READY => Ok(program),
            other => Err(format!("says {other:?} instead of {READY}").into()),
        }
    }

    pub async fn ask(&mut self, command: &Command) -> Result<Value, Failure> {
        self.child.send_line(&command.to_string());
        let line = self.line(command.lasts() + self.timeout).await?;
        read_answer(&line)
    }

    async fn line(&mut self, within: Duration) -> Result<String, Failure> {
        self.child.next_line(within).await.map_err(|silence| {
            let what = match silence {
                Silence::TimedOut => format!("no answer within {within:?}"),
                Silence::Ended => "it has ended".to_owned(),
            };
            eprintln!("{}", self.child.stderr_tail());
            what.into()
        })
    }

    /// The processor time that the process has used, in user and system mode together.
    pub fn cpu_seconds(&self) -> Result<f64, Failure> {
        let stat = self.stat()?;
        Ok((stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64)
    }

    /// The process's resident memory, in bytes.
    pub fn memory(&self) -> Result<f64, Failure> {
        Ok((self.stat()?.rss * procfs::page_size()) as f64)
    }

    fn stat(&self) -> Result<procfs::process::Stat, Failure> {
        Ok(Stat::new(i32::try_from(self.child.pid())?)?.stat()?)
    }
}
