//! Converts frames of RESP to the replies that [`wire`](crate::wire) reads.

use super::CallError;
use crate::{
    hash::HashMap,
    transport::Frame,
    wire::{Refusal, Reply, packed, reply::Detail},
};

/// The message of an error frame.
pub(super) fn error(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Error(message) => Some(message.clone()),
        _ => None,
    }
}

/// Whether the server does not know the script, or not `EVALSHA`. It has run nothing then.
pub(super) fn is_unknown_script(frame: &Frame) -> bool {
    matches!(frame, Frame::Error(message) if message.starts_with("NOSCRIPT"))
        || lacks_evalsha(frame)
}

/// Whether the peer lacks `EVALSHA`, by its words. A user without the right to it is told so instead.
pub(super) fn lacks_evalsha(frame: &Frame) -> bool {
    let Frame::Error(message) = frame else {
        return false;
    };
    let words = message.to_lowercase();
    let is_about_it = ["evalsha", "unknown command", "unsupported command"]
        .iter()
        .any(|part| words.contains(part));
    is_about_it && !message.starts_with("NOPERM")
}

/// The text of a string of any type.
pub(super) fn text(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Text(text) | Frame::Status(text) => Some(String::from_utf8_lossy(text).into_owned()),
        // A subscriber's PING in RESP2 answers ["pong", text].
        Frame::List(frames) => frames.last().and_then(text),
        _ => None,
    }
}

/// The fields of a map, or of RESP2's list of alternating names and values.
pub(super) fn map(frame: &Frame) -> HashMap<String, String> {
    match frame {
        Frame::Map(pairs) => pairs
            .iter()
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect(),
        Frame::List(frames) => frames
            .chunks_exact(2)
            .filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))
            .collect(),
        _ => HashMap::default(),
    }
}

/// A list of maps.
pub(super) fn maps(frame: &Frame) -> Vec<HashMap<String, String>> {
    match frame {
        Frame::List(frames) => frames.iter().map(map).collect(),
        _ => Vec::new(),
    }
}

/// The text at `index` of a list.
pub(super) fn text_at(frame: &Frame, index: usize) -> Option<String> {
    match frame {
        Frame::List(frames) => frames.get(index).and_then(text),
        _ => None,
    }
}

/// The number at `index` of a list.
pub(super) fn number_at(frame: &Frame, index: usize) -> Option<i64> {
    match frame {
        Frame::List(frames) => frames.get(index).and_then(number),
        _ => None,
    }
}

/// The number of replicas that have acknowledged, by the answer to `WAIT` or `WAITAOF`. `WAITAOF` first reports the
/// master's own disk: until the master has the write there, replicas do not count.
pub(super) fn acknowledgements(frame: &Frame) -> Option<u32> {
    let by = match frame {
        Frame::List(frames) => match frames.iter().map(number).collect::<Option<Vec<_>>>()?[..] {
            [0, _] => 0,
            [_, by] => by,
            _ => return None,
        },
        frame => number(frame)?,
    };
    by.try_into().ok()
}

/// The number under `name` of a map.
pub(super) fn number_in(frame: &Frame, name: &str) -> Option<i64> {
    let Frame::Map(pairs) = frame else {
        return None;
    };
    let found = pairs
        .iter()
        .find(|(key, _)| text(key).as_deref() == Some(name));
    found.and_then(|(_, value)| number(value))
}

/// The length of the list at `index` of a list.
pub(super) fn list_len_at(frame: &Frame, index: usize) -> Option<usize> {
    let Frame::List(frames) = frame else {
        return None;
    };
    match frames.get(index)? {
        Frame::List(list) => Some(list.len()),
        _ => None,
    }
}

/// The replies to `operations` operations. Each is a status, or a list of a status and a detail. A single reply comes
/// alone. Several replies come in one packed string, or in a list from a node to which a slot moves.
pub(super) fn replies(frame: Frame, operations: usize) -> Result<Vec<Reply>, CallError> {
    if let Some(message) = error(&frame) {
        return Err(CallError::Refused(Refusal::from_message(message)));
    }
    match frame {
        frame if operations == 1 => match reply(frame) {
            Some(reply) => Ok(vec![reply]),
            None => Err(odd("a reply without a status")),
        },
        Frame::Text(list) => {
            let replies = packed::replies(&list, operations);
            replies.ok_or_else(|| odd("a list that cannot be unpacked, or of the wrong length"))
        }
        Frame::List(frames) if frames.len() == operations => {
            let replies: Option<_> = frames.into_iter().map(reply).collect();
            replies.ok_or_else(|| odd("a list with an element that is not a status"))
        }
        Frame::List(_) => Err(odd("a list of the wrong length")),
        _ => Err(odd("neither a list nor a string")),
    }
}

fn reply(frame: Frame) -> Option<Reply> {
    let (status, detail) = match frame {
        Frame::List(frames) => {
            let [status, value] = <[Frame; 2]>::try_from(frames).ok()?;
            (number(&status)?, detail(value)?)
        }
        status => (number(&status)?, Detail::Nothing),
    };
    Some(Reply { status, detail })
}

fn detail(frame: Frame) -> Option<Detail> {
    match frame {
        Frame::Number(number) => Some(Detail::Number(number)),
        Frame::List(frames) => {
            let numbers: Option<_> = frames.iter().map(number).collect();
            numbers.map(Detail::Numbers)
        }
        other => text(&other).map(Detail::Text),
    }
}

fn number(frame: &Frame) -> Option<i64> {
    match frame {
        Frame::Number(number) => Some(*number),
        _ => None,
    }
}

fn odd(what: &str) -> CallError {
    CallError::Refused(Refusal::Failed {
        message: format!(
            "a script of redisson-lock returned {what}: check for a proxy that rewrites answers"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(number: i64) -> Frame {
        Frame::Number(number)
    }

    fn blob(text: &'static str) -> Frame {
        Frame::Text(text.into())
    }

    fn array(frames: Vec<Frame>) -> Frame {
        Frame::List(frames)
    }

    #[test]
    fn a_reply_is_a_status_with_or_without_a_detail() {
        let frame = array(vec![
            int(0),
            array(vec![int(3), blob("string")]),
            array(vec![int(0), array(vec![int(-1), int(2)])]),
        ]);
        let reply = |status, detail| Reply { status, detail };
        assert_eq!(
            replies(frame, 3).unwrap(),
            [
                reply(0, Detail::Nothing),
                reply(3, Detail::Text("string".into())),
                reply(0, Detail::Numbers(vec![-1, 2])),
            ]
        );
        assert_eq!(replies(int(0), 1).unwrap(), [reply(0, Detail::Nothing)]);
        let busy = array(vec![int(1), int(300)]);
        assert_eq!(replies(busy, 1).unwrap(), [reply(1, Detail::Number(300))]);
    }

    #[test]
    fn a_write_that_is_not_on_the_masters_disk_is_not_acknowledged() {
        assert_eq!(acknowledgements(&int(2)), Some(2));
        assert_eq!(acknowledgements(&array(vec![int(1), int(2)])), Some(2));
        assert_eq!(acknowledgements(&array(vec![int(0), int(2)])), Some(0));
        assert_eq!(acknowledgements(&blob("2")), None);
        assert_eq!(acknowledgements(&array(vec![int(2)])), None);
    }

    #[test]
    fn odd_replies_are_refused_not_trusted() {
        for frame in [
            Frame::Null,
            blob("0"),
            array(vec![]),
            array(vec![int(0)]),
            array(vec![int(0), Frame::Null]),
            array(vec![int(0), int(0), int(0)]),
        ] {
            for operations in [1, 2] {
                assert!(matches!(
                    replies(frame.clone(), operations),
                    Err(CallError::Refused(Refusal::Failed { .. }))
                ));
            }
        }
    }

    #[test]
    fn an_error_frame_is_the_refusal_of_the_whole_call() {
        let loading = Frame::Error("LOADING wait".into());
        assert!(matches!(
            replies(loading, 2),
            Err(CallError::Refused(Refusal::Transient { .. }))
        ));
    }
}
