//! Ctrl+C, in place of the signals of Unix.

use crate::Failure;

pub struct Signals;

impl Signals {
    pub fn new() -> Result<Self, Failure> {
        Ok(Self)
    }

    /// Completes with the exit code for a Ctrl+C.
    pub async fn ending(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => 130,
            // Without a handler, Ctrl+C ends the process.
            Err(_) => std::future::pending().await,
        }
    }
}
