//! The leash: a process that kills the command when the lock ends. If `rlock` is killed, it cannot end the command; if it is
//! stopped, it does not renew the lock. The leash ends the command in both cases.
//!
//! The leash is the leader of the command's process group. Therefore no other group gets the number while the leash lives, one
//! signal reaches the whole group, and no process of the command starts before the leash. The parent-death signal of Linux is no
//! substitute: setting it needs unsafe code, it reaches one process only, and the end of a thread triggers it.

use std::{
    io::{BufRead, Write, stdin, stdout},
    process::Stdio,
    sync::mpsc::{RecvTimeoutError, channel},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::SigSet,
    unistd::{getpgrp, getpid},
};
use rustix::process::{Pid, Signal, kill_current_process_group};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, Command},
    time::timeout,
};

use crate::{Failure, cli::LEASH, exit};

/// The time limit of a write to the leash. A running leash reads at once; a stopped leash implies a stopped command.
const WRITE_WAIT: Duration = Duration::from_millis(100);

/// The path of the running executable. On Linux it stays valid if the file is replaced.
pub fn this_program() -> std::path::PathBuf {
    match cfg!(target_os = "linux") {
        true => "/proc/self/exe".into(),
        false => std::env::current_exe().unwrap_or_else(|_| "rlock".into()),
    }
}

/// The handle of `rlock` to the leash process.
pub struct Leash {
    process: Child,
    pub group: Pid,
    until: Option<Instant>,
}

impl Leash {
    /// Starts a leash. If `rlock` dies, the command gets SIGTERM, and SIGKILL after at most `kill_after`.
    pub async fn start(kill_after: Duration, valid_until: Instant) -> Result<Self, Failure> {
        let failed = |error: String| Failure {
            code: exit::FAILED,
            message: format!("the process that guards the command cannot start: {error}"),
        };
        let mut command = Command::new(this_program());
        command
            .args([LEASH, &kill_after.as_millis().to_string()])
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut ready = [0];
        if let Some(mut output) = process.stdout.take() {
            let read = output.read_exact(&mut ready).await;
            read.map_err(|error| failed(error.to_string()))?;
        }
        let pid = process.id().and_then(|id| Pid::from_raw(id as i32));
        let mut leash = Self {
            process,
            group: pid.ok_or_else(|| failed("it ended at once".into()))?,
            until: None,
        };
        leash.extend(valid_until).await;
        Ok(leash)
    }

    /// The process group, in the type that the terminal functions take.
    pub fn number(&self) -> nix::unistd::Pid {
        nix::unistd::Pid::from_raw(self.group.as_raw_nonzero().get())
    }

    /// Lets the command run until `until`.
    pub async fn extend(&mut self, until: Instant) {
        if self.until == Some(until) {
            return;
        }
        let left = until.saturating_duration_since(Instant::now());
        if let Some(input) = &mut self.process.stdin {
            let line = format!("{}\n", left.as_millis());
            let written = timeout(WRITE_WAIT, input.write_all(line.as_bytes())).await;
            if matches!(written, Ok(Ok(()))) {
                self.until = Some(until);
            }
        }
    }

    /// Ends the leash. Remaining processes of the group keep running.
    pub async fn let_go(mut self) {
        let _ = self.process.kill().await;
    }
}

/// The main loop of the leash process. Each input line is the number of milliseconds that the command may still run.
pub fn hold(kill_after_ms: u64) -> u8 {
    let kill_after = Duration::from_millis(kill_after_ms);
    // Without a group of its own, the leash would kill the processes of its caller.
    if getpgrp() != getpid() || SigSet::all().thread_block().is_err() {
        return exit::USAGE;
    }
    let _ = stdout().write_all(b"!").and_then(|()| stdout().flush());
    let (sender, received) = channel();
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            if let Ok(left) = line.parse() {
                let _ = sender.send(Instant::now() + Duration::from_millis(left));
            }
        }
    });
    let mut until = Instant::now() + kill_after;
    loop {
        match received.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(later) => until = later,
            Err(RecvTimeoutError::Timeout) => break,
            Err(RecvTimeoutError::Disconnected) => {
                let _ = kill_current_process_group(Signal::TERM);
                let _ = kill_current_process_group(Signal::CONT);
                std::thread::sleep(kill_after.min(until.saturating_duration_since(Instant::now())));
                break;
            }
        }
    }
    let _ = kill_current_process_group(Signal::KILL);
    exit::FAILED
}
