//! Subscriptions of connections.

use bytes::Bytes;

use super::{
    super::{
        Frame, Outcome,
        command::{Command, LOADING, STALE},
        subscriptions::Kind,
    },
    Caller,
    answers::{count, text},
};

pub(super) const COMMANDS: &[Command] = &[
    Command::session("pubsub|channels", -2, LOADING | STALE, channels),
    Command::session("pubsub|numsub", -2, LOADING | STALE, |caller, args| {
        numbers(caller, args, Kind::Channel)
    }),
    Command::session("pubsub|numpat", 2, LOADING | STALE, |caller, _args| {
        Ok(count(caller.server.data.subscriptions.patterns()))
    }),
    Command::session("pubsub|shardchannels", -2, LOADING | STALE, shardchannels),
    Command::session("pubsub|shardnumsub", -2, LOADING | STALE, |caller, args| {
        numbers(caller, args, Kind::Shard)
    }),
];

pub(super) fn subscribe(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    Ok(add(caller, args, Kind::Channel, "subscribe"))
}

pub(super) fn psubscribe(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    Ok(add(caller, args, Kind::Pattern, "psubscribe"))
}

pub(super) fn ssubscribe(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    Ok(add(caller, args, Kind::Shard, "ssubscribe"))
}

pub(super) fn unsubscribe(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    Ok(remove(caller, args, Kind::Channel, "unsubscribe"))
}

pub(super) fn punsubscribe(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    Ok(remove(caller, args, Kind::Pattern, "punsubscribe"))
}

pub(super) fn sunsubscribe(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    Ok(remove(caller, args, Kind::Shard, "sunsubscribe"))
}

fn add(caller: &mut Caller<'_>, channels: &[&[u8]], kind: Kind, name: &'static str) -> Frame {
    let connection = caller.connection;
    let replies = channels.iter().map(|channel| {
        caller
            .server
            .data
            .subscriptions
            .add(kind, channel, connection);
        confirm(caller, kind, name, Some(channel))
    });
    one_or_all(replies.collect())
}

/// Without channels, ends all subscriptions of the kind.
fn remove(caller: &mut Caller<'_>, channels: &[&[u8]], kind: Kind, name: &'static str) -> Frame {
    let connection = caller.connection;
    let subscriptions = &caller.server.data.subscriptions;
    let channels: Vec<Bytes> = if channels.is_empty() {
        subscriptions.of_connection(kind, connection)
    } else {
        channels
            .iter()
            .map(|channel| Bytes::copy_from_slice(channel))
            .collect()
    };
    if channels.is_empty() {
        return confirm(caller, kind, name, None);
    }
    let replies = channels.iter().map(|channel| {
        caller
            .server
            .data
            .subscriptions
            .remove(kind, channel, connection);
        confirm(caller, kind, name, Some(channel))
    });
    one_or_all(replies.collect())
}

fn one_or_all(mut replies: Vec<Frame>) -> Frame {
    match replies.len() {
        1 => replies.remove(0),
        _ => Frame::List(replies),
    }
}

/// Counts the subscriptions of the connection. Returns the reply for one channel.
fn confirm(
    caller: &mut Caller<'_>,
    kind: Kind,
    name: &'static str,
    channel: Option<&[u8]>,
) -> Frame {
    let subscriptions = &caller.server.data.subscriptions;
    let of_kind = subscriptions.of_connection(kind, caller.connection).len();
    let session = caller.session();
    session.subscribed[kind.index()] = of_kind;
    let [channels, patterns, shards] = session.subscribed;
    let total = match kind {
        Kind::Shard => shards,
        Kind::Channel | Kind::Pattern => channels + patterns,
    };
    let channel = channel.map_or(Frame::Null, |channel| {
        Frame::Text(Bytes::copy_from_slice(channel))
    });
    Frame::List(vec![text(name), channel, count(total)])
}

fn channels(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    names(caller, args, Kind::Channel)
}

fn shardchannels(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    names(caller, args, Kind::Shard)
}

fn names(caller: &mut Caller<'_>, args: &[&[u8]], kind: Kind) -> Outcome {
    let pattern = match args {
        [] => &b"*"[..],
        [pattern] => pattern,
        _ => {
            let message = "ERR unknown subcommand or wrong number of arguments for 'CHANNELS'. Try PUBSUB HELP.";
            return Err(message.into());
        }
    };
    let names = caller.server.data.subscriptions.names(kind, pattern);
    Ok(Frame::List(names.into_iter().map(Frame::Text).collect()))
}

fn numbers(caller: &mut Caller<'_>, args: &[&[u8]], kind: Kind) -> Outcome {
    let subscriptions = &caller.server.data.subscriptions;
    let pairs = args.iter().flat_map(|channel| {
        let name = Frame::Text(Bytes::copy_from_slice(channel));
        [name, count(subscriptions.count(kind, channel))]
    });
    Ok(Frame::List(pairs.collect()))
}
