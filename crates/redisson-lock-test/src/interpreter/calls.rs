//! The library `redis` of the scripts.

use mlua::{BString, Either, Lua, LuaString, MultiValue, Table, Value};
use smallvec::SmallVec;

use super::{
    super::{
        Failure, Frame, cluster,
        command::{self, Action, Choice},
        number::general,
    },
    State, errors,
    replies::{self, Pushed},
    sha_of, with_state,
};

/// Makes the table `redis`, but for `call` and `pcall`, whose parts go to the prelude.
pub(super) fn library(lua: &Lua, natives: &Table) -> mlua::Result<Table> {
    natives.raw_set("again", AGAIN)?;
    natives.raw_set("quick_call", lua.create_function(quick_call)?)?;
    natives.raw_set("quick_pcall", lua.create_function(quick_pcall)?)?;
    natives.raw_set("call", lua.create_function(call)?)?;
    natives.raw_set("pcall", lua.create_function(pcall)?)?;
    let redis = lua.create_table()?;
    redis.raw_set("sha1hex", lua.create_function(sha1hex)?)?;
    redis.raw_set("status_reply", lua.create_function(status_reply)?)?;
    redis.raw_set("error_reply", lua.create_function(error_reply)?)?;
    redis.raw_set("log", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    for (level, name) in ["LOG_DEBUG", "LOG_VERBOSE", "LOG_NOTICE", "LOG_WARNING"]
        .iter()
        .enumerate()
    {
        redis.raw_set(*name, level)?;
    }
    redis.raw_set("REDIS_VERSION", super::super::server::VERSION)?;
    Ok(redis)
}

/// What the quick functions return for words that only the slow ones read right.
const AGAIN: Value = Value::NULL;

/// A word of a command on its way from the stack of a script: a string or a number costs no reference of mlua's.
type Given = Option<Either<BString, Value>>;

/// The number of words, and the words. What is behind the last of these few is for the slow functions.
type Few = (usize, Given, Given, Given, Given, Given, Given);

/// The words, if these are right: there are no more, none is nil, a boolean or a table, and no number has lost digits.
fn few(words: &Few) -> Option<SmallVec<[&[u8]; 8]>> {
    let (count, a, b, c, d, e, f) = words;
    let given = [a, b, c, d, e, f];
    if *count == 0 || *count > given.len() {
        return None;
    }
    let given = given[..*count].iter();
    let words = given.map(|word| match word {
        Some(Either::Left(word)) if !may_be_rounded(word) => Some(&word[..]),
        _ => None,
    });
    words.collect()
}

/// Whether a number of a script may have had more digits: Lua itself writes 14.
fn may_be_rounded(word: &[u8]) -> bool {
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e');
    (matches!(word.first(), Some(b'0'..=b'9' | b'-')) && word.iter().all(is_of_number))
        && (word.contains(&b'e') || word.iter().filter(|byte| byte.is_ascii_digit()).count() >= 14)
}

fn quick_call(lua: &Lua, words: Few) -> mlua::Result<Pushed> {
    let Some(words) = few(&words) else {
        return Ok(Either::Right(Either::Right(AGAIN)));
    };
    let outcome = with_state(|state| dispatch(state, words[0], &words[1..]));
    replies::pushed(lua, raising(outcome)?)
}

fn quick_pcall(lua: &Lua, words: Few) -> mlua::Result<Pushed> {
    let Some(words) = few(&words) else {
        return Ok(Either::Right(Either::Right(AGAIN)));
    };
    let outcome = with_state(|state| dispatch(state, words[0], &words[1..]));
    replies::pushed(lua, returning(outcome))
}

fn call(lua: &Lua, words: MultiValue) -> mlua::Result<Value> {
    replies::to_lua(lua, raising(execute(&words))?)
}

fn pcall(lua: &Lua, words: MultiValue) -> mlua::Result<Value> {
    replies::to_lua(lua, returning(execute(&words)))
}

/// What `call` makes of an outcome: it raises errors.
fn raising(outcome: Result<Frame, Failure>) -> mlua::Result<Frame> {
    match outcome {
        Ok(Frame::Error(message)) => Err(errors::failed(message)),
        Ok(frame) => Ok(frame),
        Err(message) => Err(errors::failed(message)),
    }
}

/// What `pcall` makes of an outcome: it returns errors.
fn returning(outcome: Result<Frame, Failure>) -> Frame {
    outcome.unwrap_or_else(|message| Frame::Error(message.into_owned()))
}

/// An argument of a command.
type Word = SmallVec<[u8; 64]>;

/// Runs a command. An error of the command is a frame; a refusal by the library is a failure.
fn execute(words: &MultiValue) -> Result<Frame, Failure> {
    if words.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call".into());
    }
    let words: Option<SmallVec<[Word; 8]>> = words.iter().map(word).collect();
    let Some(words) = words else {
        return Err("ERR Lua redis lib command arguments must be strings or integers".into());
    };
    let words: SmallVec<[&[u8]; 8]> = words.iter().map(|word| &word[..]).collect();
    with_state(|state| dispatch(state, words[0], &words[1..]))
}

fn word(value: &Value) -> Option<Word> {
    match value {
        Value::String(text) => Some(Word::from_slice(&text.as_bytes())),
        Value::Integer(number) => Some(integer_word(*number)),
        Value::Number(number) => Some(Word::from_slice(general(*number).as_bytes())),
        _ => None,
    }
}

/// The text of an integer as the format of floats writes it.
fn integer_word(number: i64) -> Word {
    match number {
        0..=9 => Word::from_slice(&[b'0' + number as u8]),
        _ => Word::from_slice(general(number as f64).as_bytes()),
    }
}

fn dispatch(state: &mut State, name: &[u8], args: &[&[u8]]) -> Result<Frame, Failure> {
    let unknown = "ERR Unknown Redis command called from script";
    let wrong_number = "ERR Wrong number of args calling Redis command from script";
    let command = command::find(name).ok_or(unknown)?;
    let (command, args) = command.choose(args).map_err(|choice| match choice {
        Choice::Missing => wrong_number,
        Choice::Unknown => unknown,
    })?;
    if !command.takes(args.len()) {
        return Err(wrong_number.into());
    }
    let run = match command.action {
        Action::Data(run) if !command.has(command::NO_SCRIPT) => run,
        _ => return Err("ERR This Redis command is not allowed from script".into()),
    };
    let refusal = state.data.refusal;
    if let Some(refusal) = refusal.filter(|refusal| refusal.refuses_in_script(command, state.wrote))
    {
        let message = refusal.message();
        return Err(message.into());
    }
    let is_write = command.has(command::WRITE);
    state.wrote |= is_write;
    cluster::check_in_script(&state.data, command, args, state.now, &mut state.slot)?;
    state.data.writes += u64::from(is_write);
    let outcome = run(&mut state.data, args, state.now);
    Ok(outcome.unwrap_or_else(|message| Frame::Error(message.into_owned())))
}

fn sha1hex(lua: &Lua, texts: MultiValue) -> mlua::Result<LuaString> {
    let mut texts = texts.iter();
    match (texts.next().and_then(errors::text_of), texts.next()) {
        (Some(text), None) => lua.create_string(sha_of(&text)),
        _ => Err(errors::failed("ERR wrong number of arguments")),
    }
}

fn single_field(lua: &Lua, field: &str, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(field, lua.create_string(text)?)?;
    Ok(table)
}

/// The only argument, if it is a string.
fn only_text(texts: &MultiValue) -> Option<LuaString> {
    match (texts.len(), texts.front()) {
        (1, Some(Value::String(text))) => Some(text.clone()),
        _ => None,
    }
}

fn status_reply(lua: &Lua, texts: MultiValue) -> mlua::Result<Table> {
    match only_text(&texts) {
        Some(text) => single_field(lua, "ok", &text.as_bytes()),
        None => single_field(lua, "err", b"ERR wrong number or type of arguments"),
    }
}

/// A message without a space gets the code `ERR`.
fn error_reply(lua: &Lua, texts: MultiValue) -> mlua::Result<Table> {
    let Some(text) = only_text(&texts) else {
        return single_field(lua, "err", b"ERR wrong number or type of arguments");
    };
    let text = text.as_bytes();
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    if text.contains(&b' ') {
        single_field(lua, "err", text)
    } else {
        single_field(lua, "err", &[b"ERR ", text].concat())
    }
}
