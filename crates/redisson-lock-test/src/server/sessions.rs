//! The commands of connections.

use bytes::Bytes;

use super::{
    super::{
        Failure, Frame, Outcome,
        command::{ALLOW_BUSY, Command, LOADING, NO_AUTH, NO_SCRIPT, SESSION, STALE},
        number::parse_integer,
    },
    Caller,
    answers::{ok, text},
    authentication, clients, cluster, reports, scripts, sentinel, subscribing,
};

const OPENING: u8 = SESSION | NO_AUTH | ALLOW_BUSY;

pub(crate) const COMMANDS: &[Command] = &[
    Command::session("hello", -1, OPENING, authentication::hello),
    Command::session("auth", -2, OPENING, authentication::auth),
    Command::session("quit", -1, OPENING, quit),
    Command::session("reset", 1, OPENING, reset),
    Command::session("select", 2, LOADING | STALE, select),
    Command::container("client", clients::COMMANDS),
    Command::container("cluster", cluster::COMMANDS),
    Command::session("asking", 1, NO_SCRIPT | LOADING | STALE, cluster::asking),
    Command::session("subscribe", -2, SESSION, subscribing::subscribe),
    Command::session("unsubscribe", -1, SESSION, subscribing::unsubscribe),
    Command::session("psubscribe", -2, SESSION, subscribing::psubscribe),
    Command::session("punsubscribe", -1, SESSION, subscribing::punsubscribe),
    Command::session("ssubscribe", -2, SESSION, subscribing::ssubscribe),
    Command::session("sunsubscribe", -1, SESSION, subscribing::sunsubscribe),
    Command::container("pubsub", subscribing::COMMANDS),
    Command::session("role", 1, SESSION, reports::role),
    Command::session("wait", 3, NO_SCRIPT, reports::wait),
    Command::session("info", -1, LOADING | STALE, reports::info),
    Command::session("command", -1, LOADING | STALE, reports::command),
    Command::session("eval", -3, NO_SCRIPT | STALE, scripts::eval),
    Command::session("evalsha", -3, NO_SCRIPT | STALE, scripts::evalsha),
    Command::container("script", scripts::COMMANDS),
    Command::container("sentinel", sentinel::COMMANDS),
];

fn quit(caller: &mut Caller<'_>, _args: &[&[u8]]) -> Outcome {
    let connection = caller.connection;
    caller.server.end(connection);
    Ok(ok())
}

fn reset(caller: &mut Caller<'_>, _args: &[&[u8]]) -> Outcome {
    let connection = caller.connection;
    caller.server.data.subscriptions.remove_all(connection);
    let is_open = caller.server.settings.password.is_none();
    caller.session().reset(is_open);
    Ok(Frame::Status(Bytes::from_static(b"RESET")))
}

fn select(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let number = usize::try_from(parse_integer(args[0])?).ok();
    if caller.server.data.cluster.is_some() && number != Some(0) {
        return Err("ERR SELECT is not allowed in cluster mode".into());
    }
    let exists = |number: &usize| caller.server.data.database(*number).is_some();
    let number = number
        .filter(exists)
        .ok_or("ERR DB index is out of range")?;
    caller.session().database = number;
    Ok(ok())
}

/// Whether a subscriber of RESP2 may use a command.
pub(super) fn serves_subscribers(name: &str) -> bool {
    name.ends_with("subscribe") || matches!(name, "ping" | "quit" | "reset")
}

pub(super) fn refuse_to_subscriber(name: &str) -> Failure {
    format!(
        "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
        this context"
    )
    .into()
}

/// The reply to a `PING` of a subscriber of RESP2.
pub(super) fn pong_to_subscriber(args: &[&[u8]]) -> Frame {
    let payload = args.first().copied().unwrap_or_default();
    Frame::List(vec![
        text("pong"),
        Frame::Text(Bytes::copy_from_slice(payload)),
    ])
}
