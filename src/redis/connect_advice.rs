//! What the user can do about a failed connection.

use std::sync::Arc;

use super::{
    connect_error::{ConnectError, ConnectErrorKind},
    frame,
    opener::ServerConfig,
    tls,
};
use crate::{
    error::{Cause, Error},
    transport::Frame,
};

/// The reason of a failed connection, and advice for the user.
pub(super) fn explain(
    ConnectError { kind, details }: ConnectError,
    server: &ServerConfig,
    credentials: &str,
) -> Error {
    let (at, encrypted) = (&server.endpoint, server.opener.is_encrypted());
    // In TLS 1.3, the server judges the client's certificate after the handshake.
    let alert = Some(&details).filter(|_| encrypted);
    let kind = alert.and_then(|text| tls::of_alert(text)).unwrap_or(kind);
    let credentials = match server.opener.has_credentials() {
        true => "check what the credentials provider returns",
        false => credentials,
    };
    let hung_up = || details.contains("reset by peer") || details.contains("closed");
    let hint = match encrypted {
        true => {
            ", and that it uses TLS with a trusted certificate (for a server without TLS, use redis://)"
        }
        false if hung_up() => ", and that it does not use TLS (for TLS, use rediss://)",
        false => "",
    };
    let no_connection = |reason: String| {
        let cause = match kind {
            ConnectErrorKind::Busy => Cause::server(&*details),
            _ => Cause::connection(&*details),
        };
        Error::unavailable_by(reason, Some(Arc::new(cause)))
    };
    match kind {
        ConnectErrorKind::Provider => no_connection(format!(
            "the credentials provider gave no credentials for {at}"
        )),
        ConnectErrorKind::Credentials if details.starts_with("NOAUTH") => Error::config(format!(
            "{at} requires a password: {credentials} ({details})"
        )),
        ConnectErrorKind::Credentials => Error::config(format!(
            "{at} refused the user name or password: {credentials} ({details})"
        )),
        ConnectErrorKind::NoRedis => no_connection(format!(
            "{at} does not speak the Redis protocol: check the host and port"
        )),
        ConnectErrorKind::Config => Error::config(details),
        ConnectErrorKind::Busy => {
            no_connection(format!("{at} refuses new connections at the moment"))
        }
        ConnectErrorKind::Certificate {
            advice,
            is_lasting: true,
        } => Error::config(format!("no TLS connection to {at}: {advice} ({details})")),
        ConnectErrorKind::Certificate { advice, .. } => {
            no_connection(format!("no TLS connection to {at}: {advice}"))
        }
        ConnectErrorKind::Database => Error::config(format!(
            "{at} refused the number of the database: check that number ({details})"
        )),
        ConnectErrorKind::Refused => Error::Redis { message: details },
        ConnectErrorKind::Network | ConnectErrorKind::Closed => no_connection(format!(
            "no connection to {at}: check that the server listens there{hint}"
        )),
        ConnectErrorKind::NoAnswer => no_connection(format!(
            "no answer from {at} in time: check that the server works, and that no firewall is in the way{hint}"
        )),
        #[cfg(feature = "rustls")]
        ConnectErrorKind::Other => no_connection(format!(
            "no TLS connection to {at}: check that the server listens there{hint}"
        )),
    }
}

/// An error that retries cannot change.
pub(super) fn refusal(answer: &Frame) -> Option<Error> {
    let message = frame::error(answer)?;
    if message.contains("unknown command") {
        return Some(Error::config(
            "the server is not a sentinel: use redis://host:port, redis-replicated:// or \
             redis-cluster://",
        ));
    }
    let is_refused = message.starts_with("NOAUTH") || message.starts_with("NOPERM");
    is_refused.then(|| {
        Error::config(format!(
            "the user may not look up the master: check user, password and ACL rules ({message})"
        ))
    })
}
