//! Conversion of replies from commands to scripts, and from scripts to clients.

use mlua::{BString, Either, Lua, Table, Value};

use super::{
    super::Frame,
    bytes,
    errors::{error_table, one_line, text_of},
};

/// The deepest list of a script.
const MOST_LEVELS: usize = 200;

/// A reply as a Lua value, in the form that reaches the stack fastest.
pub(super) type Pushed = Either<Simple, Either<Vec<Simple>, Value>>;

type Simple = Either<f64, Either<bool, Either<String, BString>>>;

/// A reply as a Lua value.
pub(super) fn pushed(lua: &Lua, frame: Frame) -> mlua::Result<Pushed> {
    let frame = match simple(frame) {
        Ok(simple) => return Ok(Either::Left(simple)),
        Err(frame) => frame,
    };
    Ok(Either::Right(match frame {
        Frame::List(frames) if frames.iter().all(is_simple) => {
            let frames = frames.into_iter();
            Either::Left(frames.filter_map(|frame| simple(frame).ok()).collect())
        }
        frame => Either::Right(to_lua(lua, frame)?),
    }))
}

fn is_simple(frame: &Frame) -> bool {
    matches!(frame, Frame::Null | Frame::Number(_) | Frame::Text(_))
}

fn simple(frame: Frame) -> Result<Simple, Frame> {
    Ok(match frame {
        // Numbers of Lua are floats.
        Frame::Number(number) => Either::Left(number as f64),
        Frame::Null => Either::Right(Either::Left(false)),
        Frame::Text(text) => Either::Right(Either::Right(match String::from_utf8(text.into()) {
            Ok(text) => Either::Left(text),
            Err(error) => Either::Right(error.into_bytes().into()),
        })),
        frame => return Err(frame),
    })
}

/// The value of a script for a reply.
pub(super) fn to_lua(lua: &Lua, frame: Frame) -> mlua::Result<Value> {
    Ok(match frame {
        // Numbers of Lua are floats.
        Frame::Number(number) => Value::Number(number as f64),
        Frame::Text(text) => Value::String(lua.create_string(&text)?),
        Frame::Status(text) => {
            let table = lua.create_table_with_capacity(0, 1)?;
            table.raw_set("ok", lua.create_string(&text)?)?;
            Value::Table(table)
        }
        Frame::Error(message) => Value::Table(error_table(lua, message.as_bytes())?),
        Frame::List(frames) => Value::Table(list(lua, frames)?),
        Frame::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(name, value)| [name, value]);
            Value::Table(list(lua, flat.collect())?)
        }
        // No value; the server has no other frame.
        _ => Value::Boolean(false),
    })
}

fn list(lua: &Lua, frames: Vec<Frame>) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(frames.len(), 0)?;
    for frame in frames {
        table.raw_push(to_lua(lua, frame)?)?;
    }
    Ok(table)
}

/// The reply to a client for the value of a script.
pub(super) fn to_frame(value: &Value) -> mlua::Result<Frame> {
    to_frame_at(value, 0)
}

fn to_frame_at(value: &Value, level: usize) -> mlua::Result<Frame> {
    Ok(match value {
        Value::String(text) => Frame::Text(bytes(text)),
        Value::Integer(number) => Frame::Number(*number),
        Value::Number(number) => Frame::Number(truncated(*number)),
        Value::Boolean(true) => Frame::Number(1),
        Value::Table(_) if level >= MOST_LEVELS => {
            Frame::Error("ERR reached lua stack limit".into())
        }
        Value::Table(table) => of_table(table, level)?,
        _ => Frame::Null,
    })
}

/// Converts a float to an integer like C on x86.
fn truncated(number: f64) -> i64 {
    if number.is_nan() || number >= 9_223_372_036_854_775_808.0 {
        i64::MIN
    } else {
        number as i64
    }
}

fn of_table(table: &Table, level: usize) -> mlua::Result<Frame> {
    // An error or a status has no first element: checking for one first is faster.
    let first: Value = table.raw_get(1)?;
    if first.is_nil() {
        if let Some(message) = text_of(&table.raw_get("err")?) {
            return Ok(Frame::Error(one_line(&String::from_utf8_lossy(&message))));
        }
        if let Some(status) = text_of(&table.raw_get("ok")?) {
            return Ok(Frame::Status(
                one_line(&String::from_utf8_lossy(&status)).into(),
            ));
        }
    }
    let mut frames = Vec::with_capacity(table.raw_len());
    let mut next = first;
    while !next.is_nil() {
        frames.push(to_frame_at(&next, level + 1)?);
        next = table.raw_get(frames.len() + 1)?;
    }
    Ok(Frame::List(frames))
}
