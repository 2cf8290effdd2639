//! Replaces a broken connection for scripts.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::live_conn::LiveConn;
use crate::redis::{
    Event, EventSender,
    attempts::ConnectLog,
    client_info::ConnIdentity,
    conn::{Conn, Router},
    connector::Connector,
};

/// Whether there is a connection to send on.
#[derive(Clone)]
pub(super) enum State {
    Up(Arc<LiveConn>),
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
    /// Makes `conn` available to callers.
    pub(super) fn put_up(&self, conn: Conn) -> (Arc<LiveConn>, Router) {
        let live = LiveConn::new(
            conn.connection,
            conn.identity,
            (conn.ping_wait, conn.pong),
            conn.scope,
        );
        let live = Arc::new(live);
        self.states.send_replace(State::Up(live.clone()));
        (live, conn.router)
    }

    pub(super) async fn keep(mut self, first: Option<(Arc<LiveConn>, Router)>) {
        let mut up = match first {
            Some(first) => Some(first),
            None => self.connect(None, None).await,
        };
        let mut opened = Instant::now();
        while let Some((live, mut router)) = up.take() {
            let endpoint = self.connector.endpoint();
            let broken = live.broken(&mut router, &self.connector, || {
                self.connect_log.is_proven(&endpoint);
            });
            let Some(end) = self.closed.run_until_cancelled(broken).await else {
                self.states.send_replace(State::Closed);
                live.quit().await;
                return;
            };
            let (answers, lasted) = (live.answers(), opened.elapsed());
            let rest = self
                .connect_log
                .lost(&endpoint, &end.reason, answers, lasted);
            self.states.send_replace(State::Down);
            drop(router);
            live.end();
            let resting = tokio::time::sleep(rest);
            if self.closed.run_until_cancelled(resting).await.is_none() {
                break;
            }
            up = self.connect(Some(&live), end.successor).await;
            opened = Instant::now();
        }
    }

    /// Connects and has the server kill the previous connection, unless there is a `successor`, which has done so.
    async fn connect(
        &mut self,
        old: Option<&LiveConn>,
        mut successor: Option<Conn>,
    ) -> Option<(Arc<LiveConn>, Router)> {
        let identity = match old.map(LiveConn::identity) {
            Some(ConnIdentity::Known(identity)) if successor.is_none() => Some(identity),
            _ => None,
        };
        let conn = loop {
            let connecting =
                self.connector
                    .succeed(successor.take(), &self.closed, &mut self.connect_log);
            let mut conn = connecting.await?;
            let Some(identity) = &identity else {
                break conn;
            };
            // A connection that breaks before its predecessor is dead has sent nothing. The next one kills that same
            // predecessor.
            let Err(reason) = conn.kill(identity).await else {
                break conn;
            };
            let rest =
                self.connect_log
                    .lost(&self.connector.endpoint(), &reason, 0, Duration::ZERO);
            let resting = tokio::time::sleep(rest);
            self.closed.run_until_cancelled(resting).await?;
        };
        let up = self.put_up(conn);
        if old.is_some() {
            let _ = self.events.send(Event::Reconnected);
        }
        Some(up)
    }
}

impl Drop for Reconnector {
    /// Also runs when the runtime ends before the client: no caller may wait for a connection that will not come.
    fn drop(&mut self) {
        if let State::Up(live) = self.states.send_replace(State::Closed) {
            live.end();
        }
    }
}
