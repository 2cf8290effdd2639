//! New logins on an open connection, before its credentials end.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    connect_error::ConnectErrorKind,
    credentials_provider::CredentialsProvider,
    handshake::Version,
    log_in::log_in_anew,
    opener::ServerConfig,
    time_limits::{FIRST_LOG_IN_PAUSE, LOG_IN_BEFORE_END, LOG_INS_APART, LONGEST_LOG_IN_PAUSE},
};
use crate::{credentials::Credentials, transport::Connection};

/// The reason of a connection that ends because it cannot log in anew.
pub(super) const ENDS_TO_LOG_IN: &str = "the server accepts a new login on a new connection alone";

/// Logs a connection in again before its credentials end.
pub(super) struct Reauthentication {
    pub(super) provider: CredentialsProvider,
    pub(super) server: ServerConfig,
    pub(super) is_sentinel: bool,
    /// How long the provider may take.
    pub(super) wait: Duration,
    pub(super) version: Version,
    /// When the present credentials end.
    pub(super) end: Instant,
}

/// A login that failed.
enum Failed {
    Again(String),
    /// The connection accepts no other login.
    Ends,
}

impl Reauthentication {
    /// Returns the reason if the connection must end.
    pub(super) async fn keep(mut self, connection: &dyn Connection) -> String {
        let (mut failures, mut told) = (0, String::new());
        loop {
            let pause = match self.end.saturating_duration_since(Instant::now()) {
                _ if failures > 0 => pause_after(failures),
                Duration::ZERO => FIRST_LOG_IN_PAUSE,
                left => left
                    .saturating_sub(LOG_IN_BEFORE_END.min(left / 5))
                    .max(LOG_INS_APART),
            };
            sleep(pause).await;
            let reason: String = match self.log_in(connection).await {
                Ok(None) => std::future::pending().await,
                Ok(Some(new)) if new > Instant::now() => {
                    (failures, self.end) = (0, new);
                    continue;
                }
                Ok(Some(_)) => "the credentials provider gave credentials that have ended".into(),
                Err(Failed::Again(reason)) => reason,
                Err(Failed::Ends) => return ENDS_TO_LOG_IN.into(),
            };
            self.tell(&reason, failures, reason != told);
            (failures, told) = (failures + 1, reason);
        }
    }

    /// Logs in by new credentials, and returns their end.
    async fn log_in(&mut self, connection: &dyn Connection) -> Result<Option<Instant>, Failed> {
        let (endpoint, deadline) = (&self.server.endpoint, Instant::now() + self.wait);
        let asking = self
            .provider
            .credentials(endpoint, self.is_sentinel, deadline);
        let credentials = asking.await.map_err(|error| {
            Failed::Again(format!(
                "the credentials provider failed: {}",
                error.details
            ))
        })?;
        let Credentials {
            username,
            password,
            end,
        } = credentials;
        self.server.log_in_as(username, password);
        let logged_in = log_in_anew(connection, &self.server).await;
        let has_ended = end.is_some_and(|end| end <= Instant::now());
        logged_in.map(|()| end).map_err(|error| match error.kind {
            // In RESP2, a connection with subscriptions accepts no `AUTH`. Credentials that have ended would end the next one too.
            ConnectErrorKind::Refused if self.version == Version::Resp2 && !has_ended => {
                Failed::Ends
            }
            _ => Failed::Again(error.details),
        })
    }

    fn tell(&self, reason: &str, failures: u32, is_new: bool) {
        let server = &self.server.endpoint;
        if is_new && let Some(suppressed) = self.server.servers.may_log_about(reason) {
            tracing::warn!(%server, reason, suppressed, "an open connection cannot log in anew");
        } else {
            tracing::debug!(%server, reason, failures, "an open connection cannot log in anew");
        }
    }
}

fn pause_after(failures: u32) -> Duration {
    (FIRST_LOG_IN_PAUSE * 2_u32.pow(failures.saturating_sub(1).min(16))).min(LONGEST_LOG_IN_PAUSE)
}

#[cfg(test)]
#[path = "reauthentication_tests.rs"]
mod tests;
