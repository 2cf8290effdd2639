//! The command that runs under the lock.

use std::{
    ffi::OsString,
    io::{self, ErrorKind},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::ExitStatus,
    time::{Duration, Instant},
};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_current_process_group, kill_process_group, waitid,
};
use tokio::process::{Child, Command as Process};

use crate::{
    Done, Failure,
    cli::DIE,
    exit,
    leash::{Leash, this_program},
    servers::PASSWORDS,
    signals::{self, Heard, Signals},
    terminal::{Terminal, has_job_control},
};

/// A running command. It and its children form a process group of their own.
pub struct Command {
    child: Child,
    pid: Option<Pid>,
    leash: Leash,
    terminal: Option<Terminal>,
}

/// The outcome of [`Command::attend`].
pub enum Attended {
    /// The command exited, or a signal ended it.
    Ended(ExitStatus),
    /// `rlock` continued after a stop. The command may still be stopped.
    Resumed,
}

impl Command {
    /// Starts the command. The leash kills it at `valid_until`, unless that time is [extended](Self::extend).
    pub async fn start(
        words: &[OsString],
        token: Option<i64>,
        kill_after: Duration,
        valid_until: Instant,
    ) -> Result<Self, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::usage("the command is missing: write it after --"));
        };
        let leash = Leash::start(kill_after, valid_until).await?;
        let mut terminal = Terminal::open();
        if let Some(terminal) = &mut terminal
            && terminal.is_for_a_command()
        {
            terminal.give_to(leash.number());
        }
        let mut process = Process::new(program);
        process
            .args(arguments)
            .kill_on_drop(true)
            .process_group(leash.number().as_raw());
        match token {
            Some(token) => process.env("RLOCK_TOKEN", token.to_string()),
            // A token of an outer `rlock` belongs to another lock.
            None => process.env_remove("RLOCK_TOKEN"),
        };
        // The command needs no login at the servers of the lock, and may show its environment.
        for variable in PASSWORDS {
            process.env_remove(variable);
        }
        match process.spawn() {
            Ok(child) => Ok(Self {
                pid: child.id().and_then(|id| Pid::from_raw(id as i32)),
                child,
                leash,
                terminal,
            }),
            Err(error) => {
                if let Some(terminal) = &terminal {
                    terminal.take_back();
                }
                leash.let_go().await;
                Err(Failure {
                    code: match error.kind() {
                        ErrorKind::NotFound => exit::NOT_FOUND,
                        _ => exit::CANNOT_RUN,
                    },
                    message: format!("{}: {error}", program.to_string_lossy()),
                })
            }
        }
    }

    /// Lets the command run until `valid_until`.
    pub async fn extend(&mut self, valid_until: Instant) {
        self.leash.extend(valid_until).await;
    }

    /// Waits for the command, forwards signals to it, and stops `rlock` when the command stops. The future is cancel safe.
    pub async fn attend(&mut self, signals: &mut Signals) -> io::Result<Attended> {
        loop {
            tokio::select! {
                biased;
                status = self.child.wait() => return status.map(Attended::Ended),
                heard = signals.next() => match heard {
                    Heard::Signal(signal) => self.signal(signal),
                    Heard::Resumed => return Ok(Attended::Resumed),
                    Heard::Child => self.follow(signals),
                },
            }
        }
    }

    /// Continues the command, in the foreground if `rlock` is there.
    pub fn resume(&mut self) {
        if let Some(terminal) = &mut self.terminal
            && terminal.is_ours()
            && (terminal.was_given() || terminal.is_for_a_command())
        {
            terminal.give_to(self.leash.number());
        }
        self.signal(Signal::CONT);
    }

    /// Stops `rlock` if the command stopped: a shell sees only the stop of `rlock`, and takes the terminal back then.
    fn follow(&mut self, signals: &mut Signals) {
        let Some(stopped_by) = self.stopped_by() else {
            return;
        };
        let wants_terminal = matches!(stopped_by, Signal::TTIN | Signal::TTOU);
        match &mut self.terminal {
            // A command that reads or configures the terminal gets it.
            Some(terminal) if wants_terminal && terminal.is_ours() => {
                terminal.give_to(self.leash.number());
                self.signal(Signal::CONT);
            }
            Some(terminal) if has_job_control() => {
                terminal.take_back();
                signals.forget_resumed();
                // Stops the script or pipeline around `rlock` too, as the terminal would.
                let _ = kill_current_process_group(Signal::STOP);
            }
            // No shell can continue the command. The kernel sends these signals to stopped groups without a shell.
            _ if wants_terminal => {
                self.signal(Signal::HUP);
                self.signal(Signal::CONT);
            }
            _ if stopped_by == Signal::TSTP => self.signal(Signal::CONT),
            // The sender of a SIGSTOP can also send a SIGCONT.
            _ => {}
        }
    }

    fn stopped_by(&self) -> Option<Signal> {
        let looked = waitid(
            WaitId::Pid(self.pid?),
            WaitIdOptions::STOPPED | WaitIdOptions::NOHANG,
        );
        let number = looked.ok()??.stopping_signal()?;
        Signal::from_named_raw(number)
    }

    /// Signals the group. Its number cannot belong to another group while the leash lives.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.leash.group, signal);
    }

    /// Sends SIGTERM, and SIGCONT so that a stopped command receives it.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Sends SIGTERM, and SIGKILL after `time`. Forwards signals meanwhile.
    pub async fn end_within(mut self, time: Duration, signals: &mut Signals) {
        self.terminate();
        let ending = async {
            while let Ok(Attended::Resumed) = self.attend(signals).await {
                self.resume();
            }
        };
        let _ = tokio::time::timeout(time, ending).await;
        self.kill().await;
    }

    /// Kills the whole group.
    pub async fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait().await;
        self.finish().await;
    }

    /// Cleans up after the command exited, and returns the outcome.
    pub async fn ended(self, status: ExitStatus) -> Done {
        let was_given = self.terminal.as_ref().is_some_and(Terminal::was_given);
        self.finish().await;
        // In one group with its command, a script or a loop of a shell would receive the key's signal too.
        let by_a_key = status
            .signal()
            .and_then(Signal::from_named_raw)
            .filter(|signal| matches!(*signal, Signal::INT | Signal::QUIT));
        if let Some(signal) = by_a_key.filter(|_| was_given) {
            let _ = kill_current_process_group(signal);
            return Done::ByKey(signals::code(signal.as_raw()));
        }
        Done::Code(match (status.code(), status.signal()) {
            (Some(code), _) => u8::try_from(code).unwrap_or(exit::FAILED),
            (None, signal) => signals::code(signal.unwrap_or_default()),
        })
    }

    async fn finish(self) {
        if let Some(terminal) = &self.terminal {
            terminal.take_back();
        }
        self.leash.let_go().await;
    }
}

/// Ends `rlock` by the signal that the exit code stands for, if a key can send it. A shell ends a loop for a signal, and not for
/// an exit code.
pub fn die_by_key(code: u8) {
    let signals = [Signal::INT, Signal::QUIT];
    let died_by = signals
        .into_iter()
        .find(|signal| signals::code(signal.as_raw()) == code);
    if let Some(signal) = died_by {
        // A new process image has the default handlers.
        let number = signal.as_raw().to_string();
        let _ = std::process::Command::new(this_program())
            .args([DIE, &number])
            .exec();
    }
}
