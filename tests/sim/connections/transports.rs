//! Transports of a program: what a client makes of their answers, and which settings it refuses beside them.

use std::{
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use redisson_lock::{
    Config, Credentials, Error, LockClient, LockClientBuilder,
    transport::{BoxFuture, Connection, Frame, Link, Messages, Transport, TransportError},
};
use redisson_lock_test::{InMemoryRedis, simulation::RawConnection};
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::support::{NEVER, SHORT, SOON, waiter};

/// What a server answers to a command: a frame, or the end of the connection.
type Script = fn(&str) -> Option<Frame>;

/// A server that follows a script. It keeps the commands, each with the number of its connection.
#[derive(Clone)]
struct Scripted {
    script: Script,
    opened: Arc<Mutex<u32>>,
    sent: Arc<Mutex<Vec<(u32, &'static str)>>>,
}

struct Wire(u32, Scripted);

impl Connection for Wire {
    fn send(
        &self,
        name: &'static str,
        _: Vec<Bytes>,
    ) -> BoxFuture<'_, Result<Frame, TransportError>> {
        self.1.sent.lock().unwrap().push((self.0, name));
        let answer =
            (self.1.script)(name).ok_or_else(|| TransportError::new("the tunnel caved in"));
        Box::pin(async move { answer })
    }

    fn messages(&self) -> Messages {
        Box::pin(stream::pending())
    }
}

impl Transport for Scripted {
    fn connect(&self, host: &str, port: u16) -> BoxFuture<'static, Result<Link, TransportError>> {
        assert_eq!((host, port), ("far.test", 7000));
        let number = {
            let mut opened = self.opened.lock().unwrap();
            *opened += 1;
            *opened
        };
        let wire = Wire(number, self.clone());
        Box::pin(async move { Ok(Link::new(wire, pending())) })
    }
}

/// The error of a client of such a server, and the commands that it was sent.
async fn refused(script: Script) -> (Error, Vec<(u32, &'static str)>) {
    let server = Scripted {
        script,
        opened: Arc::default(),
        sent: Arc::default(),
    };
    let builder = LockClient::builder().url("redis://far.test:7000");
    let built = builder.transport(Arc::new(server.clone())).build().await;
    let sent = server.sent.lock().unwrap().clone();
    (built.expect_err("the server lets no client in"), sent)
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_hello_is_logged_in_to_on_another_connection() {
    let (error, sent) = refused(|command| {
        Some(Frame::Error(match command {
            "HELLO" => "ERR unknown command 'HELLO'".into(),
            _ => "NOAUTH Authentication required.".into(),
        }))
    })
    .await;
    assert!(matches!(error, Error::Config { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("far.test:7000 requires a password"),
        "{error}"
    );
    assert_eq!(sent, [(1, "HELLO"), (2, "PING")]);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_during_the_login_is_no_refusal_of_the_handshake() {
    let (error, sent) = refused(|_| None).await;
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
    assert_eq!(sent, [(1, "HELLO")]);
}

/// A tunnel to a server. It notices its end when it carries the next command.
struct Tunnel(InMemoryRedis);

struct Carried {
    raw: RawConnection,
    broken: Arc<Notify>,
}

impl Connection for Carried {
    fn send(
        &self,
        name: &'static str,
        args: Vec<Bytes>,
    ) -> BoxFuture<'_, Result<Frame, TransportError>> {
        Box::pin(async move {
            let answer = self.raw.send(name, &args).await;
            if answer.is_err() {
                self.broken.notify_one();
            }
            answer
        })
    }

    fn messages(&self) -> Messages {
        Box::pin(self.raw.messages())
    }
}

impl Transport for Tunnel {
    fn connect(&self, _: &str, _: u16) -> BoxFuture<'static, Result<Link, TransportError>> {
        let server = self.0.clone();
        Box::pin(async move {
            let raw = server.raw().await?;
            let broken = Arc::new(Notify::new());
            let ended = broken.clone();
            let ended = async move {
                ended.notified().await;
                TransportError::new("the tunnel caved in")
            };
            Ok(Link::new(Carried { raw, broken }, ended))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn clients_wait_for_each_other_and_reconnect_through_a_tunnel() {
    let server = InMemoryRedis::new();
    let connected = || {
        let builder = LockClient::builder().url("redis://far.test:7000");
        let config = Config::default().with_max_poll_interval(NEVER);
        builder.transport(Tunnel(server.clone())).config(config)
    };
    let (one, other) = (connected().await.unwrap(), connected().await.unwrap());
    let first = one.reentrant_lock("a").lock().await.unwrap();
    let waiting = waiter(&other);
    sleep(SHORT).await;
    assert!(!waiting.is_finished());
    let began = Instant::now();
    first.unlock().await.unwrap();
    let (entered, second) = waiting.await.unwrap();
    assert!(entered - began < SOON, "no message woke the waiter");
    server.disconnect();
    second.unlock().await.unwrap();
    assert_eq!(server.holders("a"), []);
}

/// A network in which nothing arrives.
struct Silent;

impl Transport for Silent {
    fn connect(&self, _: &str, _: u16) -> BoxFuture<'static, Result<Link, TransportError>> {
        Box::pin(pending())
    }
}

fn silent() -> LockClientBuilder {
    LockClient::builder().transport(Silent)
}

#[tokio::test(start_paused = true)]
async fn a_transport_has_the_time_limit_of_the_builder() {
    let began = Instant::now();
    let limit = Duration::from_millis(300);
    let built = silent()
        .url("redis://far.test")
        .connect_timeout(limit)
        .build()
        .await;
    assert!(matches!(built, Err(Error::Unavailable { .. })), "{built:?}");
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn what_sockets_alone_have_is_refused_beside_a_transport() {
    let provide = |_| async { Ok::<_, Error>(Credentials::new("app", "s3cret")) };
    let resolve = |_, _| async { Ok::<_, Error>(Vec::new()) };
    let named = || silent().url("redis://far.test");
    let refused: [(&str, LockClientBuilder); 4] = [
        (
            "credentials_provider",
            named().credentials_provider(provide),
        ),
        ("resolver", named().resolver(resolve)),
        ("TLS", named().ca_file("/etc/redis/ca.pem")),
        ("unix socket", silent().url("unix:///run/redis.sock")),
    ];
    for (setting, builder) in refused {
        match builder.build().await {
            Err(Error::Config { reason, .. }) => assert!(
                reason.contains("`transport`") && reason.contains(setting),
                "{setting}: {reason}"
            ),
            other => panic!("{setting}: {other:?}"),
        }
    }
}

#[cfg(feature = "rustls")]
#[tokio::test(start_paused = true)]
async fn servers_with_tls_are_refused_beside_a_transport() {
    let several: [LockClientBuilder; 3] = [
        silent().url("rediss://far.test"),
        silent().cluster(["rediss://far.test:7000"]),
        silent().sentinel("main", ["rediss://far.test:7000"]),
    ];
    for builder in several {
        let built = builder.build().await;
        assert!(
            matches!(&built, Err(Error::Config { reason, .. }) if reason.contains("`transport` is set for servers with TLS")),
            "{built:?}"
        );
    }
}
