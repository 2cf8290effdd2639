//! Keys of any type, and their expiry.

use super::{
    super::{
        Failure, Outcome,
        command::{Command, WRITE},
        data::Data,
        number::{integer, parse_integer},
    },
    Frame, SYNTAX, flag, number, ok, texts,
};
use bytes::Bytes;

pub(crate) const COMMANDS: &[Command] = &[
    Command::data("exists", -2, 0, exists),
    Command::data("del", -2, WRITE, del),
    Command::data("unlink", -2, WRITE, del),
    Command::data("type", 2, 0, type_of),
    Command::data("expire", -3, WRITE, |data, args, now| {
        expire(data, args, now, Time::FROM_NOW_IN_SECONDS)
    }),
    Command::data("pexpire", -3, WRITE, |data, args, now| {
        expire(data, args, now, Time::FROM_NOW)
    }),
    Command::data("expireat", -3, WRITE, |data, args, now| {
        expire(data, args, now, Time::AT_SECONDS)
    }),
    Command::data("pexpireat", -3, WRITE, |data, args, now| {
        expire(data, args, now, Time::AT)
    }),
    Command::data("ttl", 2, 0, ttl),
    Command::data("pttl", 2, 0, pttl),
    Command::data("expiretime", 2, 0, expiretime),
    Command::data("pexpiretime", 2, 0, pexpiretime),
    Command::data("persist", 2, WRITE, persist),
    Command::data("keys", 2, 0, keys),
    Command::data("scan", -2, 0, scan),
    Command::data("dbsize", 1, 0, dbsize),
    Command::data("flushdb", -1, WRITE, flushdb),
    Command::data("flushall", -1, WRITE, flushall),
];

fn exists(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let there = args
        .iter()
        .filter(|key| data.keys().entry(key, now).is_some());
    Ok(number(there.count()))
}

fn del(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let removed = args.iter().filter(|key| data.keys().remove(key, now));
    Ok(number(removed.count()))
}

fn type_of(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let entry = data.keys().entry(args[0], now);
    let name = entry.map_or("none", |entry| entry.value.type_name());
    Ok(Frame::Status(Bytes::from_static(name.as_bytes())))
}

/// The form of a time in a command.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    relative: bool,
    in_seconds: bool,
}

impl Time {
    pub(super) const FROM_NOW: Self = Self::new(true, false);
    pub(super) const FROM_NOW_IN_SECONDS: Self = Self::new(true, true);
    pub(super) const AT: Self = Self::new(false, false);
    pub(super) const AT_SECONDS: Self = Self::new(false, true);

    const fn new(relative: bool, in_seconds: bool) -> Self {
        Self {
            relative,
            in_seconds,
        }
    }

    /// Converts `given` to a time of the server. `None` if it is too large.
    pub(super) fn absolute(self, given: i64, now: u64) -> Option<i64> {
        let millis = given.checked_mul(if self.in_seconds { 1000 } else { 1 })?;
        let base = if self.relative { now as i64 } else { 0 };
        millis.checked_add(base)
    }
}

/// The conditions of `EXPIRE`.
#[derive(Debug, Default)]
struct Conditions {
    if_none: bool,
    if_any: bool,
    if_later: bool,
    if_sooner: bool,
}

impl Conditions {
    fn read(words: &[&[u8]]) -> Result<Self, Failure> {
        let mut read = Self::default();
        for word in words {
            match &word.to_ascii_uppercase()[..] {
                b"NX" => read.if_none = true,
                b"XX" => read.if_any = true,
                b"GT" => read.if_later = true,
                b"LT" => read.if_sooner = true,
                _ => {
                    let word = String::from_utf8_lossy(word);
                    return Err(format!("ERR Unsupported option {word}").into());
                }
            }
        }
        if read.if_none && (read.if_any || read.if_later || read.if_sooner) {
            return Err(
                "ERR NX and XX, GT or LT options at the same time are not compatible".into(),
            );
        }
        if read.if_later && read.if_sooner {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(read)
    }

    /// Whether an expiry may replace the present one.
    fn allow(&self, expires_at: i64, present: Option<i64>) -> bool {
        !(self.if_none && present.is_some()
            || self.if_any && present.is_none()
            || self.if_later && present.is_none_or(|present| expires_at <= present)
            || self.if_sooner && present.is_some_and(|present| expires_at >= present))
    }
}

fn expire(data: &mut Data, args: &[&[u8]], now: u64, time: Time) -> Outcome {
    let conditions = Conditions::read(&args[2..])?;
    let given = parse_integer(args[1])?;
    let Some(expires_at) = time.absolute(given, now) else {
        return Err(invalid_expire(time));
    };
    let keys = data.keys();
    let Some(entry) = keys.entry(args[0], now) else {
        return Ok(flag(false));
    };
    if !conditions.allow(expires_at, entry.expires_at.map(|present| present as i64)) {
        return Ok(flag(false));
    }
    match u64::try_from(expires_at) {
        Ok(expires_at) if expires_at > now => entry.expires_at = Some(expires_at),
        _ => drop(keys.remove(args[0], now)),
    }
    Ok(flag(true))
}

fn invalid_expire(time: Time) -> Failure {
    let name = match (time.relative, time.in_seconds) {
        (true, true) => "expire",
        (true, false) => "pexpire",
        (false, true) => "expireat",
        (false, false) => "pexpireat",
    };
    format!("ERR invalid expire time in '{name}' command").into()
}

/// The end of a key, converted by `read`: -2 without the key, -1 without an expiry.
fn end(data: &mut Data, key: &[u8], now: u64, read: impl FnOnce(u64) -> u64) -> Outcome {
    let expiry = data.keys().entry(key, now).map(|entry| entry.expires_at);
    Ok(Frame::Number(match expiry {
        None => -2,
        Some(None) => -1,
        Some(Some(expires_at)) => read(expires_at) as i64,
    }))
}

fn pttl(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    end(data, args[0], now, |expires_at| {
        expires_at.saturating_sub(now)
    })
}

fn ttl(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    end(data, args[0], now, |expires_at| {
        expires_at.saturating_sub(now).saturating_add(500) / 1000
    })
}

fn expiretime(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    end(data, args[0], now, |expires_at| {
        expires_at.saturating_add(500) / 1000
    })
}

fn pexpiretime(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    end(data, args[0], now, |expires_at| expires_at)
}

fn persist(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let entry = data.keys().entry(args[0], now);
    let expiry = entry.and_then(|entry| entry.expires_at.take());
    Ok(flag(expiry.is_some()))
}

fn keys(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    Ok(texts(data.keys().names(args[0], now)))
}

/// Returns everything at once, with the cursor 0.
fn scan(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    if std::str::from_utf8(args[0])
        .ok()
        .and_then(|cursor| cursor.parse::<u64>().ok())
        .is_none()
    {
        return Err("ERR invalid cursor".into());
    }
    let (mut pattern, mut wanted): (&[u8], Option<&[u8]>) = (b"*", None);
    for option in args[1..].chunks(2) {
        match (&option[0].to_ascii_uppercase()[..], option.get(1)) {
            (b"MATCH", Some(given)) => pattern = given,
            (b"TYPE", Some(given)) => wanted = Some(given),
            (b"COUNT", Some(count)) => {
                if parse_integer(count)? < 1 {
                    return Err(SYNTAX.into());
                }
            }
            _ => return Err(SYNTAX.into()),
        }
    }
    let keys = data.keys();
    let mut names = keys.names(pattern, now);
    names.retain(|name| {
        let is_wanted = |entry: &super::super::key_space::Entry| {
            let name = entry.value.type_name().as_bytes();
            wanted.is_none_or(|wanted| wanted.eq_ignore_ascii_case(name))
        };
        keys.peek(name, now).is_some_and(is_wanted)
    });
    Ok(Frame::List(vec![
        Frame::Text(Bytes::from_static(b"0")),
        texts(names),
    ]))
}

fn dbsize(data: &mut Data, _args: &[&[u8]], now: u64) -> Outcome {
    Ok(number(data.keys().count(now)))
}

fn flushdb(data: &mut Data, args: &[&[u8]], _now: u64) -> Outcome {
    check_flush(args)?;
    data.keys().clear();
    Ok(ok())
}

fn flushall(data: &mut Data, args: &[&[u8]], _now: u64) -> Outcome {
    check_flush(args)?;
    data.clear_all();
    Ok(ok())
}

fn check_flush(args: &[&[u8]]) -> Result<(), Failure> {
    match args {
        [] => Ok(()),
        [how] if how.eq_ignore_ascii_case(b"sync") || how.eq_ignore_ascii_case(b"async") => Ok(()),
        _ => Err(SYNTAX.into()),
    }
}

/// Reads the time of an option such as `PX`, which must be after 1970.
pub(super) fn expiry(given: &[u8], time: Time, now: u64, command: &str) -> Result<u64, Failure> {
    let number = integer(given).ok_or(super::super::number::NOT_AN_INTEGER)?;
    let valid = Some(number).filter(|number| *number > 0);
    let absolute = valid.and_then(|number| time.absolute(number, now));
    let absolute = absolute.and_then(|absolute| u64::try_from(absolute).ok());
    absolute.ok_or_else(|| format!("ERR invalid expire time in '{command}' command").into())
}
