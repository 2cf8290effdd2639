//! `run` where there is no Unix: it needs process groups and signals.

use crate::{Failure, cli::Run};

impl Run {
    pub fn check(&self) -> Result<(), Failure> {
        Err(Failure::usage(
            "run works on Unix only, because it ends commands by signals: lock by the library here, or run rlock in WSL",
        ))
    }
}
