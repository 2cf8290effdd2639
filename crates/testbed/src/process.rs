//! A child process that ends with this process.

use std::io;
use std::path::Path;
use std::process::{self, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use rustix::time::{ClockId, clock_gettime};

/// The CPU time that all threads of this process have used.
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("CPU time is not negative")
}

/// A child process. Dropping it kills it by its pid and reaps it, even if it is stopped.
#[derive(Debug)]
pub(crate) struct Process {
    child: process::Child,
    leash: Leash,
}

impl Process {
    pub(crate) fn spawn(command: &mut Command) -> io::Result<Self> {
        Self::spawn_with(command, None)
    }

    /// The same, for a process that has a temporary folder.
    pub(crate) fn spawn_in(folder: &Path, command: &mut Command) -> io::Result<Self> {
        Self::spawn_with(command, Some(folder))
    }

    fn spawn_with(command: &mut Command, folder: Option<&Path>) -> io::Result<Self> {
        let child = command.spawn()?;
        let leash = Leash::on(child.id(), folder);
        Ok(Self { child, leash })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn child(&mut self) -> &mut process::Child {
        &mut self.child
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.child
            .try_wait()
            .expect("this process can wait for its child")
    }

    /// Stops the process, and returns once it has stopped.
    pub(crate) fn pause(&mut self) {
        if let Some(pid) = self.signal(Signal::STOP) {
            // Without NOWAIT a process that has just died would be reaped here, unseen by `child`.
            let until = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            waitid(WaitId::Pid(pid), until).expect("this process can wait for its child");
        }
    }

    pub(crate) fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    pub(crate) fn kill(&mut self) {
        self.leash.dismiss();
        self.child.kill().expect("this process can kill its child");
        self.child
            .wait()
            .expect("this process can wait for its child");
    }

    /// Sends nothing after the end of the process: another process may have its pid.
    fn signal(&mut self, signal: Signal) -> Option<Pid> {
        if self.ended().is_some() {
            return None;
        }
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("this process can signal its child");
        Some(pid)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Kills a child, and removes its folder, when this process ends without running `Drop`: by a kill, or with the child in a static.
///
/// It is a shell that reads from a pipe of this process: the pipe ends with the process. (The parent-death signal would need `unsafe`,
/// and it is sent at the end of the spawning *thread*, which is too early in tests.)
#[derive(Debug)]
struct Leash(process::Child);

impl Leash {
    fn on(pid: u32, folder: Option<&Path>) -> Self {
        let shell = Command::new("sh")
            .args([
                "-c",
                r#"trap "" INT TERM HUP; read _; kill -9 "$1"; [ -z "$2" ] || rm -rf -- "$2""#,
                "leash",
                &pid.to_string(),
            ])
            .arg(folder.unwrap_or(Path::new("")))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self(shell.expect("a shell is installed"))
    }

    /// Runs before the process is reaped, because another process may have its pid afterwards.
    fn dismiss(&mut self) {
        self.0.kill().expect("this process can kill its child");
        self.0.wait().expect("this process can wait for its child");
    }
}
