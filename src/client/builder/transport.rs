//! A transport of the program.

use std::sync::Arc;

use super::LockClientBuilder;
use crate::{error::Error, redis::Target, transport::Transport};

impl LockClientBuilder {
    /// Reaches the servers by `transport`, instead of sockets: see [`transport`](crate::transport). The URL, or
    /// [`sentinel`](Self::sentinel), [`replicated`](Self::replicated) or [`cluster`](Self::cluster), still names them.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) fails with [`Error::Config`](crate::Error::Config) if TLS, a resolver, a unix socket or a provider of
    /// credentials is set too: these belong to sockets.
    ///
    /// # Redisson
    ///
    /// None; `Config.setNettyHook` sees the connections, and cannot replace them.
    pub fn transport(mut self, transport: impl Transport + 'static) -> Self {
        self.transport = Some(Arc::new(transport));
        self
    }
}

/// Has `target` reached by `transport`, unless one of the settings of sockets is set.
pub(super) fn reach(
    target: &mut Target,
    transport: Arc<dyn Transport>,
    of_sockets: [(&str, bool); 3],
) -> Result<(), Error> {
    match of_sockets.iter().find(|(_, is_set)| *is_set) {
        Some((setting, _)) => Err(Error::config(format!(
            "`transport` and {setting} are both set: a transport takes the place of sockets, so leave {setting} out"
        ))),
        None => target.reach_by(transport),
    }
}
