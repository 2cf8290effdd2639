use std::{
    future::{pending, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{self, Stream};

use super::*;
use crate::{
    redis::{
        connect_error::{ConnectError, ConnectErrorKind},
        endpoint::{Endpoint, OwnEnd},
        handshake::Handshake,
        opener::{Answer as Answered, ConnectOptions, Opened, Opener},
    },
    transport::{Connection, Frame, Pushed, TransportError},
};

/// The port of the sentinel that alone knows the latest failover.
const FAR: u16 = 3;

/// The host of all sentinels, and that of a sentinel that has moved.
const HOST: &str = "sentinel";
const MOVED: &str = "moved";

/// Three sentinels. Connections to the far one take longer than the rest of a majority has to answer.
#[derive(Default)]
struct Sentinels {
    to_the_far: AtomicUsize,
    /// The ports of the sentinels up to this one have moved to another host.
    moved: AtomicUsize,
}

impl Sentinels {
    /// The host of the sentinel at `port`.
    fn host(&self, port: u16) -> &'static str {
        match usize::from(port) > self.moved.load(Ordering::Relaxed) {
            true => HOST,
            false => MOVED,
        }
    }
}

impl Opener for Arc<Sentinels> {
    fn connect(
        &self,
        server: &ServerConfig,
        _: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>> {
        let Endpoint::Tcp((host, port)) = server.endpoint.clone() else {
            unreachable!("sentinels listen on ports")
        };
        if self.host(port) != host {
            let details = "connection refused".into();
            let kind = ConnectErrorKind::Network;
            return Box::pin(ready(Err(ConnectError { kind, details })));
        }
        let sentinels = self.clone();
        let delay = match port {
            FAR => 2 * LATE_SENTINEL_WAIT,
            _ => Duration::ZERO,
        };
        if port == FAR {
            self.to_the_far.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            Ok(Opened {
                connection: Arc::new(Sentinel {
                    sentinels,
                    host,
                    port,
                }),
                ended: Box::pin(pending()),
                info: Frame::Null,
                greeting: Frame::Null,
                handshake: Handshake::Hello,
                own_end: OwnEnd::InProcess,
                host: None,
            })
        })
    }
}

struct Sentinel {
    sentinels: Arc<Sentinels>,
    host: String,
    port: u16,
}

impl Connection for Sentinel {
    fn send(&self, _name: &'static str, args: Vec<Bytes>) -> Answered<'_> {
        if self.sentinels.host(self.port) != self.host {
            return Box::pin(ready(Err(TransportError::new("the connection ended"))));
        }
        let (epoch, master) = match self.port {
            _ if self.host == MOVED => ("3", "latest"),
            FAR => ("2", "new"),
            _ => ("1", "old"),
        };
        let list = |words: &[&str]| {
            let text = |word: &&str| Frame::Text(word.as_bytes().to_vec().into());
            Frame::List(words.iter().map(text).collect())
        };
        let answer = match &*args[0] {
            b"MASTER" => list(&["config-epoch", epoch, "num-other-sentinels", "2"]),
            b"GET-MASTER-ADDR-BY-NAME" => list(&[master, "6379"]),
            b"SENTINELS" => {
                let others = (1..=FAR).filter(|port| *port != self.port);
                let described = others.map(|port| {
                    let (host, port) = (self.sentinels.host(port), port.to_string());
                    list(&["runid", &port, "ip", host, "port", &port])
                });
                Frame::List(described.collect())
            }
            _ => Frame::Text(self.port.to_string().into()),
        };
        Box::pin(ready(Ok(answer)))
    }

    fn messages(&self) -> std::pin::Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        Box::pin(stream::pending())
    }
}

fn nodes(sentinels: &Arc<Sentinels>) -> Arc<Nodes> {
    let server = ServerConfig::new(Arc::new(sentinels.clone()), Endpoint::unknown());
    let addresses = (1..=FAR).map(|port| (HOST.to_owned(), port));
    let question = Question::MasterOf("service".into());
    Arc::new(Nodes::new(question, server, addresses.collect(), None))
}

/// A dropped question counted as silence, so each question opened another connection and dropped it.
#[tokio::test(start_paused = true)]
async fn a_sentinel_that_connects_after_the_majority_is_heard_at_the_next_question() {
    let sentinels = Arc::default();
    let nodes = nodes(&sentinels);
    for master in ["old", "new", "new"] {
        let (located, _) = nodes.locate().await;
        assert_eq!(located.unwrap().0, master);
        tokio::time::sleep(MASTER_ASKED_EVERY).await;
    }
    assert_eq!(sentinels.to_the_far.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn connections_to_sentinels_that_are_still_opening_end_with_the_client() {
    let sentinels = Arc::default();
    let nodes = nodes(&sentinels);
    let weak: Vec<_> = nodes.known().iter().map(Arc::downgrade).collect();
    nodes.locate().await.0.unwrap();
    let closed = CancellationToken::new();
    closed.cancel();
    Locator::Lookup(nodes).watch(closed).await;
    tokio::task::yield_now().await;
    assert!(weak.iter().all(|node| node.upgrade().is_none()));
}

/// Sentinels in containers keep their ids and change their addresses, one after the other.
#[tokio::test(start_paused = true)]
async fn sentinels_that_have_all_moved_are_found_at_their_new_addresses() {
    let sentinels: Arc<Sentinels> = Arc::default();
    let nodes = nodes(&sentinels);
    let mut master = nodes.locate().await.0.unwrap().0;
    for moved in 1..=usize::from(FAR) {
        sentinels.moved.store(moved, Ordering::Relaxed);
        for _ in 0..40 {
            tokio::time::sleep(MASTER_ASKED_EVERY).await;
            master = nodes.locate().await.0.unwrap().0;
        }
    }
    assert_eq!(master, "latest");
    let known: HashSet<_> = nodes
        .known()
        .iter()
        .map(|node| node.address.clone())
        .collect();
    let expected = (1..=FAR).flat_map(|port| [HOST, MOVED].map(|host| (host.to_owned(), port)));
    assert_eq!(known, expected.collect(), "the configuration's are kept");
}

#[tokio::test(start_paused = true)]
async fn mention_moves_a_sentinel_only_while_its_known_address_is_silent() {
    let nodes = nodes(&Arc::default());
    let mention = |host: &str| {
        let (id, address) = ("id".into(), (host.into(), 26379));
        nodes.learn(vec![PeerSentinel { id, address }]);
        let known = nodes.known();
        let learned = known.iter().map(|node| node.address.0.clone());
        learned.filter(|host| host != HOST).collect::<Vec<_>>()
    };
    assert_eq!(mention("first"), ["first"]);
    tokio::time::advance(Duration::from_secs(4)).await;
    assert_eq!(mention("second"), ["first"]);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(mention("second"), ["second"]);
    assert_eq!(mention("first"), ["second"]);
}
