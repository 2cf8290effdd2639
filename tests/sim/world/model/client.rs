//! A client's way to the server: the trait of the library above its connections.

use std::sync::Arc;

use bytes::Bytes;
use model_server::{Detail, Reply, Script};
use redisson_lock::{
    Cause, Durability,
    direct::{self, Answered, BoxFuture, CallError, ClientNames, HashSlot, Operation, Redis},
};
use redisson_lock_test::simulation::Frame;
use tokio::{
    sync::{oneshot, watch},
    time::Instant,
};

use super::{ModelServer, State};

/// The replies to a call, or why there are none.
pub(super) type Answers = Result<Vec<Reply>, CallError>;

/// A client without connections.
pub(super) struct Client {
    pub(super) world: ModelServer,
    pub(super) number: u64,
    /// Whether calls have a connection.
    pub(super) is_up: watch::Receiver<bool>,
}

/// Completes once calls have a connection.
async fn connected(mut is_up: watch::Receiver<bool>) -> Result<(), CallError> {
    let up = is_up.wait_for(|is_up| *is_up).await;
    up.map(drop).map_err(|_| CallError::Closed)
}

impl Drop for Client {
    fn drop(&mut self) {
        self.world.state().close(self.number);
    }
}

fn model_of(script: &direct::Script) -> &'static Script {
    Script::named(script.name()).expect("each script has a model")
}

fn detail(detail: Detail) -> direct::Detail {
    match detail {
        Detail::Nothing => direct::Detail::Nothing,
        Detail::Number(number) => direct::Detail::Number(number),
        Detail::Text(text) => direct::Detail::Text(super::text(&text)),
        Detail::Numbers(numbers) => direct::Detail::Numbers(numbers),
    }
}

fn answered(reply: Reply) -> Answered {
    Answered {
        reply: direct::Reply {
            status: reply.status,
            detail: detail(reply.detail),
        },
        acknowledged: None,
    }
}

/// A reply as the observer of commands reads it.
pub(super) fn frame(reply: &Reply) -> Frame {
    let status = Frame::Number(reply.status);
    let detail = match &reply.detail {
        Detail::Nothing => return status,
        Detail::Number(number) => Frame::Number(*number),
        Detail::Text(text) => Frame::Text(text.clone()),
        Detail::Numbers(numbers) => {
            Frame::List(numbers.iter().copied().map(Frame::Number).collect())
        }
    };
    Frame::List(vec![status, detail])
}

impl Redis for Client {
    fn slot(&self, _key: &[u8]) -> HashSlot {
        0
    }

    fn call(
        &self,
        script: &'static direct::Script,
        operations: Arc<[Operation]>,
        _durability: Durability,
    ) -> BoxFuture<Result<Vec<Answered>, CallError>> {
        let (world, number, is_up) = (self.world.clone(), self.number, self.is_up.clone());
        let model = model_of(script);
        Box::pin(async move {
            let (sent, answer) = loop {
                let sent = Instant::now();
                let operations = operations.clone();
                match world.change(|state, now| state.send(number, model, operations, now)) {
                    Some(answer) => break (sent, answer.await),
                    None => connected(is_up.clone()).await?,
                }
            };
            let is_open = || world.state().links.contains_key(&number);
            match answer {
                Ok(answers) => Ok(answers?.into_iter().map(answered).collect()),
                Err(_) if is_open() => Err(CallError::Unanswered {
                    reason: "the connection was cut".into(),
                    sent,
                }),
                Err(_) => Err(CallError::Closed),
            }
        })
    }

    fn replicas(&self, _slot: HashSlot) -> usize {
        0
    }

    fn ready(&self, _slot: HashSlot, _durability: Durability) -> BoxFuture<()> {
        let ready = connected(self.is_up.clone());
        Box::pin(async move { drop(ready.await) })
    }

    fn is_ready(&self, _slot: HashSlot, _durability: Durability) -> bool {
        self.is_connected()
    }

    fn is_connected(&self) -> bool {
        *self.is_up.borrow()
    }

    fn trouble(&self, _slot: HashSlot, _durability: Durability) -> Option<Arc<Cause>> {
        None
    }

    fn server_of(&self, _slot: HashSlot) -> Option<String> {
        None
    }

    fn ping(&self) -> BoxFuture<Result<(), CallError>> {
        Box::pin(connected(self.is_up.clone()))
    }

    fn refused_message(&self, _key: &Bytes, _channel: &Bytes) -> Option<BoxFuture<Option<String>>> {
        None
    }

    fn client_names(&self, _key: &Bytes) -> Option<BoxFuture<Option<ClientNames>>> {
        None
    }

    fn subscribe(&self, channel: Bytes) -> BoxFuture<Result<(), CallError>> {
        let (confirmed, confirmation) = oneshot::channel();
        self.world.change(|state: &mut State, now| {
            if let Some(link) = state.links.get_mut(&self.number) {
                link.channels
                    .entry(channel.clone())
                    .or_default()
                    .push(confirmed);
                state.subscribe(self.number, channel, true, now);
            }
        });
        Box::pin(async move { confirmation.await.map_err(|_| CallError::Closed) })
    }

    fn unsubscribe(&self, channel: Bytes) {
        self.world.change(|state, now| {
            if let Some(link) = state.links.get_mut(&self.number) {
                link.channels.remove(&channel);
                state.subscribe(self.number, channel, false, now);
            }
        });
    }

    fn close(&self) -> BoxFuture<()> {
        self.world.state().close(self.number);
        Box::pin(std::future::ready(()))
    }
}
