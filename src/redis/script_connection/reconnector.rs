//! Replaces a broken connection for scripts.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::session::ScriptSession;
use crate::redis::{
    Event, EventSender,
    client_info::ConnectionIdentity,
    connector::Connector,
    open_connection::{Lifetime, OpenConnection},
    reconnect::ConnectLog,
};

/// Whether there is a connection to send on.
#[derive(Clone)]
pub(super) enum State {
    Up(Arc<ScriptSession>),
    Down,
    Closed,
}

/// Opens a connection again and again, until `closed` is cancelled.
pub(super) struct Reconnector {
    pub(super) connector: Connector,
    pub(super) states: watch::Sender<State>,
    pub(super) events: EventSender,
    pub(super) closed: CancellationToken,
    pub(super) connect_log: ConnectLog,
}

impl Reconnector {
    /// Makes `open` available to callers.
    pub(super) fn put_up(&self, open: OpenConnection) -> (Arc<ScriptSession>, Lifetime) {
        let session = ScriptSession::new(
            open.connection,
            open.identity,
            (open.ping_wait, open.pong),
            open.scope,
        );
        let session = Arc::new(session);
        self.states.send_replace(State::Up(session.clone()));
        (session, open.lifetime)
    }

    pub(super) async fn keep(mut self, first: Option<(Arc<ScriptSession>, Lifetime)>) {
        let mut up = match first {
            Some(first) => Some(first),
            None => self.connect(None, None).await,
        };
        let mut opened = Instant::now();
        while let Some((session, mut lifetime)) = up.take() {
            let endpoint = self.connector.endpoint();
            let broken = session.broken(&mut lifetime, &self.connector, || {
                self.connect_log.is_proven(&endpoint);
            });
            let Some(end) = self.closed.run_until_cancelled(broken).await else {
                self.states.send_replace(State::Closed);
                session.quit().await;
                return;
            };
            let (answers, lasted) = (session.answers(), opened.elapsed());
            let rest = self
                .connect_log
                .lost(&endpoint, &end.reason, answers, lasted);
            self.states.send_replace(State::Down);
            drop(lifetime);
            session.end();
            let resting = tokio::time::sleep(rest);
            if self.closed.run_until_cancelled(resting).await.is_none() {
                break;
            }
            up = self.connect(Some(&session), end.successor).await;
            opened = Instant::now();
        }
    }

    /// Connects and has the server kill the previous connection, unless there is a `successor`, which has done so.
    async fn connect(
        &mut self,
        old: Option<&ScriptSession>,
        mut successor: Option<OpenConnection>,
    ) -> Option<(Arc<ScriptSession>, Lifetime)> {
        let identity = match old.map(ScriptSession::identity) {
            Some(ConnectionIdentity::Known(identity)) if successor.is_none() => Some(identity),
            _ => None,
        };
        let open = loop {
            let connecting =
                self.connector
                    .succeed(successor.take(), &self.closed, &mut self.connect_log);
            let mut open = connecting.await?;
            let Some(identity) = &identity else {
                break open;
            };
            // A connection that breaks before its predecessor is dead has sent nothing. The next one kills that same
            // predecessor.
            let Err(reason) = open.kill(identity).await else {
                break open;
            };
            let rest =
                self.connect_log
                    .lost(&self.connector.endpoint(), &reason, 0, Duration::ZERO);
            let resting = tokio::time::sleep(rest);
            self.closed.run_until_cancelled(resting).await?;
        };
        let up = self.put_up(open);
        if old.is_some() {
            let _ = self.events.send(Event::Reconnected);
        }
        Some(up)
    }
}

impl Drop for Reconnector {
    /// Also runs when the runtime ends before the client: no caller may wait for a connection that will not come.
    fn drop(&mut self) {
        if let State::Up(session) = self.states.send_replace(State::Closed) {
            session.end();
        }
    }
}
