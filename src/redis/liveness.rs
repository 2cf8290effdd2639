//! Decides whether a silent connection is dead or its server slow, by a second connection to the server.
//!
//! A slow server answers both. Redis answers the `PING` of the old connection in the turn of its event loop in which it accepts
//! the new one, so before the first command there. What delays scripts alone (`CLIENT PAUSE`, a failover by order) delays the
//! script of the new connection as well.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{
    batch_scope::ConnectionScope,
    client_info::{ConnectionIdentity, Identity},
    open_connection::{OpenConnection, command},
    time_limits::{
        PING_WAIT, REPRIEVE, SECOND_CONNECTION_AFTER, SECOND_CONNECTION_SPREAD, WAIT_ENDS_LATE,
    },
};
use crate::{error::Error, transport::BoxFuture};

/// Why a silent connection has ended.
const DEAD: &str = "the server answers on a new connection, and not on this one";

/// The end of a connection.
pub(super) struct End {
    pub(super) reason: String,
    /// The connection that has proved the old one dead.
    pub(super) successor: Option<OpenConnection>,
}

impl From<String> for End {
    fn from(reason: String) -> Self {
        let successor = None;
        Self { reason, successor }
    }
}

/// The identity of a connection that a second one can prove dead: of one that leads straight to its server. A proxy may answer the
/// second one in the place of a slow server.
pub(super) fn provable<'a>(
    identity: &'a ConnectionIdentity,
    scope: Option<&ConnectionScope>,
) -> Option<&'a Identity> {
    match identity {
        ConnectionIdentity::Known(identity)
            if scope.is_none_or(ConnectionScope::leads_straight) =>
        {
            Some(identity)
        }
        _ => None,
    }
}

/// The patience with one connection, and how to settle whether it is dead.
pub(super) struct LivenessCheck {
    /// How long the connection may stay silent before a second one is opened.
    patience: Duration,
    /// How long the server may keep the connection silent by intent, for a command that it has read.
    blocked: Duration,
}

impl LivenessCheck {
    /// `ping_wait` is how long a `PING` may stay unanswered on this connection.
    pub(super) fn new(ping_wait: Duration) -> Self {
        let blocked = ping_wait.saturating_sub(PING_WAIT);
        Self {
            patience: SECOND_CONNECTION_AFTER,
            blocked: match blocked.is_zero() {
                true => blocked,
                false => blocked + WAIT_ENDS_LATE,
            },
        }
    }

    /// Waits until the server has `answered` a command or a few. Meanwhile, a second connection by `connecting` may prove that it will
    /// not, and has the server kill this one, which is known there as `old`. Without `old`, there is no second connection.
    pub(super) async fn settle(
        &mut self,
        mut answered: BoxFuture<'_, Result<(), String>>,
        old: Option<&Identity>,
        connecting: impl Future<Output = Result<OpenConnection, Error>>,
    ) -> Result<(), End> {
        let asked = Instant::now();
        let patience = self.patience + SECOND_CONNECTION_SPREAD.mul_f64(fastrand::f64());
        let blocked = self.blocked;
        let proof = async {
            let Some(old) = old else {
                return std::future::pending().await;
            };
            sleep(patience).await;
            (old, proof(connecting, blocked).await)
        };
        let answer = tokio::select! {
            biased;
            answer = &mut answered => answer,
            (old, mut successor) = proof => {
                // A refusal may be that of a proxy, and calls of a connection that lives may not be repeated yet.
                if successor.kill(old).await == Ok(true) {
                    return Err(End {
                        reason: DEAD.into(),
                        successor: Some(successor),
                    });
                }
                drop(successor);
                answered.await
            }
        };
        // A connection that is slow, or far from its server, needs more patience. One slow answer tells little.
        self.patience = SECOND_CONNECTION_AFTER.max((2 * asked.elapsed()).min(2 * self.patience));
        Ok(answer?)
    }
}

/// Completes with the new connection once the server has answered on it, and an answer on the old one is no longer on its way. Without
/// a new connection, it never completes: only the old one can tell.
async fn proof(
    connecting: impl Future<Output = Result<OpenConnection, Error>>,
    blocked: Duration,
) -> OpenConnection {
    let began = Instant::now();
    let answered = async {
        let mut open = connecting.await.map_err(|error| error.to_string())?;
        let script = command(&*open.connection, "EVAL", &["return 1", "0"]);
        open.lifetime.run(script).await?;
        let [shortest, longest] = REPRIEVE;
        let reprieve = began.elapsed().clamp(shortest, longest);
        // By now, the server has read what it delays the old connection for.
        sleep(reprieve.max(blocked)).await;
        // A process that was stopped meanwhile reads the answer of the old connection before this one.
        let ping = OpenConnection::ping(&*open.connection, 0, PING_WAIT, &mut open.pong);
        open.lifetime.run(ping).await?;
        Ok::<_, String>(open)
    };
    match answered.await {
        Ok(open) => open,
        Err(reason) => {
            tracing::debug!(reason, "no second connection to a silent server");
            std::future::pending().await
        }
    }
}

#[cfg(test)]
#[path = "liveness_tests.rs"]
mod tests;
