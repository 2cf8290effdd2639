//! Strings and counters.

use bytes::Bytes;

use super::{
    super::{
        Failure, Outcome,
        command::{Command, DENY_OOM, WRITE},
        data::Data,
        key_space::{Content as _, Value},
        number::{NOT_AN_INTEGER, integer, integer_text, parse_integer},
    },
    Frame, OVERFLOW, SYNTAX, flag,
    keys::{self, Time},
    number, ok, text_or_null,
};

pub(crate) const COMMANDS: &[Command] = &[
    Command::data("get", 2, 0, get),
    Command::data("mget", -2, 0, mget),
    Command::data("strlen", 2, 0, strlen),
    Command::data("set", -3, WRITE | DENY_OOM, set),
    Command::data("setnx", 3, WRITE | DENY_OOM, setnx),
    Command::data("setex", 4, WRITE | DENY_OOM, |data, args, now| {
        set_for(data, args, now, Time::FROM_NOW_IN_SECONDS, "setex")
    }),
    Command::data("psetex", 4, WRITE | DENY_OOM, |data, args, now| {
        set_for(data, args, now, Time::FROM_NOW, "psetex")
    }),
    Command::data("getset", 3, WRITE | DENY_OOM, getset),
    Command::data("getdel", 2, WRITE, getdel),
    Command::data("incr", 2, WRITE | DENY_OOM, |data, args, now| {
        add(data, args[0], 1, now)
    }),
    Command::data("decr", 2, WRITE | DENY_OOM, |data, args, now| {
        add(data, args[0], -1, now)
    }),
    Command::data("incrby", 3, WRITE | DENY_OOM, incrby),
    Command::data("decrby", 3, WRITE | DENY_OOM, decrby),
];

fn read(data: &mut Data, key: &[u8], now: u64) -> Result<Option<Bytes>, Failure> {
    Ok(data.keys().read::<Bytes>(key, now)?.cloned())
}

fn get(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    Ok(text_or_null(read(data, args[0], now)?))
}

fn mget(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let values = args.iter().map(|key| read(data, key, now).unwrap_or(None));
    Ok(Frame::List(values.map(text_or_null).collect()))
}

fn strlen(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let value = read(data, args[0], now)?;
    Ok(number(value.map_or(0, |value| value.len())))
}

/// The options of `SET`.
#[derive(Debug, Default)]
struct SetOptions {
    if_absent: bool,
    if_present: bool,
    keep_expiry: bool,
    get: bool,
    expires_at: Option<u64>,
}

impl SetOptions {
    fn read(words: &[&[u8]], now: u64) -> Result<Self, Failure> {
        let mut read = Self::default();
        let mut time = None;
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let unit = match &word.to_ascii_uppercase()[..] {
                b"NX" if !read.if_present => {
                    read.if_absent = true;
                    continue;
                }
                b"XX" if !read.if_absent => {
                    read.if_present = true;
                    continue;
                }
                b"GET" => {
                    read.get = true;
                    continue;
                }
                b"KEEPTTL" if time.is_none() => {
                    read.keep_expiry = true;
                    continue;
                }
                b"EX" => Time::FROM_NOW_IN_SECONDS,
                b"PX" => Time::FROM_NOW,
                b"EXAT" => Time::AT_SECONDS,
                b"PXAT" => Time::AT,
                _ => return Err(SYNTAX.into()),
            };
            let given = words.next().ok_or(SYNTAX)?;
            if read.keep_expiry || time.replace((given, unit)).is_some() {
                return Err(SYNTAX.into());
            }
        }
        if let Some((given, unit)) = time {
            read.expires_at = Some(keys::expiry(given, unit, now, "set")?);
        }
        Ok(read)
    }
}

fn set(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let options = SetOptions::read(&args[2..], now)?;
    let keys = data.keys();
    let old = if options.get {
        text_or_null(keys.read::<Bytes>(args[0], now)?.cloned())
    } else {
        Frame::Null
    };
    let present = keys.entry(args[0], now);
    if options.if_absent && present.is_some() || options.if_present && present.is_none() {
        return Ok(old);
    }
    let kept = present.and_then(|entry| entry.expires_at);
    let kept = kept.filter(|_| options.keep_expiry);
    put(data, args[0], args[1], options.expires_at.or(kept), now);
    Ok(if options.get { old } else { ok() })
}

/// Sets a string. Discards it if its expiry is in the past.
fn put(data: &mut Data, key: &[u8], value: &[u8], expires_at: Option<u64>, now: u64) {
    let keys = data.keys();
    if expires_at.is_some_and(|expires_at| expires_at < now) {
        keys.remove(key, now);
        return;
    }
    let value = Value::Text(Bytes::copy_from_slice(value));
    keys.set(key, value, expires_at);
}

fn setnx(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let absent = data.keys().entry(args[0], now).is_none();
    if absent {
        put(data, args[0], args[1], None, now);
    }
    Ok(flag(absent))
}

fn set_for(data: &mut Data, args: &[&[u8]], now: u64, time: Time, name: &str) -> Outcome {
    let expires_at = keys::expiry(args[1], time, now, name)?;
    put(data, args[0], args[2], Some(expires_at), now);
    Ok(ok())
}

fn getset(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let old = read(data, args[0], now)?;
    put(data, args[0], args[1], None, now);
    Ok(text_or_null(old))
}

fn getdel(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let old = read(data, args[0], now)?;
    data.keys().remove(args[0], now);
    Ok(text_or_null(old))
}

/// Adds to a counter. An expiry stays.
fn add(data: &mut Data, key: &[u8], by: i64, now: u64) -> Outcome {
    let keys = data.keys();
    let present = match keys.read::<Bytes>(key, now)? {
        Some(text) => Some(integer(text).ok_or(NOT_AN_INTEGER)?),
        None => None,
    };
    let sum = present.unwrap_or(0).checked_add(by).ok_or(OVERFLOW)?;
    match keys.entry(key, now) {
        Some(entry) => entry.value = integer_text(sum).into_value(),
        None => keys.set(key, integer_text(sum).into_value(), None),
    }
    Ok(Frame::Number(sum))
}

fn incrby(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    add(data, args[0], parse_integer(args[1])?, now)
}

fn decrby(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    match parse_integer(args[1])?.checked_neg() {
        Some(by) => add(data, args[0], by, now),
        None => Err("ERR decrement would overflow".into()),
    }
}
