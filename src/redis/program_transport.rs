//! Connections by a transport of the program.

use std::{error::Error, future::ready, iter::successors, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::timeout;

use super::{
    BoxFuture,
    connect_error::{ConnectError, ConnectErrorKind},
    endpoint::{Address, Endpoint, OwnEnd},
    handshake::Handshake,
    log_in::{Failed, Greeted, RefusedHandshakes, shake_hands},
    opener::{
        Answer, ConnectOptions, LONGEST_PAYLOAD, Opened, Opener, ServerConfig, SocketOptions,
    },
};
use crate::{
    server_text,
    transport::{self, Connection, Frame, Link, Messages, Pushed, TransportError},
};

/// An error and its sources that are shown. An error may be its own source.
const MOST_SOURCES: usize = 8;

/// A connection of the program, held to the bounds of a socket: what it answers may come from any peer.
struct Bounded(Arc<dyn Connection>);

impl Connection for Bounded {
    fn send(&self, name: &'static str, args: Vec<Bytes>) -> Answer<'_> {
        let answer = self.0.send(name, args);
        Box::pin(async move {
            let mut frame = answer
                .await
                .map_err(|error| TransportError::new(shown(&error)))?;
            bound(&mut frame);
            Ok(frame)
        })
    }

    fn messages(&self) -> Messages {
        let is_short = |pushed: &Pushed| match pushed {
            Pushed::Message { payload, .. } => payload.len() <= LONGEST_PAYLOAD,
            Pushed::Missed => true,
        };
        Box::pin(
            self.0
                .messages()
                .filter(move |pushed| ready(is_short(pushed))),
        )
    }
}

/// Bounds the texts of errors.
fn bound(frame: &mut Frame) {
    match frame {
        Frame::Error(message) => *message = server_text::shown(message),
        Frame::List(frames) => frames.iter_mut().for_each(bound),
        Frame::Map(pairs) => pairs.iter_mut().for_each(|(name, value)| {
            bound(name);
            bound(value);
        }),
        Frame::Null | Frame::Number(_) | Frame::Status(_) | Frame::Text(_) => {}
    }
}

/// The messages of an error and of its sources.
fn shown(error: &TransportError) -> String {
    let first: &(dyn Error + 'static) = error;
    let errors = successors(Some(first), |error| (*error).source()).take(MOST_SOURCES);
    let mut messages: Vec<String> = errors.map(ToString::to_string).collect();
    // Many errors repeat the message of their source.
    messages.dedup();
    server_text::shown(&messages.join(": "))
}

/// A transport of the program.
#[derive(Clone)]
pub(super) struct ProgramTransport {
    transport: Arc<dyn transport::Transport>,
    /// The longest time that a connection may take to open, if the client sets it.
    wait: Option<Duration>,
}

impl ProgramTransport {
    pub(super) fn new(transport: Arc<dyn transport::Transport>) -> Self {
        Self {
            transport,
            wait: None,
        }
    }

    /// Opens a connection by the first handshake that the server accepts.
    async fn open(
        &self,
        server: &ServerConfig,
        options: ConnectOptions,
    ) -> Result<Opened, ConnectError> {
        let Endpoint::Tcp(address) = &server.endpoint else {
            return Err(ConnectError {
                kind: ConnectErrorKind::Config,
                details: "a transport reaches hosts and ports, not sockets of this machine".into(),
            });
        };
        let mut refused = RefusedHandshakes::default();
        for handshake in options.handshakes {
            match self.open_by(*handshake, address, server).await {
                Ok(opened) => return Ok(opened),
                Err(failed) => refused.add(failed, options, &server.endpoint)?,
            }
        }
        Err(refused.into_error())
    }

    /// Opens a connection and logs in. Both may fail for the network, of which only the transport knows: a connection
    /// that ends meanwhile says nothing about the handshake.
    async fn open_by(
        &self,
        handshake: Handshake,
        (host, port): &Address,
        server: &ServerConfig,
    ) -> Result<Opened, Failed> {
        let of_the_network = |details| ConnectError {
            kind: ConnectErrorKind::Network,
            details,
        };
        let linked = self.transport.connect(host, *port).await;
        let Link { connection, ended } = linked.map_err(|error| of_the_network(shown(&error)))?;
        let connection = Arc::new(Bounded(connection));
        let mut ended: BoxFuture<String> = Box::pin(async move { shown(&ended.await) });
        let greeted = tokio::select! {
            biased;
            greeted = shake_hands(&*connection, server, handshake) => greeted,
            reason = &mut ended => return Err(of_the_network(reason).into()),
        };
        let Greeted { greeting, info } = greeted.map_err(|failed| match failed.error.kind {
            ConnectErrorKind::Closed => of_the_network(failed.error.details).into(),
            _ => failed,
        })?;
        let own_end = match self.transport.is_in_process() {
            true => OwnEnd::InProcess,
            false => OwnEnd::Unknown,
        };
        Ok(Opened {
            connection,
            ended,
            info,
            greeting,
            handshake,
            own_end,
            host: None,
        })
    }
}

impl Opener for ProgramTransport {
    fn connect(
        &self,
        server: &ServerConfig,
        options: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>> {
        let (transport, mut server) = (self.clone(), server.clone());
        if self.transport.is_in_process() {
            // A name tells processes apart by the id of this process, with which a simulation would differ each time.
            server.connection_name = None;
        }
        let wait = self
            .wait
            .map_or(options.timeout, |wait| wait.min(options.timeout));
        Box::pin(async move {
            let opened = timeout(wait, transport.open(&server, options)).await;
            opened.unwrap_or_else(|_| Err(ConnectError::timeout()))
        })
    }

    fn on(&self, options: &SocketOptions) -> Option<Arc<dyn Opener>> {
        Some(Arc::new(Self {
            wait: options.wait.or(self.wait),
            ..self.clone()
        }))
    }

    fn is_reached_from_anywhere(&self) -> bool {
        !self.transport.is_in_process()
    }

    fn may_refuse_messages(&self) -> bool {
        !self.transport.is_in_process()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::stream;

    use super::*;

    /// A peer without bounds: each text is too long, and has a line break.
    struct Hostile;

    fn long() -> String {
        format!("line\n{}", "x".repeat(1 << 20))
    }

    fn failed() -> TransportError {
        TransportError::new("the tunnel is shut").with_source(io::Error::other(long()))
    }

    impl Connection for Hostile {
        fn send(&self, name: &'static str, _: Vec<Bytes>) -> Answer<'_> {
            let refusal = || Frame::Error(long());
            Box::pin(ready(match name {
                "LOST" => Err(failed()),
                "LIST" => Ok(Frame::List(vec![
                    refusal(),
                    Frame::Map(vec![(refusal(), refusal())]),
                ])),
                _ => Ok(refusal()),
            }))
        }

        fn messages(&self) -> Messages {
            let message = |length| Pushed::message("channel".into(), vec![b'0'; length].into());
            let messages = [
                message(LONGEST_PAYLOAD + 1),
                Pushed::Missed,
                message(LONGEST_PAYLOAD),
            ];
            Box::pin(stream::iter(messages))
        }
    }

    fn is_bounded(text: &str) -> bool {
        text.len() < 400 && text.starts_with("line\\n")
    }

    #[tokio::test]
    async fn texts_of_a_transport_are_bounded() {
        let connection = Bounded(Arc::new(Hostile));
        let lost = connection.send("LOST", Vec::new()).await.unwrap_err();
        let shown = lost.to_string();
        let source = shown
            .strip_prefix("the tunnel is shut: ")
            .expect("the message");
        assert!(is_bounded(source), "{shown}");

        let refused = connection.send("PING", Vec::new()).await.unwrap();
        assert!(
            matches!(&refused, Frame::Error(text) if is_bounded(text)),
            "{refused:?}"
        );
        let Frame::List(mut frames) = connection.send("LIST", Vec::new()).await.unwrap() else {
            panic!("no list");
        };
        if let Some(Frame::Map(pairs)) = frames.pop() {
            frames.extend(pairs.into_iter().flat_map(|(name, value)| [name, value]));
        }
        assert_eq!(frames.len(), 3);
        for frame in &frames {
            assert!(
                matches!(frame, Frame::Error(text) if is_bounded(text)),
                "{frame:?}"
            );
        }
    }

    /// An error that is its own source.
    #[derive(Debug)]
    struct Again;

    impl std::fmt::Display for Again {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("again")
        }
    }

    impl Error for Again {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&Again)
        }
    }

    #[test]
    fn sources_without_end_are_cut_and_none_is_repeated() {
        let error = TransportError::new("the tunnel is shut").with_source(Again);
        assert_eq!(shown(&error), "the tunnel is shut: again");
    }

    /// A transport whose errors quote the command, or that connects to no server.
    struct Quoting {
        connects: bool,
    }

    impl Connection for Quoting {
        fn send(&self, name: &'static str, args: Vec<Bytes>) -> Answer<'_> {
            let error = TransportError::new("cut").with_source(format!("{name} {args:?}"));
            Box::pin(ready(Err(error)))
        }

        fn messages(&self) -> Messages {
            Box::pin(stream::pending())
        }
    }

    impl transport::Transport for Quoting {
        fn connect(&self, _: &str, _: u16) -> BoxFuture<Result<Link, TransportError>> {
            let link = Link::new(Quoting { connects: true }, std::future::pending());
            Box::pin(ready(match self.connects {
                true => Ok(link),
                false => Err(failed()),
            }))
        }
    }

    async fn error_of(transport: Quoting) -> String {
        let builder = crate::LockClient::builder().url("redis://user:s3cret@host");
        let built = builder.transport(transport).build().await;
        let error = built.expect_err("no server answers");
        let cause = error.source().map(ToString::to_string);
        format!("{error}: {}", cause.unwrap_or_default())
    }

    #[tokio::test]
    async fn errors_of_connecting_are_bounded_and_show_no_password() {
        let text = error_of(Quoting { connects: true }).await;
        assert!(text.contains("cut: ") && !text.contains("s3cret"), "{text}");
        let text = error_of(Quoting { connects: false }).await;
        assert!(
            text.contains("the tunnel is shut: line\\n") && text.len() < 800,
            "{text}"
        );
    }

    #[tokio::test]
    async fn long_messages_of_a_transport_are_not_passed_on() {
        let messages = Bounded(Arc::new(Hostile)).messages();
        let passed: Vec<Pushed> = messages.collect().await;
        let [Pushed::Missed, Pushed::Message { payload, .. }] = &passed[..] else {
            panic!("{passed:?}");
        };
        assert_eq!(payload.len(), LONGEST_PAYLOAD);
    }
}
