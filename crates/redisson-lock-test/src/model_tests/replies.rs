//! The server's frames as replies of the model.

use bytes::Bytes;
use model_server::{Detail, Reply};

use super::Frame;

/// The replies to so many operations; `None` for a frame of a shape that no script returns.
pub(super) fn read(frame: &Frame, operations: usize) -> Option<Vec<Reply>> {
    match (operations, frame) {
        (1, frame) => Some(vec![reply(frame)?]),
        (_, Frame::List(frames)) if frames.len() == operations => {
            frames.iter().map(reply).collect()
        }
        _ => None,
    }
}

fn reply(frame: &Frame) -> Option<Reply> {
    let (status, detail) = match frame {
        Frame::Number(0) => (0, Detail::Nothing),
        Frame::List(pair) => match &pair[..] {
            [Frame::Number(status @ 0..=4), detail] => (*status, read_detail(detail)?),
            _ => return None,
        },
        _ => return None,
    };
    let detail = match detail {
        Detail::Text(words) if status == 4 => Detail::Text(without_line(words)),
        detail => detail,
    };
    Some(Reply { status, detail })
}

fn read_detail(frame: &Frame) -> Option<Detail> {
    let number = |frame: &Frame| match frame {
        Frame::Number(number) => Some(*number),
        _ => None,
    };
    match frame {
        Frame::Number(number) => Some(Detail::Number(*number)),
        Frame::Text(text) => Some(Detail::Text(text.clone())),
        Frame::List(list) => Some(Detail::Numbers(
            list.iter().map(number).collect::<Option<_>>()?,
        )),
        _ => None,
    }
}

/// The words of a failure. Lua puts the line of a script's own `error` in front of them, which the model cannot know.
fn without_line(words: Bytes) -> Bytes {
    let text = str::from_utf8(&words).unwrap_or_default();
    let behind = text.strip_prefix("user_script:").and_then(|text| {
        let (line, behind) = text.split_once(": ")?;
        line.parse::<u32>().is_ok().then_some(behind)
    });
    behind.map_or_else(
        || words.clone(),
        |behind| words.slice_ref(behind.as_bytes()),
    )
}

#[test]
fn frames_that_no_script_returns_are_no_replies() {
    let text = || Frame::Text(Bytes::from_static(b"words"));
    let pair = |status, detail| Frame::List(vec![Frame::Number(status), detail]);
    let odd = [
        Frame::Null,
        Frame::Number(1),
        text(),
        Frame::Error("ERR refused".to_owned()),
        Frame::List(Vec::new()),
        Frame::List(vec![Frame::Number(1)]),
        Frame::List(vec![text(), Frame::Number(1)]),
        Frame::List(vec![Frame::Number(1), Frame::Number(1), Frame::Number(1)]),
        pair(5, text()),
        pair(-1, text()),
        pair(4, Frame::Null),
        pair(4, Frame::Error("ERR refused".to_owned())),
        pair(0, Frame::List(vec![Frame::Number(1), Frame::Null])),
    ];
    for frame in odd {
        assert_eq!(read(&frame, 1), None, "{frame:?}");
        let beside = Frame::List(vec![Frame::Number(0), frame]);
        assert_eq!(read(&beside, 2), None, "{beside:?}");
    }
    let two = Frame::List(vec![Frame::Number(0), Frame::Number(0)]);
    assert!(read(&two, 2).is_some());
    assert_eq!(read(&two, 3), None, "a reply is missing");
    assert_eq!(read(&Frame::Number(0), 2), None, "one reply for both");
}

#[test]
fn words_of_a_failure_stand_behind_its_line() {
    let words = |text: &'static str| {
        let frame = Frame::Text(Bytes::from_static(text.as_bytes()));
        let replies = read(&Frame::List(vec![Frame::Number(4), frame]), 1);
        replies.expect("a failure")[0].detail.clone()
    };
    let expected = Detail::Text(Bytes::from_static(b"that is: too many"));
    assert_eq!(words("user_script:12: that is: too many"), expected);
    assert_eq!(words("that is: too many"), expected);
    assert_ne!(words("user_script:x: that is: too many"), expected);
}
