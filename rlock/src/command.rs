//! The command that is run.

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
    signals::{self, Heard, Signals},
    terminal::{Terminal, has_job_control},
};

/// A command that runs, in a group of processes of its own with all that it starts.
pub struct Command {
    child: Child,
    pid: Option<Pid>,
    leash: Leash,
    terminal: Option<Terminal>,
}

/// What comes of attending a command.
pub enum Attended {
    /// It has ended by itself, or by a signal.
    Ended(ExitStatus),
    /// This program goes on after it was stopped. The command may be stopped yet.
    Resumed,
}

impl Command {
    /// Starts it. It is ended at `valid_until`, unless that is [extended](Self::extend).
    pub async fn start(
        words: &[OsString],
        token: Option<i64>,
        kill_after: Duration,
        valid_until: Instant,
    ) -> Result<Self, Failure> {
        let Some((program, arguments)) = words.split_first() else {
            return Err(Failure::usage("no command was given"));
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
            // One of an outer `rlock` is about another lock.
            None => process.env_remove("RLOCK_TOKEN"),
        };
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

    /// Lets it run until then.
    pub async fn extend(&mut self, valid_until: Instant) {
        self.leash.extend(valid_until).await;
    }

    /// Passes signals on, and stops with it. Dropping the future changes nothing.
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

    /// Lets it go on, in the foreground if this program is there.
    pub fn resume(&mut self) {
        if let Some(terminal) = &mut self.terminal
            && terminal.is_ours()
            && (terminal.was_given() || terminal.is_for_a_command())
        {
            terminal.give_to(self.leash.number());
        }
        self.signal(Signal::CONT);
    }

    /// Stops if the command was stopped: a shell sees only that, and gets the terminal by it.
    fn follow(&mut self, signals: &mut Signals) {
        let Some(stopped_by) = self.stopped_by() else {
            return;
        };
        let wants_terminal = matches!(stopped_by, Signal::TTIN | Signal::TTOU);
        match &mut self.terminal {
            // It reads, or sets how the terminal works: it gets the terminal for that.
            Some(terminal) if wants_terminal && terminal.is_ours() => {
                terminal.give_to(self.leash.number());
                self.signal(Signal::CONT);
            }
            Some(terminal) if has_job_control() => {
                terminal.take_back();
                signals.forget_resumed();
                // With the script or the pipeline that this program is a part of, as the terminal would.
                let _ = kill_current_process_group(Signal::STOP);
            }
            // Nothing would ever let it go on: what the kernel does with groups that no shell looks after.
            _ if wants_terminal => {
                self.signal(Signal::HUP);
                self.signal(Signal::CONT);
            }
            _ if stopped_by == Signal::TSTP => self.signal(Signal::CONT),
            // A `SIGSTOP` is sent by a user that can send a `SIGCONT`.
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

    /// The number of the group is no other's as long as the leash is there.
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.leash.group, signal);
    }

    /// Tells it to end, even if it is stopped.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
        self.signal(Signal::CONT);
    }

    /// Tells it to end, and ends it if it does not. Signals are passed on meanwhile.
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

    /// Ends all of it.
    pub async fn kill(mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait().await;
        self.finish().await;
    }

    /// Comes after its end.
    pub async fn ended(self, status: ExitStatus) -> Done {
        let was_given = self.terminal.as_ref().is_some_and(Terminal::was_given);
        self.finish().await;
        // What the terminal would have ended, had the command been in one group with it: a script, or a loop of a shell.
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

/// Ends this program by the signal of that exit code, if a key of the terminal has sent it: a shell breaks off a loop then, and not
/// for a code.
pub fn die_by_key(code: u8) {
    let signals = [Signal::INT, Signal::QUIT];
    let died_by = signals
        .into_iter()
        .find(|signal| signals::code(signal.as_raw()) == code);
    if let Some(signal) = died_by {
        // What is executed anew handles no signal.
        let number = signal.as_raw().to_string();
        let _ = std::process::Command::new(this_program())
            .args([DIE, &number])
            .exec();
    }
}
