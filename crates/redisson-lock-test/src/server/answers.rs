//! The results of commands on connections.

use bytes::Bytes;

use super::super::{Failure, Frame, commands::SYNTAX};

pub(super) fn ok() -> Frame {
    Frame::Status(Bytes::from_static(b"OK"))
}

pub(super) fn text(text: &str) -> Frame {
    Frame::Text(Bytes::copy_from_slice(text.as_bytes()))
}

pub(super) fn count(count: usize) -> Frame {
    Frame::Number(i64::try_from(count).unwrap_or(i64::MAX))
}

pub(super) fn syntax_error<T>() -> Result<T, Failure> {
    Err(SYNTAX.into())
}
