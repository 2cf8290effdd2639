//! From the frames of RESP to the replies that [`wire`](crate::wire) reads.

use fred::types::Resp3Frame as Frame;

use super::CallError;
use crate::wire::{Refusal, Reply, script::Detail};

/// The message of an error frame.
pub(super) fn error(frame: &Frame) -> Option<String> {
    match frame {
        Frame::SimpleError { data, .. } => Some(data.to_string()),
        Frame::BlobError { data, .. } => Some(String::from_utf8_lossy(data).into_owned()),
        _ => None,
    }
}

/// Text, whatever kind of string carries it.
pub(super) fn text(frame: &Frame) -> Option<String> {
    match frame {
        Frame::BlobString { data, .. }
        | Frame::SimpleString { data, .. }
        | Frame::VerbatimString { data, .. } => Some(String::from_utf8_lossy(data).into_owned()),
        // A subscriber's PING in RESP2 answers ["pong", text].
        Frame::Array { data, .. } | Frame::Push { data, .. } => data.last().and_then(text),
        _ => None,
    }
}

/// The replies to `operations` operations: a status and a detail of each.
pub(super) fn replies(frame: Frame, operations: usize) -> Result<Vec<Reply>, CallError> {
    if let Some(message) = error(&frame) {
        return Err(CallError::Refused(Refusal::from_message(message)));
    }
    let Frame::Array { data, .. } = frame else {
        return Err(odd("no array"));
    };
    if data.len() != 2 * operations {
        return Err(odd("an array of another length"));
    }
    let mut replies = Vec::with_capacity(operations);
    let mut values = data.into_iter();
    while let (Some(status), Some(value)) = (values.next(), values.next()) {
        let status = number(&status).ok_or_else(|| odd("a status that is no number"))?;
        let detail = detail(value).ok_or_else(|| odd("a detail of another type"))?;
        replies.push(Reply { status, detail });
    }
    Ok(replies)
}

fn detail(frame: Frame) -> Option<Detail> {
    match frame {
        Frame::Number { data, .. } => Some(Detail::Number(data)),
        Frame::Array { data, .. } => data
            .iter()
            .map(number)
            .collect::<Option<_>>()
            .map(Detail::Numbers),
        other => text(&other).map(Detail::Text),
    }
}

fn number(frame: &Frame) -> Option<i64> {
    match frame {
        Frame::Number { data, .. } => Some(*data),
        _ => None,
    }
}

fn odd(what: &str) -> CallError {
    CallError::Refused(Refusal::Failed {
        message: format!(
            "a script of redisson-lock answered {what}: is something between it and Redis?"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(data: i64) -> Frame {
        Frame::Number {
            data,
            attributes: None,
        }
    }

    fn blob(data: &'static str) -> Frame {
        Frame::BlobString {
            data: data.as_bytes().into(),
            attributes: None,
        }
    }

    fn array(data: Vec<Frame>) -> Frame {
        Frame::Array {
            data,
            attributes: None,
        }
    }

    #[test]
    fn replies_come_in_pairs() {
        let frame = array(vec![
            int(0),
            int(1),
            int(3),
            blob("string"),
            int(0),
            array(vec![int(-1), int(2)]),
        ]);
        let reply = |status, detail| Reply { status, detail };
        assert_eq!(
            replies(frame, 3).unwrap(),
            [
                reply(0, Detail::Number(1)),
                reply(3, Detail::Text("string".into())),
                reply(0, Detail::Numbers(vec![-1, 2])),
            ]
        );
    }

    #[test]
    fn odd_replies_are_refused_not_trusted() {
        for frame in [
            Frame::Null,
            array(vec![]),
            array(vec![int(0)]),
            array(vec![blob("0"), int(1)]),
            array(vec![int(0), Frame::Null]),
            array(vec![int(0), int(1), int(0), int(1)]),
        ] {
            assert!(matches!(
                replies(frame, 1),
                Err(CallError::Refused(Refusal::Failed { .. }))
            ));
        }
    }

    #[test]
    fn an_error_frame_is_the_refusal_of_the_whole_call() {
        let loading = Frame::SimpleError {
            data: "LOADING wait".into(),
            attributes: None,
        };
        assert!(matches!(
            replies(loading, 2),
            Err(CallError::Refused(Refusal::Passing { .. }))
        ));
    }
}
