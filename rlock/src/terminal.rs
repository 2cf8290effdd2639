//! The terminal, and which group of processes it is for.

use std::{
    fs::File,
    io::{IsTerminal, stdin, stdout},
};

// Groups and sessions of another namespace have the number 0, for which rustix has no value.
use nix::{
    sys::signal::{SigSet, SigmaskHow, Signal as Number},
    unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp},
};

/// The terminal that this program was started from.
pub struct Terminal {
    tty: File,
    /// The group that has it in place of this program's.
    given_to: Option<Pid>,
}

impl Terminal {
    pub fn open() -> Option<Self> {
        let tty = File::options().read(true).write(true).open("/dev/tty");
        Some(Self {
            tty: tty.ok()?,
            given_to: None,
        })
    }

    fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.tty).ok().filter(is_here)
    }

    /// Whether the keys of the terminal are for this program's group.
    pub fn is_ours(&self) -> bool {
        self.foreground() == Some(getpgrp())
    }

    /// Whether a command is to have the terminal from the beginning. In a pipeline, its neighbours may need it; a command that
    /// reads all the same is stopped for that, and gets it then.
    pub fn is_for_a_command(&self) -> bool {
        self.is_ours() && stdin().is_terminal() && stdout().is_terminal()
    }

    pub fn was_given(&self) -> bool {
        self.given_to.is_some()
    }

    pub fn give_to(&mut self, group: Pid) {
        if self.set(group) {
            self.given_to = Some(group);
        }
    }

    /// Takes it back from the group that it was given to, unless another has it by now.
    pub fn take_back(&self) {
        if self.given_to.is_some() && self.foreground() == self.given_to {
            self.set(getpgrp());
        }
    }

    /// Sets the group in the foreground. One in the background that does so is stopped, unless it blocks the signal.
    fn set(&self, group: Pid) -> bool {
        let mut stop = SigSet::empty();
        stop.add(Number::SIGTTOU);
        let Ok(before) = stop.thread_swap_mask(SigmaskHow::SIG_BLOCK) else {
            return false;
        };
        let set = tcsetpgrp(&self.tty, group);
        let _ = before.thread_set_mask();
        set.is_ok()
    }
}

/// Whether a shell looks after this program's group, and can let it go on after it was stopped.
pub fn has_job_control() -> bool {
    let (group, session) = (getpgrp(), getsid(None).ok());
    let mut above = Some(getppid()).filter(is_here);
    while let Some(pid) = above {
        if getsid(Some(pid)).ok() != session {
            return false;
        }
        if getpgid(Some(pid)).ok() != Some(group) {
            return true;
        }
        above = parent_of(pid);
    }
    false
}

/// Whether it belongs to this namespace, and so has a number.
fn is_here(pid: &Pid) -> bool {
    pid.as_raw() > 0
}

/// As `/proc` tells, where there is one.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
    Some(Pid::from_raw(parent)).filter(is_here)
}
