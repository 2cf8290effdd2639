//! Failures of peers and of the driver.

use std::fmt;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The reason why a peer does not support a command.
#[derive(Debug, Clone)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// The answer to a command that the peer does not support.
pub fn unsupported<T>(why: &str) -> Result<T, Failure> {
    Err(Unsupported(why.to_owned()).into())
}
