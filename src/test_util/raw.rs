//! A connection for other kinds of clients.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::Stream;

use super::network::Network;
use crate::{
    error::Error,
    redis::{
        BoxFuture,
        connection::{ConnectOptions, Connection, Frame, Opened, Pushed, Transport},
        endpoint::{Address, Endpoint},
        handshake::Handshake,
    },
};

/// The longest time to open it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that sends commands unchanged.
pub struct RawConnection {
    connection: Arc<dyn Connection>,
    /// Dropping it ends the connection.
    _ended: Mutex<BoxFuture<String>>,
}

impl RawConnection {
    pub(super) async fn open(network: &Network, address: &Address) -> Result<Self, Error> {
        let server = network.config(Endpoint::Tcp(address.clone()));
        let options = ConnectOptions {
            handshakes: &[Handshake::Hello],
            after_close: false,
            timeout: TIMEOUT,
            is_sentinel: false,
            messages: 1,
        };
        let opened = network.connect(&server, options).await;
        let Opened {
            connection, ended, ..
        } = opened.map_err(|error| Error::unavailable(error.details))?;
        Ok(Self {
            connection,
            _ended: Mutex::new(ended),
        })
    }

    /// Sends a command, and waits for the reply.
    ///
    /// # Errors
    ///
    /// The reason why there is no reply.
    pub async fn send(
        &self,
        name: &'static str,
        args: &[impl AsRef<[u8]>],
    ) -> Result<Frame, Arc<str>> {
        let args = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_ref()));
        self.connection.send(name, args.collect()).await
    }

    /// A stream of the messages that arrive from now on.
    pub fn messages(&self) -> impl Stream<Item = Pushed> + Send + Unpin + use<> {
        self.connection.messages()
    }
}

impl fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawConnection").finish_non_exhaustive()
    }
}
