//! A connection for other kinds of clients.

use std::{fmt, sync::Mutex, time::Duration};

use bytes::Bytes;
use futures_util::Stream;
use redisson_lock::transport::{BoxFuture, Connection, Frame, Pushed, TransportError};
use tokio::time::timeout;

use super::{Address, line::Line, network::Network};

/// The longest time to open it.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that sends commands unchanged.
pub struct RawConnection {
    line: Line,
    /// Dropping it ends the connection.
    _ended: Mutex<BoxFuture<'static, TransportError>>,
}

impl RawConnection {
    pub(super) async fn open(network: &Network, address: &Address) -> Result<Self, TransportError> {
        let opening = async {
            let (line, ended) = network.dial(address).await?;
            line.ask("HELLO", vec!["3".into()]).await?;
            line.ask("CLIENT", vec!["INFO".into()]).await?;
            Ok(Self {
                line,
                _ended: Mutex::new(ended),
            })
        };
        let opened = timeout(TIMEOUT, opening).await;
        opened.unwrap_or_else(|_| Err(TransportError::new("the server did not answer")))
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
    ) -> Result<Frame, TransportError> {
        let args = args.iter().map(|arg| Bytes::copy_from_slice(arg.as_ref()));
        self.line.ask(name, args.collect()).await
    }

    /// A stream of the messages that arrive from now on.
    pub fn messages(&self) -> impl Stream<Item = Pushed> + Send + Unpin + use<> {
        self.line.messages()
    }
}

impl fmt::Debug for RawConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RawConnection").finish_non_exhaustive()
    }
}
