//! Answers of a real server and of the server in memory, in one comparable type.

use std::collections::BTreeMap;

use redis::Value;
use redisson_lock_test::simulation::Frame;

/// Numbers above this count as times, in ms. The shortest lease is twice as long, so that a slow round does not get there.
const TIME: i64 = 50_000;

/// An answer of either server.
#[derive(Debug, PartialEq)]
pub enum Answer {
    Nothing,
    Number(i64),
    Text(String),
    Error(String),
    List(Vec<Answer>),
}

pub fn of_text(text: &[u8]) -> Answer {
    unpack(text).unwrap_or_else(|| Answer::Text(String::from_utf8_lossy(text).into_owned()))
}

pub fn of_real(value: Value) -> Answer {
    match value {
        Value::Nil => Answer::Nothing,
        Value::Int(number) => Answer::Number(number),
        Value::BulkString(text) => of_text(&text),
        Value::SimpleString(text) => Answer::Text(text),
        Value::Okay => Answer::Text("OK".into()),
        Value::ServerError(error) => Answer::Error(format!(
            "{} {}",
            error.code(),
            error.details().unwrap_or_default()
        )),
        Value::Array(values) | Value::Set(values) => {
            Answer::List(values.into_iter().map(of_real).collect())
        }
        other => panic!("RESP2 has no {other:?}"),
    }
}

pub fn of_memory(frame: Frame) -> Answer {
    match frame {
        Frame::Null => Answer::Nothing,
        Frame::Number(number) => Answer::Number(number),
        Frame::Text(text) | Frame::Status(text) => of_text(&text),
        Frame::Error(message) => Answer::Error(message),
        Frame::List(frames) => Answer::List(frames.into_iter().map(of_memory).collect()),
        other => panic!("RESP2 has no {other:?}"),
    }
}

/// Whether two answers are equal, but for times, which may be `apart` ms apart.
pub fn agree(one: &Answer, other: &Answer, apart: i64) -> bool {
    let near = |one: i64, other: i64| {
        one == other || one.min(other) > TIME && (one - other).abs() <= apart
    };
    match (one, other) {
        (Answer::Number(one), Answer::Number(other)) => near(*one, *other),
        // A list of holders is a text with times among its words.
        (Answer::Text(one), Answer::Text(other)) => {
            let words = |text: &str| {
                text.split([' ', '\n'])
                    .map(str::to_owned)
                    .collect::<Vec<_>>()
            };
            let (one, other) = (words(one), words(other));
            let alike = |(one, other): (&String, &String)| match (one.parse(), other.parse()) {
                (Ok(one), Ok(other)) => near(one, other),
                _ => one == other,
            };
            one.len() == other.len() && one.iter().zip(&other).all(alike)
        }
        (Answer::List(one), Answer::List(other)) => {
            let alike = |(one, other)| agree(one, other, apart);
            one.len() == other.len() && one.iter().zip(other).all(alike)
        }
        // Other servers than Redis 7.0 have other error texts: only the code is compared.
        (Answer::Error(one), Answer::Error(other))
            if std::env::var_os("REDIS_SERVER").is_some() =>
        {
            one.split(' ').next() == other.split(' ').next()
        }
        (one, other) => one == other,
    }
}

pub fn fields(answer: Answer) -> BTreeMap<String, String> {
    let Answer::List(list) = answer else {
        panic!("{answer:?}")
    };
    let pairs = list.chunks_exact(2);
    pairs
        .map(|pair| (format!("{:?}", pair[0]), format!("{:?}", pair[1])))
        .collect()
}

/// Decodes a MessagePack list of numbers, texts and lists. Returns `None` for other bytes.
fn unpack(bytes: &[u8]) -> Option<Answer> {
    let mut rest = bytes;
    let list = unpack_one(&mut rest)?;
    (rest.is_empty() && matches!(list, Answer::List(_))).then_some(list)
}

fn unpack_one(rest: &mut &[u8]) -> Option<Answer> {
    use rmp::{Marker, decode};
    Some(match Marker::from_u8(*rest.first()?) {
        Marker::FixArray(_) | Marker::Array16 => {
            let length = decode::read_array_len(rest).ok()?;
            Answer::List(
                (0..length)
                    .map(|_| unpack_one(rest))
                    .collect::<Option<_>>()?,
            )
        }
        Marker::FixStr(_) | Marker::Str8 | Marker::Str16 => {
            let length = decode::read_str_len(rest).ok()? as usize;
            let (text, after) = rest.split_at_checked(length)?;
            *rest = after;
            Answer::Text(String::from_utf8_lossy(text).into_owned())
        }
        _ => Answer::Number(decode::read_int(rest).ok()?),
    })
}
