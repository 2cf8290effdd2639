//! The client's end of a connection.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::sync::mpsc;

use super::network::{Network, PipeId};
use crate::redis::{
    connect_error::{ConnectError, ConnectErrorKind},
    connection::{Answer, Connection, Frame, Pushed, ServerConfig},
    handshake::Version,
};

/// The longest time that closing waits for data in flight.
const QUIT_WAIT: Duration = Duration::from_millis(500);

/// An open connection.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) network: Network,
    pub(super) pipe: PipeId,
}

impl Line {
    pub(super) async fn log_in(
        &self,
        server: &ServerConfig,
        version: Version,
    ) -> Result<(), ConnectError> {
        let version = match version {
            Version::Resp2 => "2",
            Version::Resp3 => "3",
        };
        match (&server.username, &server.password) {
            (username, Some(password)) => {
                let username = username.as_deref().unwrap_or("default");
                self.ask("HELLO", &[version, "AUTH", username, password])
                    .await?
            }
            _ => self.ask("HELLO", &[version]).await?,
        };
        if let Some(database) = server.database.filter(|database| *database != 0) {
            self.ask("SELECT", &[&database.to_string()]).await?;
        }
        Ok(())
    }

    pub(super) async fn ask(
        &self,
        name: &'static str,
        words: &[&str],
    ) -> Result<Frame, ConnectError> {
        let failed = |kind, details| Err(ConnectError { kind, details });
        let args = words
            .iter()
            .map(|word| Bytes::copy_from_slice(word.as_bytes()));
        match self.send(name, args.collect()).await {
            Ok(Frame::Error(message)) => {
                let refused = ["WRONGPASS", "NOAUTH", "NOPERM"];
                let kind = match refused.iter().any(|refused| message.starts_with(refused)) {
                    true => ConnectErrorKind::Credentials,
                    false => ConnectErrorKind::Refused,
                };
                failed(kind, message)
            }
            Ok(frame) => Ok(frame),
            Err(reason) => failed(ConnectErrorKind::Network, reason.as_ref().to_owned()),
        }
    }
}

impl Connection for Line {
    fn send(&self, name: &'static str, args: Vec<Bytes>) -> Answer<'_> {
        Box::pin(async move {
            let sent = self.network.state().send(self.pipe, name, args);
            let ended = || Arc::from("the connection ended");
            sent.ok_or_else(ended)?.await.map_err(|_| ended())
        })
    }

    fn messages(&self) -> Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        let (messages, receiver) = mpsc::unbounded_channel();
        if let Some(pipe) = self.network.state().pipes.get_mut(&self.pipe) {
            pipe.messages = Some(messages);
        }
        Box::pin(stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        }))
    }

    fn quit(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            let quitting = self.send("QUIT", Vec::new());
            let _ = tokio::time::timeout(QUIT_WAIT, quitting).await;
        })
    }
}

/// Ends the connection when it is dropped.
pub(super) struct Leave(pub(super) Line);

impl Drop for Leave {
    fn drop(&mut self) {
        if let Some(pipe) = self.0.network.state().pipes.get_mut(&self.0.pipe) {
            drop(pipe.leave());
            pipe.wake();
        }
    }
}
