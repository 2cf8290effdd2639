use std::{
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream::{self, Stream};
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

use super::*;
use crate::{
    redis::{
        BoxFuture, CallError, Events,
        connect_error::ConnectError,
        endpoint::{Endpoint, OwnEnd},
        events::{self, MESSAGES},
        handshake::Handshake,
        opener::{Answer, ConnectOptions, Opened, Opener, ServerConfig},
        url,
    },
    transport::{Frame, TransportError},
};

/// How long the server takes to answer.
const ROUND_TRIP: Duration = Duration::from_millis(1);

/// A server that confirms each subscription and counts the checks of them.
#[derive(Clone, Default)]
struct FakeServer {
    checks: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    /// Whether it closes each connection after its first confirmation.
    closes: bool,
    confirmed: Arc<Notify>,
    /// The number of subscriptions in its reports.
    reported: Arc<AtomicUsize>,
    /// Whether it refuses to end a subscription.
    refuses: bool,
    /// Whether it serves no slot.
    is_down: Arc<AtomicBool>,
    /// The number of messages on each connection.
    messages: usize,
    /// The answer to subscriptions.
    refuses_subscriptions: Option<Refusing>,
    subscriptions: Arc<AtomicUsize>,
}

#[derive(Clone)]
enum Refusing {
    In(&'static str),
    ByTheEnd,
}

impl Opener for FakeServer {
    fn connect(
        &self,
        _: &ServerConfig,
        _: ConnectOptions,
    ) -> BoxFuture<Result<Opened, ConnectError>> {
        self.connections.fetch_add(1, Ordering::Relaxed);
        let (confirmed, closes) = (self.confirmed.clone(), self.closes);
        let opened = Opened {
            connection: Arc::new(self.clone()),
            ended: Box::pin(async move {
                confirmed.notified().await;
                if !closes {
                    std::future::pending::<()>().await;
                }
                sleep(ROUND_TRIP).await;
                "the server closed the connection".into()
            }),
            info: Frame::Text("sub=0".into()),
            greeting: Frame::Null,
            handshake: Handshake::Hello,
            own_end: OwnEnd::InProcess,
            host: None,
        };
        Box::pin(async move { Ok(opened) })
    }
}

impl Connection for FakeServer {
    fn send(&self, name: &'static str, mut args: Vec<Bytes>) -> Answer<'_> {
        Box::pin(async move {
            sleep(ROUND_TRIP).await;
            Ok(match name {
                "PING" => Frame::Text(args.pop().unwrap_or_default()),
                "CLIENT" => {
                    self.checks.fetch_add(1, Ordering::Relaxed);
                    let reported = self.reported.load(Ordering::Relaxed);
                    Frame::Text(format!("sub=0 ssub={reported}").into())
                }
                "SSUBSCRIBE" if self.is_down.load(Ordering::Relaxed) => {
                    Frame::Error("CLUSTERDOWN".into())
                }
                "SUBSCRIBE" | "SSUBSCRIBE" if self.refuses_subscriptions.is_some() => {
                    self.subscriptions.fetch_add(1, Ordering::Relaxed);
                    match self.refuses_subscriptions {
                        Some(Refusing::In(words)) => Frame::Error(words.into()),
                        _ => {
                            self.confirmed.notify_waiters();
                            return Err(TransportError::new("the server closed the connection"));
                        }
                    }
                }
                "SUNSUBSCRIBE" if self.refuses => Frame::Error("CLUSTERDOWN".into()),
                _ => {
                    self.confirmed.notify_waiters();
                    Frame::Null
                }
            })
        })
    }

    fn messages(&self) -> Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        let message = Pushed::message("channel".into(), "0".into());
        let messages = std::iter::repeat_n(message, self.messages);
        Box::pin(stream::iter(messages).chain(stream::pending()))
    }
}

struct Shard;

impl ShardMap for Shard {
    fn request_refresh(&self) {}
}

/// A running subscriber, its wants and its events. It ends with the runtime of the test.
fn start(server: &FakeServer, channels: Channels) -> (Wants, Events, CancellationToken) {
    let config = ServerConfig::new(Arc::new(server.clone()), Endpoint::unknown());
    let (events, received) = events::channel();
    let closed = CancellationToken::new();
    let subscriber = Subscriber {
        connector: Connector::new(config, 1),
        channels,
        events,
        closed: closed.clone(),
    };
    let (wants, wanted) = Wants::new();
    tokio::spawn(subscriber.serve(None, wanted));
    (wants, received, closed)
}

/// Otherwise every contended wait of an outage leaves its requests in memory.
#[tokio::test]
async fn ended_wait_leaves_nothing_while_there_is_no_connection() {
    let server = url::parse("redis://127.0.0.1:1").unwrap().server;
    let (events, _) = events::channel();
    let closed = CancellationToken::new();
    let subscriber = Subscriber {
        connector: Connector::new(server, 1),
        channels: Channels::Everywhere,
        events,
        closed: closed.clone(),
    };
    let (wants, wanted) = Wants::new();
    let serving = tokio::spawn(subscriber.serve(None, wanted));
    let subscribed = wants.subscribe("channel".into());
    wants.unsubscribe("channel".into());
    let forgotten = timeout(Duration::from_secs(5), subscribed).await;
    assert!(
        forgotten.is_ok(),
        "the request stays until there is a connection"
    );
    closed.cancel();
    serving.await.unwrap();
}

/// A change is always waiting when the one before is done.
#[tokio::test(start_paused = true)]
async fn steady_changes_do_not_stop_the_check_for_lost_subscriptions() {
    let server = FakeServer {
        reported: Arc::new(1000.into()),
        ..FakeServer::default()
    };
    let (wants, _received, closed) = start(&server, Channels::OfShard(Arc::new(Shard)));
    wants.subscribe("kept".into()).await.unwrap();
    let changing = async {
        for number in 0_u64.. {
            drop(wants.subscribe(format!("channel-{number}").into()));
            wants.unsubscribe(format!("channel-{}", number.wrapping_sub(1)).into());
            sleep(ROUND_TRIP / 2).await;
        }
    };
    let _ = timeout(Duration::from_secs(5), changing).await;
    let checks = server.checks.load(Ordering::Relaxed);
    assert!((8..=10).contains(&checks), "{checks} checks in 5 s");
    closed.cancel();
}

#[tokio::test(start_paused = true)]
async fn server_that_closes_after_each_confirmation_is_reconnected_to_with_pauses() {
    let server = FakeServer {
        closes: true,
        ..FakeServer::default()
    };
    let (wants, _received, closed) = start(&server, Channels::Everywhere);
    wants.subscribe("channel".into()).await.unwrap();
    sleep(Duration::from_secs(3)).await;
    closed.cancel();
    let connections = server.connections.load(Ordering::Relaxed);
    assert!(
        (20..=40).contains(&connections),
        "{connections} connections"
    );
}

/// What the server still counts hides the loss of another channel otherwise.
#[tokio::test(start_paused = true)]
async fn lost_subscription_is_noticed_beside_one_that_the_server_has_refused_to_end() {
    let server = FakeServer {
        reported: Arc::new(2.into()),
        refuses: true,
        ..FakeServer::default()
    };
    let (wants, _received, closed) = start(&server, Channels::OfShard(Arc::new(Shard)));
    wants.subscribe("kept".into()).await.unwrap();
    wants.subscribe("refused".into()).await.unwrap();
    wants.unsubscribe("refused".into());
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.connections.load(Ordering::Relaxed), 1);
    server.reported.store(1, Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(server.connections.load(Ordering::Relaxed), 2);
    closed.cancel();
}

/// A second task subscribes before the next look.
#[tokio::test(start_paused = true)]
async fn channel_that_the_cluster_serves_again_is_reported_as_a_loss() {
    let server = FakeServer {
        is_down: Arc::new(true.into()),
        ..FakeServer::default()
    };
    let (wants, mut received, closed) = start(&server, Channels::OfShard(Arc::new(Shard)));
    let _first = wants.subscribe("channel".into());
    let of_connection = received.recv().await;
    assert_eq!(of_connection, Some(Event::MessagesMissed));
    server.is_down.store(false, Ordering::Relaxed);
    wants.subscribe("channel".into()).await.unwrap();
    let of_channel = timeout(Duration::from_millis(100), received.recv()).await;
    assert_eq!(of_channel, Ok(Some(Event::MessagesMissed)));
    closed.cancel();
}

/// The dispatcher is behind: it reads nothing until all messages have arrived.
#[tokio::test(start_paused = true)]
async fn messages_for_a_slow_dispatcher_are_bounded_and_their_loss_is_reported() {
    let server = FakeServer {
        messages: 10 * MESSAGES,
        ..FakeServer::default()
    };
    let (wants, mut received, closed) = start(&server, Channels::Everywhere);
    wants.subscribe("channel".into()).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    closed.cancel();
    drop(wants);
    let (mut messages, mut missed) = (0, 0);
    while let Some(event) = received.recv().await {
        match event {
            Event::Message { .. } => messages += 1,
            Event::MessagesMissed => missed += 1,
            event => panic!("{event:?}"),
        }
    }
    assert_eq!((messages, missed), (MESSAGES, 1));
}

/// What servers, proxies and providers say that have no subscriptions.
const WORDS: [&str; 7] = [
    "ERR unknown command 'SUBSCRIBE'",
    "ERR unsupported command 'SUBSCRIBE'",
    "ERR command 'subscribe' is not allowed",
    "NOPERM this user has no permissions to run the 'subscribe' command",
    "ERR max pubsub limit exceeded",
    "Can't execute 'subscribe': this proxy relays no messages",
    "no code",
];

/// Each wait asks again, by commands on the connection that there is.
#[tokio::test(start_paused = true)]
async fn subscription_that_is_refused_in_any_words_costs_no_connection() {
    for words in WORDS {
        for is_of_shard in [false, true] {
            let server = FakeServer {
                refuses_subscriptions: Some(Refusing::In(words)),
                ..FakeServer::default()
            };
            let channels = match is_of_shard {
                true => Channels::OfShard(Arc::new(Shard)),
                false => Channels::Everywhere,
            };
            let (wants, _received, closed) = start(&server, channels);
            for _ in 0..3 {
                let asked = wants.subscribe("channel".into());
                let refused = timeout(Duration::from_secs(5), asked).await;
                let is_told = matches!(&refused, Ok(Err(CallError::Refused(refusal))) if refusal.message() == words);
                assert!(is_told, "{words}: {refused:?}");
                sleep(Duration::from_secs(60)).await;
            }
            assert_eq!(server.connections.load(Ordering::Relaxed), 1, "{words}");
            assert!(server.subscriptions.load(Ordering::Relaxed) <= 6, "{words}");
            closed.cancel();
        }
    }
}

/// Its waiters poll meanwhile.
#[tokio::test(start_paused = true)]
async fn server_that_closes_on_a_subscription_is_asked_after_pauses_that_grow_to_minutes() {
    let server = FakeServer {
        refuses_subscriptions: Some(Refusing::ByTheEnd),
        closes: true,
        ..FakeServer::default()
    };
    let (wants, _received, closed) = start(&server, Channels::Everywhere);
    let _pending = wants.subscribe("channel".into());
    let connections = || server.connections.load(Ordering::Relaxed);
    sleep(Duration::from_secs(60)).await;
    assert!((6..=12).contains(&connections()), "{}", connections());
    sleep(Duration::from_secs(9 * 60)).await;
    let in_ten_minutes = connections();
    assert!(in_ten_minutes <= 16, "{in_ten_minutes}");
    sleep(Duration::from_secs(60 * 60)).await;
    let more = connections() - in_ten_minutes;
    assert!((11..=13).contains(&more), "{more} in an hour");
    closed.cancel();
}
