//! The login of one connection.

use std::{fmt, time::Duration};

use tokio::time::Instant;

/// The connection that a [`credentials_provider`](crate::LockClientBuilder::credentials_provider) is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialsRequest {
    /// The host, or the path of a unix socket.
    pub host: String,
    /// The port; 0 for a unix socket.
    pub port: u16,
    /// Whether a sentinel listens there: sentinels have users of their own.
    pub is_sentinel: bool,
}

/// A user and password for one connection: see [`credentials_provider`](crate::LockClientBuilder::credentials_provider).
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    /// `None` if they stay valid.
    pub(crate) end: Option<Instant>,
}

impl Credentials {
    /// A user and password, or token, that stay valid. The user without a name is `""`.
    pub fn new(username: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            username: Some(username.into()).filter(|name| !name.is_empty()),
            password: Some(password.into()),
            end: None,
        }
    }

    /// No login, as for sentinels without users.
    pub fn none() -> Self {
        Self {
            username: None,
            password: None,
            end: None,
        }
    }

    /// Ends after this time from now on. The client logs in anew when a fifth of it is left, at most a minute before the end.
    pub fn valid_for(mut self, time: Duration) -> Self {
        // An end that no clock can count never comes.
        self.end = Instant::now().checked_add(time);
        self
    }
}

impl fmt::Debug for Credentials {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let left = self.end.map(|end| end - Instant::now());
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .field("valid_for", &left)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn debug_shows_no_password() {
        let credentials = Credentials::new("app", "s3cret").valid_for(Duration::from_secs(900));
        let shown = format!("{credentials:?} {:?}", Credentials::none());
        assert!(shown.contains("app") && shown.contains("900s"), "{shown}");
        assert!(!shown.contains("s3cret"), "{shown}");
    }

    #[test]
    fn an_end_may_lie_beyond_all_clocks() {
        let credentials = Credentials::new("", "s3cret");
        assert_eq!(credentials.clone().valid_for(Duration::MAX), credentials);
    }
}
