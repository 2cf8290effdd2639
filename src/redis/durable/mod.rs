//! Calls that wait for replicas. Each [`Durability`] has a connection of its own, because `WAIT` delays all later commands
//! (P-FR13).
//!
//! - [`worker`]: the task that sends the calls of one durability, and a `WAIT` behind them.
//! - [`wait`]: `WAIT` and `WAITAOF`, and their answers.

mod wait;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::{Answered, Tasks, script_connection::ScriptConnection};
use crate::{
    durability::Durability,
    hash::HashMap,
    transport::Frame,
    wire::script::{Operation, Publishing, Script},
};
pub(super) use wait::Wait;
use worker::{Call, DurableWorker, Listed};

/// The connections of a server on which calls wait for replicas.
#[derive(Default)]
pub(super) struct Durables(Mutex<HashMap<Durability, Durable>>);

impl Durables {
    /// The connection for calls of this durability. The first call opens it.
    pub(super) fn get(&self, durability: Durability, make: impl FnOnce() -> Durable) -> Durable {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(durability).or_insert_with(make).clone()
    }
}

/// A connection on which calls of one durability wait for replicas.
#[derive(Clone)]
pub(super) struct Durable {
    pub(super) connection: ScriptConnection,
    calls: mpsc::UnboundedSender<Call>,
}

impl Durable {
    pub(super) fn start(
        connection: ScriptConnection,
        scripts: ScriptConnection,
        publishing: Publishing,
        wait: Wait,
        durability: Durability,
        listed: Listed,
        tasks: &Tasks,
    ) -> Self {
        let (calls, queued) = mpsc::unbounded_channel();
        let worker = DurableWorker::new(
            connection.clone(),
            scripts,
            publishing,
            wait,
            durability,
            listed,
        );
        tasks.spawn(worker.serve(queued));
        Self { connection, calls }
    }

    /// Runs the call and waits for replicas. An error says why there is no answer.
    pub(super) async fn run(
        &self,
        script: &'static Script,
        operations: Arc<[Operation]>,
    ) -> Result<Answered<Frame>, Arc<str>> {
        let closed = || Err("the connection was closed".into());
        // Waits here: in the queue, a call would stay until there is a connection, even if its caller has gone.
        if self.connection.ready().await.is_err() {
            return closed();
        }
        let (done, answer) = oneshot::channel();
        let _ = self.calls.send(Call {
            script,
            operations,
            queued: Instant::now(),
            frame: Frame::Null,
            done,
        });
        answer.await.unwrap_or_else(|_| closed())
    }
}
