//! The commands on data, by type of value.

pub(crate) mod hashes;
pub(crate) mod keys;
pub(crate) mod lists;
pub(crate) mod messages;
pub(crate) mod score_ranges;
pub(crate) mod sorted_sets;
pub(crate) mod strings;

use bytes::Bytes;

use super::Frame;

pub(super) const SYNTAX: &str = "ERR syntax error";
const OVERFLOW: &str = "ERR increment or decrement would overflow";

fn number(count: usize) -> Frame {
    Frame::Number(i64::try_from(count).unwrap_or(i64::MAX))
}

fn flag(set: bool) -> Frame {
    Frame::Number(set.into())
}

fn ok() -> Frame {
    Frame::Status(Bytes::from_static(b"OK"))
}

fn text_or_null(text: Option<Bytes>) -> Frame {
    text.map_or(Frame::Null, Frame::Text)
}

fn texts(texts: impl IntoIterator<Item = Bytes>) -> Frame {
    Frame::List(texts.into_iter().map(Frame::Text).collect())
}

/// The positions of a range of `LRANGE` or `ZRANGE`; -1 is the last position.
fn index_range(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let signed = i64::try_from(len).unwrap_or(i64::MAX);
    let from_end = |index: i64| {
        if index < 0 {
            index.saturating_add(signed)
        } else {
            index
        }
    };
    let start = from_end(start).max(0);
    let stop = from_end(stop).min(signed - 1);
    if start > stop {
        return 0..0;
    }
    start as usize..stop as usize + 1
}
