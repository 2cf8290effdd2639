//! Why there is no connection.

/// The beginning of each reason for a peer that violates RESP.
pub(super) const NOT_RESP: &str = "the answer is not valid RESP";

/// Why there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConnectError {
    pub(crate) kind: ConnectErrorKind,
    pub(crate) details: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectErrorKind {
    /// The program's source of credentials gave none.
    Provider,
    /// The server refused the user or password.
    Credentials,
    /// The peer does not speak the protocol.
    NoRedis,
    /// The configuration is invalid.
    Config,
    Network,
    /// A certificate is refused.
    Certificate {
        /// What is wrong, and the remedy.
        advice: &'static str,
        /// Whether only a change of the configuration helps.
        is_lasting: bool,
    },
    /// The server closed the connection before it was logged in.
    Closed,
    /// No connection, or no answer to its first commands, in time.
    NoAnswer,
    /// The server cannot serve at the moment.
    Busy,
    /// The server refused the database.
    Database,
    /// The server refused another command.
    Refused,
    /// TLS failed.
    #[cfg(feature = "rustls")]
    Other,
}

impl ConnectErrorKind {
    /// Whether a change of the configuration alone helps.
    pub(crate) fn is_lasting(self) -> bool {
        use ConnectErrorKind::{Certificate, Config, Credentials, Database};
        match self {
            Credentials | Config | Database => true,
            Certificate { is_lasting, .. } => is_lasting,
            _ => false,
        }
    }

    /// Whether the server itself has answered: it would say the same at another of its hosts.
    pub(crate) fn is_of_the_server(self) -> bool {
        use ConnectErrorKind::{Busy, Credentials, Database, Refused};
        matches!(self, Busy | Credentials | Database | Refused)
    }
}

impl ConnectError {
    /// A real connection would time out at once.
    pub(crate) fn paused_clock() -> Self {
        Self {
            kind: ConnectErrorKind::Config,
            details: "tokio's clock is paused, so every time limit ends before a real server can answer: resume the \
             clock, or use `InMemoryRedis` of redisson-lock-test"
                .into(),
        }
    }

    /// The client would send no login, and the server would use `default` for the connection.
    pub(crate) fn no_password() -> Self {
        Self {
            kind: ConnectErrorKind::Config,
            details: "the user has no password: set both or neither (an empty password in a URL is written \
             `user:@`)".into(),
        }
    }

    pub(crate) fn timeout() -> Self {
        Self {
            kind: ConnectErrorKind::NoAnswer,
            details: "the server did not answer".into(),
        }
    }
}
