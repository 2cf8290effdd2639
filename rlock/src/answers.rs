//! Reads the answers of servers.

use redisson_lock::probe::{Frame, is_transient};

use crate::{Failure, exit};

/// Returns the answer, or a failure if the server refused the command.
pub fn good(frame: Frame) -> Result<Frame, Failure> {
    match frame {
        Frame::Error(message) if message.starts_with("NOPERM") => Err(Failure {
            code: exit::FAILED,
            message: format!(
                "the user lacks a right that this verb needs (see the list in docs/rlock.md): {message}"
            ),
        }),
        Frame::Error(message) if is_transient(&message) => Err(Failure {
            code: exit::UNAVAILABLE,
            message: format!("Redis cannot answer at the moment: {message}"),
        }),
        Frame::Error(message) => Err(Failure {
            code: exit::FAILED,
            message: format!("Redis refused: {message}"),
        }),
        frame => Ok(frame),
    }
}

pub fn text(frame: &Frame) -> Option<String> {
    bytes(frame).map(|text| String::from_utf8_lossy(text).into_owned())
}

pub fn bytes(frame: &Frame) -> Option<&[u8]> {
    match frame {
        Frame::Text(text) | Frame::Status(text) => Some(text),
        _ => None,
    }
}

pub fn number(frame: &Frame) -> Option<i64> {
    match frame {
        Frame::Number(number) => Some(*number),
        frame => text(frame)?.parse().ok(),
    }
}

pub fn list(frame: &Frame) -> &[Frame] {
    match frame {
        Frame::List(frames) => frames,
        _ => &[],
    }
}

pub fn error(frame: &Frame) -> Option<&str> {
    match frame {
        Frame::Error(message) => Some(message),
        _ => None,
    }
}

/// The names and values of an answer, in RESP2 or RESP3.
pub fn pairs(frame: &Frame) -> Vec<(String, String)> {
    match frame {
        Frame::Map(pairs) => pairs
            .iter()
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect(),
        frame => list(frame)
            .chunks_exact(2)
            .filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_a_retry_may_change_differ_from_refusals() {
        let code = |message: &str| good(Frame::Error(message.into())).err().map(|it| it.code);
        for transient in [
            "LOADING",
            "MOVED 1 a:1",
            "ASK 1 a:1",
            "CLUSTERDOWN",
            "MASTERDOWN",
            "TRYAGAIN",
            "BUSY",
        ] {
            assert_eq!(code(transient), Some(exit::UNAVAILABLE), "{transient}");
        }
        for refusal in ["NOPERM", "WRONGTYPE", "ERR unknown command"] {
            assert_eq!(code(refusal), Some(exit::FAILED), "{refusal}");
        }
    }
}
