//! The client's end of a connection.

use bytes::Bytes;
use futures_util::stream;
use redisson_lock::transport::{BoxFuture, Connection, Frame, Messages, TransportError};
use tokio::sync::mpsc;

use super::network::{Network, PipeId};

/// An open connection.
#[derive(Clone)]
pub(super) struct Line {
    pub(super) network: Network,
    pub(super) pipe: PipeId,
}

impl Line {
    /// Sends a command. Commands are sent in the order in which their futures are first polled.
    pub(super) async fn ask(
        &self,
        name: &'static str,
        args: Vec<Bytes>,
    ) -> Result<Frame, TransportError> {
        let sent = self.network.state().send(self.pipe, name, args);
        let ended = || TransportError::new("the connection ended");
        sent.ok_or_else(ended)?.await.map_err(|_| ended())
    }
}

impl Connection for Line {
    fn send(
        &self,
        name: &'static str,
        args: Vec<Bytes>,
    ) -> BoxFuture<'_, Result<Frame, TransportError>> {
        Box::pin(self.ask(name, args))
    }

    fn messages(&self) -> Messages {
        let (messages, receiver) = mpsc::unbounded_channel();
        if let Some(pipe) = self.network.state().pipes.get_mut(&self.pipe) {
            pipe.messages = Some(messages);
        }
        Box::pin(stream::unfold(receiver, |mut receiver| async move {
            Some((receiver.recv().await?, receiver))
        }))
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
