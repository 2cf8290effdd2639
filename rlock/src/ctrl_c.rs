//! Ctrl+C, in place of the signals of Unix.

#[cfg(windows)]
use tokio::signal::windows as system;

use crate::{Failure, exit};

/// Unix in the place of Windows, for the test alone: there, a process can send itself a Ctrl+C without unsafe code.
#[cfg(all(test, unix))]
mod system {
    use std::io;

    use tokio::signal::unix::{Signal, SignalKind, signal};

    pub type CtrlC = Signal;

    pub fn ctrl_c() -> io::Result<CtrlC> {
        signal(SignalKind::interrupt())
    }
}

pub struct Signals {
    pressed: system::CtrlC,
}

impl Signals {
    /// Listens from now on. From here on a Ctrl+C ends nothing by itself, so one stream hears every one of them: a stream for each
    /// wait would miss those between two waits.
    pub fn new() -> Result<Self, Failure> {
        let pressed = system::ctrl_c().map_err(|error| Failure {
            code: exit::FAILED,
            message: format!("the handler of Ctrl+C cannot be installed: {error}"),
        })?;
        Ok(Self { pressed })
    }

    /// Completes with the exit code for a Ctrl+C. Dropping the future loses none.
    pub async fn ending(&mut self) -> u8 {
        self.pressed.recv().await;
        130
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::Duration;

    use rustix::process::{Signal, getpid, kill_process};
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_ctrl_c_between_two_waits_counts() {
        let mut signals = Signals::new().ok().unwrap();
        let bound = Duration::from_secs(10);
        let nothing = timeout(Duration::ZERO, signals.ending()).await;
        assert!(nothing.is_err(), "a Ctrl+C before any: {nothing:?}");
        let mut heard = system::ctrl_c().unwrap();
        kill_process(getpid(), Signal::INT).unwrap();
        // Tokio tells all streams at once.
        timeout(bound, heard.recv()).await.unwrap();
        assert_eq!(timeout(bound, signals.ending()).await, Ok(130));
    }
}
