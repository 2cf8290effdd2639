//! The terminal, and the process group in its foreground.

use std::{
    fs::File,
    io::{IsTerminal, stdin, stdout},
};

// Groups and sessions of another PID namespace have the number 0, which rustix cannot represent.
use nix::{
    sys::signal::{SigSet, SigmaskHow, Signal as Number},
    unistd::{Pid, getpgid, getpgrp, getppid, getsid, tcgetpgrp, tcsetpgrp},
};

/// The controlling terminal of `rlock`.
pub struct Terminal {
    tty: File,
    /// The group that `rlock` moved to the foreground in place of its own.
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

    /// Whether the group of `rlock` is in the foreground.
    pub fn is_ours(&self) -> bool {
        self.foreground() == Some(getpgrp())
    }

    /// Whether the command starts in the foreground. In a pipeline it does not, because a neighbour may need the terminal. A
    /// command in the background that reads the terminal is stopped by SIGTTIN, and gets the terminal then.
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

    /// Moves the group of `rlock` back to the foreground, unless a third group is there by now.
    pub fn take_back(&self) {
        if self.given_to.is_some() && self.foreground() == self.given_to {
            self.set(getpgrp());
        }
    }

    /// Sets the group in the foreground. Blocks SIGTTOU meanwhile, which would stop a caller that is in the background.
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

/// Whether a shell controls the group of `rlock`, and can continue it after a stop.
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

/// Whether the process is visible in this PID namespace.
fn is_here(pid: &Pid) -> bool {
    pid.as_raw() > 0
}

/// The parent according to `/proc`, or `None` on a system without it.
fn parent_of(pid: Pid) -> Option<Pid> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    let parent = rest.split_whitespace().nth(1)?.parse().ok()?;
    Some(Pid::from_raw(parent)).filter(is_here)
}
