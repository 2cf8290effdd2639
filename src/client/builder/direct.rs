//! A server without connections.

use std::sync::Arc;

use super::LockClientBuilder;
use crate::redis::{Target, direct::Server};

impl LockClientBuilder {
    /// Has the client call `server` itself, without connections.
    #[doc(hidden)]
    pub fn direct(self, server: Arc<dyn Server>) -> Self {
        self.named_by("direct", Ok(Target::direct(server)))
    }
}
