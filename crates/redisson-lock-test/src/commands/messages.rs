//! `PUBLISH`, and commands without data.

use super::{
    super::{
        Outcome,
        command::{Command, LOADING, STALE},
        data::Data,
        number::integer_text,
    },
    Frame, texts,
};
use bytes::Bytes;

pub(crate) const COMMANDS: &[Command] = &[
    Command::data("publish", 3, LOADING | STALE, publish),
    Command::data("spublish", 3, LOADING | STALE, publish_to_shard),
    Command::data("ping", -1, 0, ping),
    Command::data("echo", 2, LOADING | STALE, echo),
    Command::data("time", 1, LOADING | STALE, time),
];

fn publish(data: &mut Data, args: &[&[u8]], _now: u64) -> Outcome {
    Ok(Frame::Number(data.publish(args[0], args[1], false)))
}

fn publish_to_shard(data: &mut Data, args: &[&[u8]], _now: u64) -> Outcome {
    Ok(Frame::Number(data.publish(args[0], args[1], true)))
}

fn ping(_data: &mut Data, args: &[&[u8]], _now: u64) -> Outcome {
    match args {
        [] => Ok(Frame::Status(Bytes::from_static(b"PONG"))),
        [payload] => Ok(Frame::Text(Bytes::copy_from_slice(payload))),
        _ => Err("ERR wrong number of arguments for 'ping' command".into()),
    }
}

fn echo(_data: &mut Data, args: &[&[u8]], _now: u64) -> Outcome {
    Ok(Frame::Text(Bytes::copy_from_slice(args[0])))
}

/// Seconds and microseconds.
fn time(_data: &mut Data, _args: &[&[u8]], now: u64) -> Outcome {
    let parts = [now / 1000, now % 1000 * 1000];
    Ok(texts(parts.map(|part| integer_text(part as i64))))
}
