//! Login, and the version of the protocol.

use bytes::Bytes;

use super::{
    super::{Failure, Frame, Outcome, number::integer},
    Caller, Role, VERSION,
    answers::{ok, syntax_error, text},
    clients,
};

const WRONG_PASSWORD: &str = "WRONGPASS invalid username-password pair or user is disabled.";
const NO_PASSWORD: &str = "ERR AUTH <password> called without any password configured for the default user. \
    Are you sure your configuration is correct?";
const NO_LOGIN: &str = "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
    <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time";

impl Caller<'_> {
    fn log_in(&mut self, user: &[u8], password: &[u8]) -> Result<(), Failure> {
        let settings = &self.server.settings;
        let user = String::from_utf8_lossy(user).into_owned();
        let expected = if user == "default" {
            settings.password.as_deref()
        } else {
            settings.users.get(&user).map(String::as_str)
        };
        let accepted = match expected {
            Some(expected) => expected.as_bytes() == password,
            None => user == "default",
        };
        if !accepted {
            return Err(WRONG_PASSWORD.into());
        }
        self.session().user = Some(user);
        Ok(())
    }
}

pub(super) fn auth(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    match args {
        [_] if caller.server.settings.password.is_none() => return Err(NO_PASSWORD.into()),
        [password] => caller.log_in(b"default", password)?,
        [user, password] => caller.log_in(user, password)?,
        _ => return syntax_error(),
    }
    Ok(ok())
}

fn version(given: &[u8]) -> Result<u8, Failure> {
    match integer(given) {
        Some(version @ 2..=3) => Ok(version as u8),
        Some(_) => Err("NOPROTO unsupported protocol version".into()),
        None => Err("ERR Protocol version is not an integer or out of range".into()),
    }
}

pub(super) fn hello(caller: &mut Caller<'_>, args: &[&[u8]]) -> Outcome {
    let (given, mut options) = match args {
        [] => (None, args),
        [given, options @ ..] => (Some(version(given)?), options),
    };
    let (mut login, mut name) = (None, None);
    while let [option, rest @ ..] = options {
        match (&option.to_ascii_uppercase()[..], rest) {
            (b"AUTH", [user, password, rest @ ..]) => {
                login = Some((*user, *password));
                options = rest;
            }
            (b"SETNAME", [given, rest @ ..]) => {
                name = Some(clients::name(given)?);
                options = rest;
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
            }
        }
    }
    if let Some((user, password)) = login {
        caller.log_in(user, password)?;
    }
    let session = caller.session();
    if session.user.is_none() {
        return Err(NO_LOGIN.into());
    }
    session.name = name.unwrap_or(std::mem::take(&mut session.name));
    session.resp = given.unwrap_or(session.resp);
    Ok(greeting(caller))
}

fn greeting(caller: &mut Caller<'_>) -> Frame {
    let role = match caller.server.settings.role {
        Role::Master { .. } => "master",
        Role::Replica { .. } => "replica",
    };
    let resp = caller.session().resp;
    let id = i64::try_from(caller.connection.0).unwrap_or(i64::MAX);
    let pairs = [
        ("server", text("redis")),
        ("version", text(VERSION)),
        ("proto", Frame::Number(resp.into())),
        ("id", Frame::Number(id)),
        ("mode", text("standalone")),
        ("role", text(role)),
        ("modules", Frame::List(Vec::new())),
    ];
    let name = |name: &'static str| Frame::Text(Bytes::from_static(name.as_bytes()));
    Frame::Map(pairs.map(|(key, value)| (name(key), value)).into())
}
