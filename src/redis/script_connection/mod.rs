//! A connection for scripts that reopens whenever it breaks: the handle of its callers.
//!
//! - [`reconnector`]: the task that replaces a broken connection.
//! - [`session`]: one open connection: its calls, its checks and its end.
//! - [`keepalive`]: when the server is due for a `PING`.

mod keepalive;
mod reconnector;
mod session;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    CallError, EventSender, Tasks,
    connector::Connector,
    endpoint::Endpoint,
    frame,
    open_connection::OpenConnection,
    reconnect::{Callers, Trouble},
};
use crate::{
    error::{Cause, Error},
    transport::Frame,
    wire::Refusal,
};
use reconnector::{Reconnector, State};
pub(super) use session::ScriptSession;

/// A caller's handle to the connection for scripts.
#[derive(Clone)]
pub(super) struct ScriptConnection {
    states: watch::Sender<State>,
    trouble: Trouble,
    server: Arc<Mutex<Endpoint>>,
    callers: Arc<Callers>,
}

/// There will be no further connection: the client has closed, or the server is no longer used.
#[derive(Debug)]
pub(super) struct ClosedForGood;

impl From<ClosedForGood> for CallError {
    fn from(ClosedForGood: ClosedForGood) -> Self {
        CallError::Closed
    }
}

impl ScriptConnection {
    /// Keeps a connection open until `closed` is cancelled.
    pub(super) fn keep(
        connector: Connector,
        first: Option<OpenConnection>,
        events: EventSender,
        closed: CancellationToken,
        tasks: &Tasks,
    ) -> Self {
        let connect_log = connector.connect_log("scripts");
        let connection = Self {
            states: watch::Sender::new(State::Down),
            trouble: connect_log.trouble.clone(),
            server: connector.last_endpoint(),
            callers: connector.callers.clone(),
        };
        let reconnector = Reconnector {
            connector,
            states: connection.states.clone(),
            events,
            closed,
            connect_log,
        };
        let first = first.map(|open| reconnector.put_up(open));
        tasks.spawn(reconnector.keep(first));
        connection
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(*self.states.borrow(), State::Up(_))
    }

    /// Why the server does not answer; `None` if it does.
    pub(super) fn trouble(&self) -> Option<Arc<Cause>> {
        self.trouble.cause()
    }

    /// The refusal that has kept the first connection from opening.
    pub(super) fn refused_start(&self) -> Option<Error> {
        self.trouble.refused_start()
    }

    /// The server that the last attempt to connect was for; `None` before the first one, if a locator has to name it.
    pub(super) fn server(&self) -> Option<String> {
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        (*server != Endpoint::unknown()).then(|| server.to_string())
    }

    /// The connection to send on, if there is one.
    pub(super) fn current(&self) -> Option<Arc<ScriptSession>> {
        match &*self.states.borrow() {
            State::Up(session) => Some(session.clone()),
            _ => None,
        }
    }

    /// The connection to send on, once there is one.
    pub(super) async fn ready(&self) -> Result<Arc<ScriptSession>, ClosedForGood> {
        match self.current() {
            Some(session) => Ok(session),
            None => self.other_than(None).await,
        }
    }

    /// Completes when the connection is closed for good.
    pub(super) async fn closed(&self) {
        let mut states = self.states.subscribe();
        let _ = states
            .wait_for(|state| matches!(state, State::Closed))
            .await;
    }

    /// Waits until `old` is replaced. By then the server has dropped it.
    pub(super) async fn replaced(&self, old: &Arc<ScriptSession>) -> Result<(), ClosedForGood> {
        self.other_than(Some(old)).await.map(drop)
    }

    /// Pings the server once there is a connection, and sends it a question at the same time. Returns the connection and the answer to
    /// the question: [`Frame::Null`] if there is no question, or if the peer would close the connection on it.
    pub(super) async fn ping(
        &self,
        question: Option<(&'static str, &'static [&'static str])>,
    ) -> Result<(Arc<ScriptSession>, Frame), CallError> {
        let session = self.ready().await?;
        let sent = Instant::now();
        let asking = async {
            match question.filter(|_| !session.is_bare()) {
                Some((name, words)) => {
                    session
                        .send(name, words.iter().map(|word| (*word).into()).collect())
                        .await
                }
                None => Ok(Frame::Null),
            }
        };
        let answers = tokio::try_join!(session.send("PING", Vec::new()), asking);
        let (pong, answer) = answers.map_err(|reason| CallError::Unanswered { reason, sent })?;
        match frame::error(&pong).map(Refusal::from_message) {
            Some(refusal @ Refusal::Transient { .. }) => Err(CallError::Refused(refusal)),
            // A refusal for lack of the right is an answer too.
            _ => Ok((session, answer)),
        }
    }

    async fn other_than(
        &self,
        old: Option<&Arc<ScriptSession>>,
    ) -> Result<Arc<ScriptSession>, ClosedForGood> {
        let _waiting = self.callers.wait();
        let mut states = self.states.subscribe();
        let settled = states
            .wait_for(|state| match state {
                State::Up(session) => old.is_none_or(|old| !Arc::ptr_eq(session, old)),
                State::Down => false,
                State::Closed => true,
            })
            .await;
        match settled.as_deref() {
            Ok(State::Up(session)) => Ok(session.clone()),
            _ => Err(ClosedForGood),
        }
    }
}
