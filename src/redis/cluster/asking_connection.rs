//! Connections to nodes that receive a moving slot.

use std::sync::{Arc, Mutex};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    hash::HashMap,
    redis::{
        endpoint::Address, script_connection::ScriptConnection,
        time_limits::ASKING_CONNECTION_KEPT_FOR,
    },
    sync::lock,
};

/// The most connections: a node may name any address.
const MOST: usize = 64;

/// A separate connection to a node, for calls after an `ASKING`: no other command may come between the two.
pub(super) struct AskingConnection {
    pub(super) connection: ScriptConnection,
    pub(super) op_lock: tokio::sync::Mutex<()>,
    used: Mutex<Instant>,
    closed: CancellationToken,
}

impl AskingConnection {
    /// `closed` ends the connection.
    pub(super) fn new(connection: ScriptConnection, closed: CancellationToken) -> Self {
        Self {
            connection,
            op_lock: tokio::sync::Mutex::default(),
            used: Mutex::new(Instant::now()),
            closed,
        }
    }

    pub(super) fn mark_used(&self) {
        *lock(&self.used) = Instant::now();
    }
}

impl Drop for AskingConnection {
    fn drop(&mut self) {
        self.closed.cancel();
    }
}

/// The connections by the address that their node announces.
#[derive(Default)]
pub(super) struct AskingConnections(Mutex<HashMap<Address, Arc<AskingConnection>>>);

impl AskingConnections {
    /// The connection to the node that announces `address`; `None` if there are too many.
    pub(super) fn get(
        &self,
        address: &Address,
        open: impl FnOnce() -> AskingConnection,
    ) -> Option<Arc<AskingConnection>> {
        let mut connections = lock(&self.0);
        if connections.len() >= MOST && !connections.contains_key(address) {
            return None;
        }
        let connection = connections
            .entry(address.clone())
            .or_insert_with(|| Arc::new(open()));
        Some(connection.clone())
    }

    pub(super) fn close_unused(&self) {
        lock(&self.0)
            .retain(|_, connection| lock(&connection.used).elapsed() < ASKING_CONNECTION_KEPT_FOR);
    }
}
