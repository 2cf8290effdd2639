//! Servers that answer calls themselves, without connections and frames: the models of the simulator.

use std::sync::Arc;

use bytes::Bytes;

use super::{BoxFuture, CallError, Event, EventSender, Redis};
use crate::{error::Error, wire::Refusal};

/// A server for clients in its process.
pub trait Server: Send + Sync {
    /// Connects a client, which learns of messages and of lost connections by `events`.
    fn connect(&self, events: EventSender) -> BoxFuture<Result<Arc<dyn Redis>, Error>>;
}

impl EventSender {
    /// A message has arrived.
    pub fn message(&self, channel: Bytes, payload: Bytes) {
        let _ = self.send(Event::Message { channel, payload });
    }

    /// Messages may have been lost. All subscriptions are in place again.
    pub fn missed(&self) {
        let _ = self.send(Event::MessagesMissed);
    }

    /// The server may have lost holds.
    pub fn reconnected(&self) {
        let _ = self.send(Event::Reconnected);
    }
}

impl CallError {
    /// The server refuses the whole call, with this message.
    pub fn refused(message: String) -> Self {
        Self::Refused(Refusal::from_message(message))
    }
}
