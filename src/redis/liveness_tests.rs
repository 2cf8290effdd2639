//! A silent connection beside a second one that answers, under a paused clock.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures_util::stream::{self, Stream};

use super::*;
use crate::{
    endpoint_kind::EndpointKind,
    redis::{
        BoxFuture,
        batch_scope::EndpointScope,
        connect_error::ConnectError,
        connector::{Connector, Locate},
        endpoint::{Address, Endpoint, OwnEnd},
        handshake::Handshake,
        one_server::Evidence,
        opener::{Answer, ConnectOptions, Opened, Opener, ServerConfig},
        url,
    },
    transport::{Connection, Frame, Pushed},
};

const SECOND: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_secs(3_600);
const KILLED: Frame = Frame::Number(1);

/// A server that answers new connections.
#[derive(Clone)]
struct Peer {
    /// The answer to `CLIENT KILL`.
    kill: Frame,
    /// When it begins to answer.
    from: Instant,
    reached: Arc<Mutex<Vec<Endpoint>>>,
}

impl Peer {
    fn new(kill: Frame, busy: Duration) -> Self {
        let (from, reached) = (Instant::now() + busy, Arc::default());
        Self {
            kill,
            from,
            reached,
        }
    }

    fn connector(&self) -> Connector {
        let mut server = url::parse("redis://127.0.0.1:1").unwrap().server;
        server.opener = Arc::new(self.clone());
        Connector::new(server, 1)
    }

    fn connections(&self) -> usize {
        self.reached.lock().unwrap().len()
    }

    /// Settles whether a connection is dead that answers after `silence`. Returns the time that it took as well.
    async fn settle(
        &self,
        liveness: &mut LivenessCheck,
        silence: Duration,
    ) -> (Result<(), End>, Duration) {
        let (began, connector) = (Instant::now(), self.connector());
        let answered = Box::pin(async {
            sleep(silence).await;
            Ok::<_, String>(())
        });
        let connecting = async {
            let endpoint = connector.endpoint();
            connector.connect_beside(&endpoint).await
        };
        let settled = liveness.settle(answered, Some(&old()), connecting).await;
        (settled, began.elapsed())
    }
}

impl Opener for Peer {
    fn connect(
        &self,
        server: &ServerConfig,
        _: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>> {
        self.reached.lock().unwrap().push(server.endpoint.clone());
        let opened = Opened {
            connection: Arc::new(self.clone()),
            ended: Box::pin(std::future::pending()),
            info: Frame::Null,
            greeting: Frame::Null,
            handshake: Handshake::Hello,
            own_end: OwnEnd::InProcess,
            host: None,
        };
        Box::pin(async move { Ok(opened) })
    }
}

impl Connection for Peer {
    fn send(&self, name: &'static str, mut args: Vec<Bytes>) -> Answer<'_> {
        Box::pin(async move {
            tokio::time::sleep_until(self.from).await;
            Ok(match name {
                "PING" => Frame::Text(args.pop().unwrap_or_default()),
                "CLIENT" => self.kill.clone(),
                _ => KILLED,
            })
        })
    }

    fn messages(&self) -> Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        Box::pin(stream::empty())
    }
}

fn old() -> Identity {
    let (id, address) = ("7".into(), "10.0.0.7:4711".into());
    Identity { id, address }
}

#[test]
fn only_connections_straight_to_one_server_are_provable() {
    let known = ConnectionIdentity::Known(old());
    assert!(provable(&known, None).is_some(), "a node of a cluster");
    assert!(provable(&ConnectionIdentity::Never, None).is_none());
    for (kind, unproven, proven) in [
        (EndpointKind::Auto, false, true),
        (EndpointKind::Server, true, true),
        (EndpointKind::Proxy, false, false),
    ] {
        let evidence = Evidence::new(OwnEnd::InProcess, &Frame::Null);
        let scope = ConnectionScope::new(EndpointScope::new(kind), evidence);
        let is_provable = || provable(&known, Some(&scope)).is_some();
        assert_eq!(is_provable(), unproven, "{kind:?}");
        scope.judge("id=7 addr=?");
        assert_eq!(is_provable(), proven, "{kind:?}");
    }
}

/// A proxy, or a user without the right: the server may be slow, and may still execute the calls of the old connection.
#[tokio::test(start_paused = true)]
async fn connection_that_the_server_refuses_to_kill_is_not_replaced() {
    let refusal = Frame::Error("NOPERM this user has no permissions".into());
    for (kill, is_replaced) in [(KILLED, true), (Frame::Number(0), true), (refusal, false)] {
        let peer = Peer::new(kill.clone(), Duration::ZERO);
        let mut liveness = LivenessCheck::new(PING_WAIT);
        let (settled, _) = peer.settle(&mut liveness, 2 * SECOND).await;
        let end = settled.err();
        let successor = end.and_then(|end| end.successor);
        assert_eq!(successor.is_some(), is_replaced, "{kill:?}");
        assert_eq!(peer.connections(), 1, "{kill:?}");
    }
}

/// A busy server begins a `WAIT` that it has read long after the client has sent it.
#[tokio::test(start_paused = true)]
async fn server_that_waits_for_replicas_after_it_was_busy_keeps_its_connection() {
    let wait = SECOND;
    for busy in [900, 500, 300, 0].map(Duration::from_millis) {
        let settle = async |silence| {
            let mut liveness = LivenessCheck::new(PING_WAIT + wait);
            let peer = Peer::new(KILLED, busy);
            peer.settle(&mut liveness, silence).await
        };
        let (settled, _) = settle(busy + wait + WAIT_ENDS_LATE / 2).await;
        assert!(settled.is_ok(), "busy for {busy:?}");
        let (settled, lasted) = settle(NEVER).await;
        assert!(settled.is_err(), "busy for {busy:?}");
        assert!(lasted < busy + 2 * wait, "{lasted:?}, busy for {busy:?}");
    }
}

/// A server that is always slow would get a second connection at each call otherwise.
#[tokio::test(start_paused = true)]
async fn one_slow_answer_doubles_patience_at_most() {
    let peer = Peer::new(KILLED, NEVER);
    let mut liveness = LivenessCheck::new(PING_WAIT);
    let slow = Duration::from_millis(1_900);
    let (settled, _) = peer.settle(&mut liveness, slow).await;
    assert!(settled.is_ok());
    let answering = Peer::new(KILLED, Duration::ZERO);
    let (settled, lasted) = answering.settle(&mut liveness, NEVER).await;
    assert!(settled.is_err());
    assert!(
        lasted <= 2 * SECOND_CONNECTION_AFTER + SECOND_CONNECTION_SPREAD + REPRIEVE[0],
        "{lasted:?}"
    );
    for _ in 0..3 {
        let (settled, _) = peer.settle(&mut liveness, slow).await;
        assert!(settled.is_ok());
    }
    let before = peer.connections();
    let (settled, _) = peer.settle(&mut liveness, slow).await;
    assert!(settled.is_ok());
    assert_eq!(peer.connections(), before);
}

/// Leads to another node each time, as for channels of a cluster.
#[derive(Default)]
struct AnyNode(Mutex<u16>);

impl Locate for AnyNode {
    fn locate(&self) -> BoxFuture<Result<Option<Address>, Error>> {
        let mut port = self.0.lock().unwrap();
        *port += 1;
        Box::pin(std::future::ready(Ok(Some(("node".into(), *port)))))
    }

    fn moved(&self, _address: Option<&Address>) -> BoxFuture<String> {
        Box::pin(std::future::pending())
    }

    fn is_asked(&self) -> bool {
        false
    }
}

#[tokio::test(start_paused = true)]
async fn second_connection_leads_to_the_server_of_the_first() {
    let peer = Peer::new(KILLED, Duration::ZERO);
    let connector = peer.connector().to(Arc::new(AnyNode::default()));
    let _first = connector.connect().await.unwrap();
    let endpoint = connector.endpoint();
    let _second = connector.connect_beside(&endpoint).await.unwrap();
    let reached = peer.reached.lock().unwrap().clone();
    assert_eq!(reached, [endpoint.clone(), endpoint]);
}
