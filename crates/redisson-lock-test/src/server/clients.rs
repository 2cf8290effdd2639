//! `CLIENT`: names and ids of connections.

use super::{
    super::{
        ConnectionId, Failure, Frame, Outcome,
        command::{Command, SESSION},
        number::integer,
    },
    Caller, Server,
    answers::{count, ok, syntax_error, text},
    session::Session,
};

pub(super) const COMMANDS: &[Command] = &[
    Command::session("client|id", 2, SESSION, id),
    Command::session("client|info", 2, SESSION, info),
    Command::session("client|list", -2, SESSION, list),
    Command::session("client|getname", 2, SESSION, getname),
    Command::session("client|setname", 3, SESSION, setname),
    Command::session("client|setinfo", 4, SESSION, setinfo),
    Command::session("client|no-evict", 3, SESSION, no_evict),
    Command::session("client|kill", -3, SESSION, kill),
];

impl Server {
    /// Closes a connection, and records it for [`take_ended`](Self::take_ended).
    pub(super) fn end(&mut self, connection: ConnectionId) {
        self.close(connection);
        self.ended.push(connection);
    }
}

fn id(caller: &mut Caller<'_>, _args: &[&[u8]]) -> Outcome {
    Ok(Frame::Number(
        i64::try_from(caller.connection.0).unwrap_or(i64::MAX),
    ))
}

fn info(caller: &mut Caller<'_>, _args: &[&[u8]]) -> Outcome {
    let session = caller.session().clone();
    Ok(text(&caller.server.describe(
        caller.connection,
        &session,
        caller.now,
    )))
}

fn list(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    if !args.is_empty() {
        return Err("ERR CLIENT LIST takes no arguments in the in-memory Redis".into());
    }
    let server = &*caller.server;
    let sessions = server.connections.iter();
    let lines = sessions.map(|(id, session)| server.describe(*id, session, caller.now));
    Ok(text(&lines.collect::<String>()))
}

fn getname(caller: &mut Caller<'_>, _args: &[&[u8]]) -> Outcome {
    let name = &caller.session().name;
    Ok(if name.is_empty() {
        Frame::Null
    } else {
        text(name)
    })
}

/// Reads a name, which has no spaces.
pub(super) fn name(given: &[u8]) -> Result<String, Failure> {
    if given.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Ok(String::from_utf8_lossy(given).into_owned());
    }
    Err("ERR Client names cannot contain spaces, newlines or special characters.".into())
}

fn setname(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    caller.session().name = name(args[0])?;
    Ok(ok())
}

/// A command of Redis 7.2, which clients send to older servers too.
fn setinfo(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let position = match &args[0].to_ascii_lowercase()[..] {
        b"lib-name" => 0,
        b"lib-ver" => 1,
        _ => return syntax_error(),
    };
    caller.session().library[position] = String::from_utf8_lossy(args[1]).into_owned();
    Ok(ok())
}

fn no_evict(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    caller.session().no_evict = on_or_off(args[0], [&b"on"[..], b"off"])?;
    Ok(ok())
}

/// Whether a word is the first of two.
fn on_or_off(word: &[u8], words: [&[u8]; 2]) -> Result<bool, Failure> {
    match words.map(|expected| word.eq_ignore_ascii_case(expected)) {
        [true, _] => Ok(true),
        [_, true] => Ok(false),
        _ => syntax_error(),
    }
}

/// The filter of `CLIENT KILL`.
#[derive(Debug, Default)]
struct Filter {
    id: Option<u64>,
    address: Option<String>,
    local_address: Option<String>,
    user: Option<String>,
    is_subscriber: Option<bool>,
    spares_caller: bool,
}

impl Filter {
    fn read(words: &[&[u8]], server: &Server) -> Result<Self, Failure> {
        let mut read = Self {
            spares_caller: true,
            ..Self::default()
        };
        for pair in words.chunks(2) {
            let [option, given] = pair else {
                return syntax_error();
            };
            let given_text = String::from_utf8_lossy(given).into_owned();
            match &option.to_ascii_lowercase()[..] {
                b"id" => read.id = Some(positive(given)?),
                b"addr" => read.address = Some(given_text),
                b"laddr" => read.local_address = Some(given_text),
                b"user" => read.user = Some(known_user(given_text, server)?),
                b"type" => read.is_subscriber = Some(type_of_client(&given_text)?),
                b"skipme" => read.spares_caller = on_or_off(given, [b"yes", b"no"])?,
                _ => return syntax_error(),
            }
        }
        Ok(read)
    }

    fn matches(&self, id: ConnectionId, session: &Session, local: &str) -> bool {
        let is = |wanted: &Option<String>, present: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == present)
        };
        self.id.is_none_or(|wanted| wanted == id.0)
            && is(&self.address, session.address())
            && is(&self.local_address, local)
            && is(&self.user, session.user.as_deref().unwrap_or("default"))
            && self
                .is_subscriber
                .is_none_or(|wanted| wanted == session.is_subscriber())
    }
}

fn positive(given: &[u8]) -> Result<u64, Failure> {
    let number = integer(given).filter(|number| *number > 0);
    let number = number.and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| "ERR client-id should be greater than 0".into())
}

fn known_user(user: String, server: &Server) -> Result<String, Failure> {
    if user == "default" || server.settings.users.contains_key(&user) {
        return Ok(user);
    }
    Err(format!("ERR No such user '{user}'").into())
}

/// Whether the type is that of subscribers.
fn type_of_client(name: &str) -> Result<bool, Failure> {
    match name {
        "normal" => Ok(false),
        "pubsub" => Ok(true),
        _ => Err(format!("ERR Unknown client type '{name}'").into()),
    }
}

fn kill(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let filter = match args {
        [address] => Filter {
            address: Some(String::from_utf8_lossy(address).into_owned()),
            ..Filter::default()
        },
        _ => Filter::read(args, caller.server)?,
    };
    let connection = caller.connection;
    let server = &mut *caller.server;
    let sessions = server.connections.iter();
    let chosen = sessions.filter(|(id, session)| {
        let spared = filter.spares_caller && **id == connection;
        !spared && filter.matches(**id, session, &server.settings.address)
    });
    let chosen: Vec<ConnectionId> = chosen.map(|(id, _)| *id).collect();
    chosen.iter().for_each(|id| server.end(*id));
    match args.len() {
        1 if chosen.is_empty() => Err("ERR No such client".into()),
        1 => Ok(ok()),
        _ => Ok(count(chosen.len())),
    }
}
