use std::future::{pending, ready};

use bytes::Bytes;
use futures_util::stream::{self, Stream};

use super::*;
use crate::redis::{
    Servers,
    connect_error::ConnectError,
    connection::{
        Answer as Answered, ConnectOptions, Connection, Frame, Opened, Pushed, Transport,
    },
    endpoint::Endpoint,
};

/// The port of the sentinel that alone knows the latest failover.
const FAR: u16 = 3;

/// Three sentinels. Connections to the far one take longer than the rest of a majority has to answer.
#[derive(Default)]
struct Sentinels {
    to_the_far: AtomicUsize,
}

impl Transport for Arc<Sentinels> {
    fn connect(
        &self,
        server: &ServerConfig,
        _: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>> {
        let Endpoint::Tcp((_, port)) = server.endpoint else {
            unreachable!("sentinels listen on ports")
        };
        let delay = match port {
            FAR => 2 * GRACE,
            _ => Duration::ZERO,
        };
        if port == FAR {
            self.to_the_far.fetch_add(1, Ordering::Relaxed);
        }
        Box::pin(async move {
            tokio::time::sleep(delay).await;
            Ok(Opened {
                connection: Arc::new(Sentinel(port)),
                ended: Box::pin(pending()),
                info: Frame::Null,
                greeting: Frame::Null,
            })
        })
    }
}

struct Sentinel(u16);

impl Connection for Sentinel {
    fn send(&self, _name: &'static str, args: Vec<Bytes>) -> Answered<'_> {
        let (epoch, master) = match self.0 {
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
            _ => Frame::Text(self.0.to_string().into()),
        };
        Box::pin(ready(Ok(answer)))
    }

    fn messages(&self) -> std::pin::Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        Box::pin(stream::pending())
    }

    fn quit(&self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(ready(()))
    }
}

fn nodes(sentinels: &Arc<Sentinels>) -> Arc<Nodes> {
    let server = ServerConfig {
        transport: Arc::new(sentinels.clone()),
        endpoint: Endpoint::unknown(),
        username: None,
        password: None,
        database: None,
        connection_name: None,
        servers: Servers::new(),
    };
    let addresses = (1..=FAR).map(|port| ("sentinel".to_owned(), port));
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
        tokio::time::sleep(LOOK_EVERY).await;
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
