//! Why there is no answer.

use std::fmt;

pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What a peer cannot do, and why.
#[derive(Debug, Clone)]
pub struct Unsupported(pub String);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unsupported {}

/// The answer to what the peer cannot do.
pub fn unsupported<T>(why: &str) -> Result<T, Failure> {
    Err(Unsupported(why.to_owned()).into())
}
