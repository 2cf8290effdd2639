//! The first commands of a connection: login, database, name.

use super::{
    connect_error::{ConnectError, ConnectErrorKind, NOT_RESP},
    endpoint::Endpoint,
    frame,
    handshake::Handshake,
    open_connection,
    opener::{ConnectOptions, ServerConfig},
};
use crate::{
    server_text,
    transport::{Connection, Frame},
    wire::Refusal,
};

/// The server's error for a client beyond its limit, before it closes the connection.
const TOO_MANY: &str = "max number of clients";

/// A handshake that failed.
pub(super) struct Failed {
    pub(super) error: ConnectError,
    /// Whether the next handshake may succeed.
    pub(super) try_next: bool,
}

impl From<ConnectError> for Failed {
    fn from(error: ConnectError) -> Self {
        let try_next = false;
        Self { error, try_next }
    }
}

impl Failed {
    /// The connection ended.
    fn ended(reason: &str, try_next: bool) -> Self {
        let error = ConnectError::ended(reason.to_owned());
        // A server that ends the connection for one of these reasons ends the next one, too.
        let is_closed = error.kind == ConnectErrorKind::Closed && !reason.contains("alert: ");
        Self {
            try_next: try_next && is_closed,
            error,
        }
    }
}

/// The handshakes that a server has refused, one after the other.
#[derive(Default)]
pub(super) struct RefusedHandshakes(Option<ConnectError>);

impl RefusedHandshakes {
    /// The server has refused another one. Returns the error if the next handshake would fail too.
    pub(super) fn add(
        &mut self,
        failed: Failed,
        options: ConnectOptions,
        server: &Endpoint,
    ) -> Result<(), ConnectError> {
        let error = match self.0.take() {
            Some(earlier) => earlier.or(failed.error),
            None => failed.error,
        };
        let is_closed = error.kind == ConnectErrorKind::Closed;
        if !failed.try_next || (is_closed && !options.after_close) {
            return Err(error);
        }
        tracing::debug!(
            %server, reason = error.details, "the server does not accept the handshake"
        );
        self.0 = Some(error);
        Ok(())
    }

    /// The error after the last handshake.
    pub(super) fn into_error(self) -> ConnectError {
        self.0.unwrap_or_else(ConnectError::timeout)
    }
}

/// The answers to the first commands.
pub(super) struct Greeted {
    /// To `HELLO`.
    pub(super) greeting: Frame,
    /// To `CLIENT INFO`.
    pub(super) info: Frame,
}

/// Logs in.
pub(super) async fn shake_hands(
    connection: &dyn Connection,
    server: &ServerConfig,
    handshake: Handshake,
) -> Result<Greeted, Failed> {
    let opening = Opening { connection, server };
    let greeting = match handshake {
        Handshake::Hello => opening.hello().await?,
        Handshake::Classic | Handshake::Bare => {
            opening.log_in().await?;
            Frame::Null
        }
    };
    opening.select().await?;
    if handshake != Handshake::Hello {
        opening.ping(handshake).await?;
    }
    let info = match handshake {
        Handshake::Hello | Handshake::Classic => opening.describe().await?,
        Handshake::Bare => Frame::Null,
    };
    Ok(Greeted { greeting, info })
}

/// Logs in on a connection whose commands all fail once it has `ended`. The reason of its end tells more than a failed command,
/// which alone tells whether the next handshake may succeed.
pub(super) async fn shake_hands_until(
    ended: impl Future<Output = String>,
    connection: &dyn Connection,
    server: &ServerConfig,
    handshake: Handshake,
) -> Result<Greeted, Failed> {
    match shake_hands(connection, server, handshake).await {
        Err(Failed { error, try_next }) if error.kind == ConnectErrorKind::Closed => {
            Err(Failed::ended(&ended.await, try_next))
        }
        greeted => greeted,
    }
}

/// Logs an open connection in by other credentials.
pub(super) async fn log_in_anew(
    connection: &dyn Connection,
    server: &ServerConfig,
) -> Result<(), ConnectError> {
    let opening = Opening { connection, server };
    opening.log_in().await.map_err(|failed| failed.error)
}

/// A connection that may not be logged in yet.
struct Opening<'a> {
    connection: &'a dyn Connection,
    server: &'a ServerConfig,
}

impl Opening<'_> {
    /// Sends a command, after which a handshake without it may succeed if `is_optional`.
    async fn ask(
        &self,
        name: &'static str,
        words: &[&str],
        is_optional: bool,
    ) -> Result<Frame, Failed> {
        let answer = open_connection::command(self.connection, name, words).await;
        answer.map_err(|reason| {
            let mut failed = Failed::ended(&reason, is_optional);
            // The reason of a program's transport may quote the command.
            let password = self.server.password.as_deref().unwrap_or_default();
            failed.error.details = server_text::without(&[password], &reason);
            failed
        })
    }

    fn credentials(&self) -> Result<Option<(Option<&str>, &str)>, ConnectError> {
        match (&self.server.username, &self.server.password) {
            (None, None) => Ok(None),
            (Some(_), None) => Err(ConnectError::no_password()),
            (username, Some(password)) => Ok(Some((username.as_deref(), password))),
        }
    }

    async fn hello(&self) -> Result<Frame, Failed> {
        let answer = match self.credentials()? {
            None => self.ask("HELLO", &["3"], true).await?,
            Some((username, password)) => {
                let username = username.unwrap_or("default");
                let words = ["3", "AUTH", username, password];
                self.ask("HELLO", &words, true).await?
            }
        };
        let error = match answer {
            Frame::Map(_) => return Ok(answer),
            Frame::Error(message) => self.refused(&message, ConnectErrorKind::Refused),
            _ => ConnectError {
                kind: ConnectErrorKind::NoRedis,
                details: format!("{NOT_RESP}: the answer to HELLO is not a map"),
            },
        };
        // A second login with the same credentials could lock the user out.
        let is_login = error.kind == ConnectErrorKind::Credentials;
        let is_about_hello = !is_login || error.details.starts_with("NOAUTH");
        let try_next = is_about_hello && !error.details.contains(TOO_MANY);
        Err(Failed { error, try_next })
    }

    async fn log_in(&self) -> Result<(), Failed> {
        let answer = match self.credentials()? {
            None => return Ok(()),
            Some((None, password)) => self.ask("AUTH", &[password], false).await?,
            Some((Some(username), password)) => {
                self.ask("AUTH", &[username, password], false).await?
            }
        };
        self.accept(&answer, ConnectErrorKind::Refused)
    }

    /// A connection begins in database 0, and some proxies refuse `SELECT`.
    async fn select(&self) -> Result<(), Failed> {
        let Some(database) = self.server.database.filter(|database| *database != 0) else {
            return Ok(());
        };
        let answer = self.ask("SELECT", &[&database.to_string()], false).await?;
        self.accept(&answer, ConnectErrorKind::Database)
    }

    /// Makes sure that the peer serves this client: in RESP2 without a password, it has not answered anything yet.
    async fn ping(&self, handshake: Handshake) -> Result<(), Failed> {
        let is_optional = handshake == Handshake::Classic;
        let answer = self.ask("PING", &["0"][..usize::from(is_optional)], is_optional);
        let answer = answer.await?;
        match &answer {
            Frame::Error(message) if is_about_ping(message) => Ok(()),
            Frame::Error(message) => {
                let error = self.refused(message, ConnectErrorKind::Refused);
                match error.kind {
                    ConnectErrorKind::Busy => Ok(()),
                    _ => Err(error.into()),
                }
            }
            answer => match frame::text(answer).as_deref() {
                Some("0" | "PONG") => Ok(()),
                _ => Err(ConnectError {
                    kind: ConnectErrorKind::NoRedis,
                    details: format!("{NOT_RESP}: it is not the answer to PING"),
                }
                .into()),
            },
        }
    }

    /// Names the connection, and requests its description. Sends both commands at once. A refusal is an answer too: names
    /// and identities are optional.
    async fn describe(&self) -> Result<Frame, Failed> {
        let naming = async {
            if let Some(name) = &self.server.connection_name {
                let _ = self.ask("CLIENT", &["SETNAME", name], true).await;
            }
        };
        let asking = self.ask("CLIENT", &["INFO"], true);
        let ((), info) = tokio::join!(naming, asking);
        match info? {
            // The rights of a user that is not logged in may allow `PING`.
            Frame::Error(message) if message.starts_with("NOAUTH") => {
                Err(self.refused(&message, ConnectErrorKind::Refused).into())
            }
            info => Ok(info),
        }
    }

    fn accept(&self, answer: &Frame, kind: ConnectErrorKind) -> Result<(), Failed> {
        match answer {
            Frame::Error(message) => Err(self.refused(message, kind).into()),
            _ => Ok(()),
        }
    }

    /// The server's refusal, of the kind `other` unless its words have a meaning of their own.
    fn refused(&self, message: &str, other: ConnectErrorKind) -> ConnectError {
        let server = self.server;
        let text = |part: &Option<String>| part.clone().unwrap_or_default();
        let (username, password) = (text(&server.username), text(&server.password));
        let mut words = server_text::without(&[&password], message).to_lowercase();
        // The server may repeat the user, whose name may contain such words.
        let username = username.to_lowercase();
        if is_of_credentials(&username) {
            words = words.replace(&username, "");
        }
        let passes = matches!(
            Refusal::from_message(message.to_owned()),
            Refusal::Transient { .. }
        );
        let kind = match () {
            () if is_of_credentials(&words) => ConnectErrorKind::Credentials,
            () if passes || words.contains(TOO_MANY) => ConnectErrorKind::Busy,
            () => other,
        };
        ConnectError {
            kind,
            details: server_text::without(&[&password], message),
        }
    }
}

/// Whether a refusal, in small letters, is of the user or password, or of their lack.
fn is_of_credentials(words: &str) -> bool {
    const TEXTS: [&str; 12] = [
        "wrongpass",
        "invalid password",
        "wrong password",
        "incorrect password",
        "bad password",
        "without any password",
        "no password is set",
        "username-password",
        "username/password",
        "invalid username",
        "auth fail",
        "authentication fail",
    ];
    let is_locked = words.contains("account")
        && (words.contains("lock") || words.contains("disabled") || words.contains("suspended"));
    words.starts_with("noauth") || is_locked || TEXTS.iter().any(|text| words.contains(text))
}

/// Whether the server refuses `PING` and no more: the user lacks the right, or a proxy lacks the command.
fn is_about_ping(message: &str) -> bool {
    let words = message.to_lowercase();
    words.starts_with("noperm") || words.contains("command") || words.contains("ping")
}

impl ConnectError {
    /// The connection ended before it was logged in.
    fn ended(reason: String) -> Self {
        let kind = match reason.starts_with(NOT_RESP) {
            true => ConnectErrorKind::NoRedis,
            false if reason.contains(TOO_MANY) => ConnectErrorKind::Busy,
            false => ConnectErrorKind::Closed,
        };
        Self {
            kind,
            details: reason,
        }
    }

    /// The error that tells the user more: this one, of an earlier handshake, or the `later` one. A server's words do, and
    /// the end of a connection does not.
    pub(super) fn or(self, later: Self) -> Self {
        match later.kind {
            ConnectErrorKind::Closed | ConnectErrorKind::Network | ConnectErrorKind::NoAnswer => {
                self
            }
            _ => later,
        }
    }
}

#[cfg(test)]
#[path = "log_in_tests.rs"]
mod tests;
