//! The command that is run, and signals.

use std::{
    ffi::OsString,
    io::{ErrorKind, IsTerminal, stdin},
    os::unix::process::ExitStatusExt,
    process::{ExitCode, ExitStatus},
    time::Duration,
};

use redisson_lock::LostReason;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::{
    process::{Child, Command as Process},
    signal::unix::{self, SignalKind},
};

use crate::{Failure, exit};

/// How the attendance of a command ended.
pub enum Ended {
    /// It has ended by itself, with this code.
    Done(ExitCode),
    /// The lock was lost, and the command was ended.
    Lost(LostReason),
}

/// A signal to this program.
#[derive(Clone, Copy)]
pub struct Received(Signal);

impl Received {
    /// As a shell has it.
    pub fn exit_code(self) -> ExitCode {
        by_signal(self.0.as_raw())
    }
}

fn by_signal(number: i32) -> ExitCode {
    u8::try_from(128 + number).unwrap_or(u8::MAX).into()
}

/// The signals that end a program.
pub struct Signals {
    interrupt: unix::Signal,
    terminate: unix::Signal,
    hang_up: unix::Signal,
}

impl Signals {
    pub fn new() -> Result<Self, Failure> {
        let listen = |kind| {
            unix::signal(kind).map_err(|error| Failure {
                code: exit::FAILED,
                message: format!("cannot listen to signals: {error}"),
            })
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
        })
    }

    pub async fn next(&mut self) -> Received {
        Received(tokio::select! {
            _ = self.interrupt.recv() => Signal::INT,
            _ = self.terminate.recv() => Signal::TERM,
            _ = self.hang_up.recv() => Signal::HUP,
        })
    }
}

/// A command that runs.
pub struct Command {
    child: Child,
    pid: Option<Pid>,
    /// It leads a group of its own, with what it starts. At a terminal it stays in the group of this program, as only the group in
    /// the foreground may read; the terminal itself sends the signals of its keys to all of that.
    has_group: bool,
}

impl Command {
    pub fn start(words: &[OsString], token: Option<i64>) -> Result<Self, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::usage("no command was given"));
        };
        let has_group = !stdin().is_terminal();
        let mut process = Process::new(program);
        process.args(arguments).kill_on_drop(true);
        if has_group {
            process.process_group(0);
        }
        match token {
            Some(token) => process.env("RLOCK_TOKEN", token.to_string()),
            // One of an outer `rlock` is about another lock.
            None => process.env_remove("RLOCK_TOKEN"),
        };
        let child = process.spawn().map_err(|error| Failure {
            code: if error.kind() == ErrorKind::NotFound {
                127
            } else {
                126
            },
            message: format!("{}: {error}", program.to_string_lossy()),
        })?;
        let pid = child.id().and_then(|id| Pid::from_raw(id as i32));
        Ok(Self {
            child,
            pid,
            has_group,
        })
    }

    /// Completes when the command has ended.
    pub async fn ended(&mut self) -> Result<ExitCode, Failure> {
        let status = self.child.wait().await;
        status.map(code_of).map_err(|error| Failure {
            code: exit::FAILED,
            message: format!("the command cannot be waited for: {error}"),
        })
    }

    fn signal(&self, signal: Signal) {
        // One that has ended meanwhile needs no signal.
        if let Some(pid) = self.pid {
            let _ = match self.has_group {
                true => kill_process_group(pid, signal),
                false => kill_process(pid, signal),
            };
        }
    }

    pub fn pass_on(&self, Received(signal): Received) {
        if self.has_group || signal == Signal::TERM {
            self.signal(signal);
        }
    }

    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Tells it to end, and ends it if it does not.
    pub async fn end_within(&mut self, time: Duration) {
        self.terminate();
        let _ = tokio::time::timeout(time, self.child.wait()).await;
        self.kill().await;
    }

    pub async fn kill(&mut self) {
        // The number of a command that has ended may be another's; that of its group is not while any of it runs.
        if self.has_group || self.child.id().is_some() {
            self.signal(Signal::KILL);
        }
        let _ = self.child.wait().await;
    }
}

fn code_of(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => u8::try_from(code).unwrap_or(exit::FAILED).into(),
        (None, signal) => by_signal(signal.unwrap_or_default()),
    }
}
