//! The version of the protocol.

use std::str::FromStr;

use crate::error::Error;

/// The version of Redis' protocol that connections speak: [`LockClientBuilder::protocol`](crate::LockClientBuilder::protocol).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Protocol {
    /// RESP3. RESP2 where the server refuses `HELLO`, whatever its words.
    #[default]
    Auto,
    /// RESP2. The client sends no `HELLO`.
    Resp2,
    /// RESP3. A server that refuses `HELLO` is an error.
    Resp3,
}

/// `auto`, `RESP2` or `RESP3`, in letters of any case, or the number alone.
impl FromStr for Protocol {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match &*text.to_lowercase() {
            "auto" => Ok(Self::Auto),
            "resp2" | "2" => Ok(Self::Resp2),
            "resp3" | "3" => Ok(Self::Resp3),
            _ => Err(Error::config("the protocol must be auto, RESP2 or RESP3")),
        }
    }
}
