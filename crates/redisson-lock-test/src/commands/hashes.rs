//! Hashes.

use bytes::Bytes;

use super::{
    super::{
        Failure, Outcome,
        command::{Command, DENY_OOM, WRITE},
        data::Data,
        fields::Fields,
        number::{integer, integer_text, parse_integer},
    },
    Frame, OVERFLOW, flag, number, ok, text_or_null, texts,
};

pub(crate) const COMMANDS: &[Command] = &[
    Command::data("hget", 3, 0, hget),
    Command::data("hmget", -3, 0, hmget),
    Command::data("hexists", 3, 0, hexists),
    Command::data("hlen", 2, 0, hlen),
    Command::data("hstrlen", 3, 0, hstrlen),
    Command::data("hkeys", 2, 0, hkeys),
    Command::data("hvals", 2, 0, hvals),
    Command::data("hgetall", 2, 0, hgetall),
    Command::data("hscan", -3, 0, hscan),
    Command::data("hset", -4, WRITE | DENY_OOM, hset),
    Command::data("hmset", -4, WRITE | DENY_OOM, hmset),
    Command::data("hsetnx", 4, WRITE | DENY_OOM, hsetnx),
    Command::data("hdel", -3, WRITE, hdel),
    Command::data("hincrby", 4, WRITE | DENY_OOM, hincrby),
];

fn read<'a>(data: &'a mut Data, key: &[u8], now: u64) -> Result<Option<&'a Fields>, Failure> {
    Ok(data.keys().read::<Fields>(key, now)?.map(|fields| &*fields))
}

fn field(data: &mut Data, args: &[&[u8]], now: u64) -> Result<Option<Bytes>, Failure> {
    let fields = read(data, args[0], now)?;
    Ok(fields.and_then(|fields| fields.get(args[1])).cloned())
}

fn hget(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    Ok(text_or_null(field(data, args, now)?))
}

fn hmget(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let fields = read(data, args[0], now)?;
    let value = |field: &&[u8]| fields.and_then(|fields| fields.get(field)).cloned();
    let values = args[1..].iter().map(|field| text_or_null(value(field)));
    Ok(Frame::List(values.collect()))
}

fn hexists(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    Ok(flag(field(data, args, now)?.is_some()))
}

fn hlen(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    Ok(number(read(data, args[0], now)?.map_or(0, Fields::len)))
}

fn hstrlen(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let value = field(data, args, now)?;
    Ok(number(value.map_or(0, |value| value.len())))
}

/// The pairs of a hash.
fn pairs(data: &mut Data, key: &[u8], now: u64) -> Result<Vec<(Bytes, Bytes)>, Failure> {
    let fields = read(data, key, now)?;
    Ok(fields.map_or_else(Vec::new, |fields| fields.iter().cloned().collect()))
}

fn hkeys(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let pairs = pairs(data, args[0], now)?;
    Ok(texts(pairs.into_iter().map(|(field, _)| field)))
}

fn hvals(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let pairs = pairs(data, args[0], now)?;
    Ok(texts(pairs.into_iter().map(|(_, value)| value)))
}

/// A map, which becomes a list for scripts and connections of RESP2.
fn hgetall(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let pairs = pairs(data, args[0], now)?.into_iter();
    let frames = pairs.map(|(field, value)| (Frame::Text(field), Frame::Text(value)));
    Ok(Frame::Map(frames.collect()))
}

/// Returns all pairs at once, as for a small hash; `COUNT` is only a hint.
fn hscan(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    if args[1] != b"0" {
        return Err("ERR invalid cursor".into());
    }
    let pairs = pairs(data, args[0], now)?.into_iter();
    let texts = texts(pairs.flat_map(|(field, value)| [field, value]));
    Ok(Frame::List(vec![Frame::Text("0".into()), texts]))
}

/// Sets fields, and returns the number of new ones.
fn set(data: &mut Data, args: &[&[u8]], now: u64) -> Result<usize, Failure> {
    let fields = data.keys().make::<Fields>(args[0], now)?;
    let new = args[1..]
        .chunks_exact(2)
        .filter(|pair| fields.insert(pair[0], Bytes::copy_from_slice(pair[1])));
    Ok(new.count())
}

fn hset(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'hset' command".into());
    }
    Ok(number(set(data, args, now)?))
}

fn hmset(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    if args.len().is_multiple_of(2) {
        return Err("ERR wrong number of arguments for 'hmset' command".into());
    }
    set(data, args, now)?;
    Ok(ok())
}

fn hsetnx(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let absent = field(data, args, now)?.is_none();
    if absent {
        set(data, args, now)?;
    }
    Ok(flag(absent))
}

fn hdel(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let names = args[1..].iter();
    let removed = data.keys().change(args[0], now, |fields: &mut Fields| {
        names.filter(|name| fields.remove(name)).count()
    });
    Ok(number(removed?))
}

fn hincrby(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let by = parse_integer(args[2])?;
    let present = match field(data, args, now)? {
        Some(text) => integer(&text).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let sum = present.checked_add(by).ok_or(OVERFLOW)?;
    let fields = data.keys().make::<Fields>(args[0], now)?;
    fields.insert(args[1], integer_text(sum));
    Ok(Frame::Number(sum))
}
