//! Decides whether a silent connection is dead or its server slow, by a second connection to the server.
//!
//! A slow server answers both. Redis answers the `PING` of the old connection in the turn of its event loop in which it accepts
//! the new one, so before the first command there. What delays scripts alone (`CLIENT PAUSE`, a failover by order) delays the
//! script of the new connection as well.

use std::{pin::pin, time::Duration};

use tokio::time::{Instant, sleep};

use super::conn::{Conn, PING_WAIT, command};
use crate::error::Error;

/// How long a `PING` stays unanswered before a second connection is opened.
const PATIENCE: Duration = Duration::from_millis(250);
/// The longest random addition. It keeps the clients of a slow server from connecting together.
const APART: Duration = Duration::from_millis(100);
/// How long the old connection may stay silent after the new one has answered: as long as that took, within these bounds.
const REPRIEVE: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];

/// Why a silent connection has ended.
const DEAD: &str = "the server answers on a new connection, and not on this one";

/// The end of a connection.
pub(super) struct End {
    pub(super) reason: String,
    /// The connection that has proved the old one dead.
    pub(super) successor: Option<Conn>,
}

impl From<String> for End {
    fn from(reason: String) -> Self {
        let successor = None;
        Self { reason, successor }
    }
}

/// The doubts about one connection.
pub(super) struct Doubts {
    shortest: Duration,
    /// How long the next `PING` may stay unanswered before a second connection is opened.
    patience: Duration,
}

impl Doubts {
    /// `ping_wait` is how long a `PING` may stay unanswered on this connection.
    pub(super) fn new(ping_wait: Duration) -> Self {
        // A command that blocks the connection by intent delays the answer, and was sent before the doubt.
        let shortest = PATIENCE.max(ping_wait.saturating_sub(PING_WAIT));
        Self {
            shortest,
            patience: shortest,
        }
    }

    /// Waits for the answer to `ping`, a command or a few, and for proof by a second connection that none will come.
    pub(super) async fn settle(
        &mut self,
        ping: impl Future<Output = Result<(), String>>,
        connecting: impl Future<Output = Result<Conn, Error>>,
    ) -> Result<(), End> {
        let asked = Instant::now();
        let mut ping = pin!(ping);
        let patience = self.patience + APART.mul_f64(fastrand::f64());
        let proof = async {
            sleep(patience).await;
            proof(connecting).await
        };
        tokio::select! {
            biased;
            answer = &mut ping => {
                // A connection that is slow, or far from its server, needs more patience.
                self.patience = self.shortest.max(2 * asked.elapsed());
                Ok(answer?)
            }
            successor = proof => Err(End {
                reason: DEAD.into(),
                successor: Some(successor),
            }),
        }
    }
}

/// Completes with the new connection once the server has answered on it, and an answer on the old one is no longer on its way. Without
/// a new connection, it never completes: only the old one can tell.
async fn proof(connecting: impl Future<Output = Result<Conn, Error>>) -> Conn {
    let began = Instant::now();
    let answered = async {
        let mut conn = connecting.await.map_err(|error| error.to_string())?;
        let script = command(&*conn.connection, "EVAL", &["return 1", "0"]);
        conn.router.run(script).await?;
        let [shortest, longest] = REPRIEVE;
        sleep(began.elapsed().clamp(shortest, longest)).await;
        // A process that was stopped meanwhile reads the answer of the old connection before this one.
        let ping = Conn::ping(&*conn.connection, 0, PING_WAIT, &mut conn.pong);
        conn.router.run(ping).await?;
        Ok::<_, String>(conn)
    };
    match answered.await {
        Ok(conn) => conn,
        Err(reason) => {
            tracing::debug!(reason, "no second connection to a silent server");
            std::future::pending().await
        }
    }
}
