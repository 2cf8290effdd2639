//! The signals that `rlock` handles.

use std::future::pending;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use crate::{Failure, exit};

/// Signals that end a process by default.
const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];
/// Signals that `rlock` handles only while a command runs.
const OF_THE_COMMAND: [Signal; 4] = [Signal::USR1, Signal::USR2, Signal::WINCH, Signal::TSTP];

/// The streams of received signals. A signal that was ignored when `rlock` started (`nohup`) stays ignored, and the command
/// inherits that.
pub struct Signals {
    received: Vec<(Signal, unix::Signal)>,
    ignored: u64,
    command: Option<OfTheCommand>,
}

struct OfTheCommand {
    /// SIGCHLD: a child ended or stopped.
    child: unix::Signal,
    resumed: unix::Signal,
}

/// An event that `rlock` reacts to.
pub enum Heard {
    Signal(Signal),
    /// A child ended or stopped.
    Child,
    /// `rlock` continued after a stop.
    Resumed,
}

impl Signals {
    pub fn new() -> Result<Self, Failure> {
        let mut signals = Self {
            received: Vec::new(),
            ignored: ignored(),
            command: None,
        };
        signals.listen_to(&ENDING)?;
        Ok(signals)
    }

    fn listen_to(&mut self, wanted: &[Signal]) -> Result<(), Failure> {
        for signal in wanted {
            if self.ignored & bit(*signal) == 0 {
                self.received.push((*signal, listen(*signal)?));
            }
        }
        Ok(())
    }

    /// Listens also to the signals that concern a command.
    pub fn begin_command(&mut self) -> Result<(), Failure> {
        self.listen_to(&OF_THE_COMMAND)?;
        self.command = Some(OfTheCommand {
            child: listen(Signal::CHILD)?,
            resumed: listen(Signal::CONT)?,
        });
        Ok(())
    }

    /// Discards a SIGCONT that was received earlier.
    pub fn forget_resumed(&mut self) {
        if let Some(command) = &mut self.command
            && let Ok(resumed) = listen(Signal::CONT)
        {
            command.resumed = resumed;
        }
    }

    /// Completes with the exit code for a signal that ends `rlock`.
    pub async fn ending(&mut self) -> u8 {
        loop {
            if let Heard::Signal(signal) = self.next().await {
                return code(signal.as_raw());
            }
        }
    }

    /// Completes with the next event. Dropping the future loses no event.
    pub async fn next(&mut self) -> Heard {
        let received = std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.received {
                if stream.poll_recv(context).is_ready() {
                    return std::task::Poll::Ready(*signal);
                }
            }
            std::task::Poll::Pending
        });
        let (child, resumed) = match &mut self.command {
            None => (None, None),
            Some(command) => (Some(&mut command.child), Some(&mut command.resumed)),
        };
        tokio::select! {
            () = heard(resumed) => Heard::Resumed,
            signal = received => Heard::Signal(signal),
            () = heard(child) => Heard::Child,
        }
    }
}

async fn heard(stream: Option<&mut unix::Signal>) {
    match stream {
        Some(stream) => drop(stream.recv().await),
        None => pending().await,
    }
}

fn listen(signal: Signal) -> Result<unix::Signal, Failure> {
    unix::signal(SignalKind::from_raw(signal.as_raw())).map_err(|error| Failure {
        code: exit::FAILED,
        message: format!("the signal handlers cannot be installed: {error}"),
    })
}

fn bit(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The mask of ignored signals, read from `/proc`: `sigaction` would need unsafe code.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.unwrap_or_default()
}

/// The exit code that a shell reports for a process that the signal ended.
pub fn code(number: i32) -> u8 {
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// Ends this process by a signal. Returns the exit code for a signal that does not end it.
pub fn die_by(number: i32) -> u8 {
    if let Some(signal) = Signal::from_named_raw(number) {
        let _ = kill_process(getpid(), signal);
    }
    code(number)
}
