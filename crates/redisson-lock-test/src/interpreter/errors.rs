//! Errors of scripts, for the scripts and for the clients.

use std::fmt;

use bytes::Bytes;
use mlua::{Error, Function, Lua, Table, Value, debug::DebugSource};

use super::{
    super::{Frame, number::general},
    Run, bytes,
};

/// The name of the prelude in the stack: errors skip its levels.
pub(super) const PRELUDE_NAME: &str = "=redis";

/// An error that `redis.call` or a library raises.
#[derive(Debug, Clone)]
pub(super) struct Failed {
    pub(super) message: String,
}

impl Failed {
    /// Whether the message is a string of Lua that begins with the line.
    fn is_of_line(&self) -> bool {
        self.message.starts_with("user_script:")
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failed {}

/// An error of Rust as the library that raises it.
pub(super) fn failed(message: impl Into<String>) -> Error {
    let message = message.into();
    Error::external(Failed { message })
}

/// An error of a library function, which begins with the line of the script, as by `luaL_error`.
pub(super) fn at_line(lua: &Lua, message: &str) -> Error {
    let line = line(lua, 0).unwrap_or_default();
    failed(format!("user_script:{line}: {message}"))
}

/// The text of a string or a number.
pub(super) fn text_of(value: &Value) -> Option<Bytes> {
    match value {
        Value::String(text) => Some(bytes(text)),
        Value::Integer(number) => Some(general(*number as f64).into()),
        Value::Number(number) => Some(general(*number).into()),
        _ => None,
    }
}

/// The message of an error that `redis.call` raised; `None` for any other error.
fn of_call(error: &Error) -> Option<&Failed> {
    match error {
        Error::CallbackError { cause, .. } => of_call(cause),
        Error::WithContext { cause, .. } => of_call(cause),
        Error::ExternalError(external) => external.downcast_ref(),
        _ => None,
    }
}

/// The message without the traces that Rust adds.
fn message(error: &Error) -> String {
    match error {
        Error::CallbackError { cause, .. } => message(cause),
        Error::RuntimeError(message) | Error::MemoryError(message) => {
            let mut lines = message.lines();
            lines.next().unwrap_or_default().to_owned()
        }
        other => other.to_string(),
    }
}

/// The compiler's message, without the name of the error's type.
pub(super) fn syntax_message(error: &Error) -> String {
    match error {
        Error::SyntaxError { message, .. } => message.clone(),
        other => message(other),
    }
}

/// The current line of the script, searched from this level of the stack on.
fn line(lua: &Lua, from: usize) -> Option<usize> {
    let levels = (from..from + 8).map_while(|level| {
        lua.inspect_stack(level, |at| {
            let in_script = is_script(&at.source());
            (in_script, at.current_line())
        })
    });
    let mut in_script = levels.filter(|(in_script, _)| *in_script);
    in_script.next().and_then(|(_, line)| line)
}

fn is_script(source: &DebugSource<'_>) -> bool {
    let name = source.source.as_deref().unwrap_or_default();
    source.what != "C" && name != PRELUDE_NAME && name.starts_with('@')
}

/// The error handler of a script: a table of the message and the position.
pub(super) fn handler(lua: &Lua) -> mlua::Result<Function> {
    lua.create_function(|lua, error: Value| {
        let table = match error {
            Value::Table(table) => table,
            Value::Error(error) => {
                let text = match of_call(&error) {
                    Some(failed) if failed.is_of_line() => with_code(&failed.message),
                    Some(failed) => failed.message.clone(),
                    None => with_code(&message(&error)),
                };
                error_table(lua, text.as_bytes())?
            }
            Value::String(text) => error_table(lua, &[b"ERR ", &text.as_bytes()[..]].concat())?,
            other => error_table(lua, format!("ERR {}", other.to_string()?).as_bytes())?,
        };
        if let Some(line) = line(lua, 1) {
            table.raw_set("source", "@user_script")?;
            table.raw_set("line", line)?;
        }
        Ok(table)
    })
}

fn with_code(message: &str) -> String {
    format!("ERR {message}")
}

pub(super) fn error_table(lua: &Lua, message: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 3)?;
    table.raw_set("err", lua.create_string(message)?)?;
    Ok(table)
}

/// Turns an error of Rust into what `pcall` returns; of a table, Redis 7.0.15 returns the message. With a second
/// argument, into what an error handler receives.
pub(super) fn plain(lua: &Lua) -> mlua::Result<Function> {
    lua.create_function(|lua, (error, handled): (Value, Option<bool>)| {
        let unwraps = handled.is_none();
        match error {
            Value::Error(error) => match of_call(&error) {
                Some(failed) if failed.is_of_line() => text(lua, &failed.message),
                Some(failed) if unwraps => text(lua, &failed.message),
                Some(failed) => error_table(lua, failed.message.as_bytes()).map(Value::Table),
                None => text(lua, &message(&error)),
            },
            Value::Table(table) if unwraps => match table.raw_get::<Value>("err")? {
                message @ (Value::String(_) | Value::Integer(_) | Value::Number(_)) => Ok(message),
                _ => Ok(Value::Table(table)),
            },
            other => Ok(other),
        }
    })
}

fn text(lua: &Lua, text: &str) -> mlua::Result<Value> {
    lua.create_string(text).map(Value::String)
}

/// An error that ended a script.
#[derive(Debug)]
pub(super) struct Raised {
    message: String,
    line: Option<i64>,
}

impl Raised {
    /// Reads the table of the [`handler`].
    pub(super) fn from_handler(table: &Value) -> Self {
        let Value::Table(table) = table else {
            return Self {
                message: "ERR execution failure".into(),
                line: None,
            };
        };
        let message = table.raw_get::<Value>("err").ok();
        let message = message.as_ref().and_then(text_of).unwrap_or_default();
        Self {
            message: String::from_utf8_lossy(&message).into_owned(),
            line: table.raw_get("line").ok(),
        }
    }

    /// An error outside the script, such as one of memory.
    pub(super) fn from_lua(error: &Error) -> Self {
        Self {
            message: with_code(&message(error)),
            line: None,
        }
    }

    pub(super) fn into_reply(self, run: &Run<'_>) -> Frame {
        let sha = String::from_utf8_lossy(run.sha);
        let Self { message, line } = self;
        let position = line.filter(|_| !message.is_empty());
        let text = match position {
            Some(line) => format!("{message} script: {sha}, on @user_script:{line}."),
            None => message,
        };
        Frame::Error(one_line(&text))
    }
}

/// The text of an error reply: line breaks become spaces.
pub(super) fn one_line(text: &str) -> String {
    text.replace(['\r', '\n'], " ")
}
