use std::{future::ready, pin::Pin};

use bytes::Bytes;
use futures_util::stream::{self, Stream};

use super::*;
use crate::{
    redis::{opener::Answer, socket::Sockets},
    transport::{Pushed, TransportError},
};

/// A connection that ends in the midst of its first command.
struct Ending;

impl Connection for Ending {
    fn send(&self, _name: &'static str, _args: Vec<Bytes>) -> Answer<'_> {
        Box::pin(async {
            tokio::task::yield_now().await;
            Err(TransportError::new("the connection ended"))
        })
    }

    fn messages(&self) -> Pin<Box<dyn Stream<Item = Pushed> + Send>> {
        Box::pin(stream::empty())
    }
}

/// The end is known before the command fails.
#[tokio::test]
async fn next_handshake_depends_on_the_command_that_a_connection_ended_at() {
    let endpoint = Endpoint::Unix("/run/redis.sock".into());
    let mut server = ServerConfig::new(Sockets::plain(), endpoint);
    let mut shake_hands = async |handshake, password: Option<&str>, reason: &str| {
        server.log_in_as(None, password.map(str::to_owned));
        let ended = ready(reason.to_owned());
        let greeted = shake_hands_until(ended, &Ending, &server, handshake).await;
        let failed = greeted.err().unwrap();
        assert_eq!(failed.error.details, reason);
        failed.try_next
    };
    let closed = "the server closed the connection";
    assert!(shake_hands(Handshake::Hello, None, closed).await);
    assert!(shake_hands(Handshake::Hello, Some("s3cret"), closed).await);
    assert!(shake_hands(Handshake::Classic, None, closed).await);
    // The next handshake would send the same command.
    assert!(!shake_hands(Handshake::Classic, Some("s3cret"), closed).await);
    assert!(!shake_hands(Handshake::Bare, None, closed).await);
    // Neither would another handshake help.
    let too_many = "ERR max number of clients reached";
    assert!(!shake_hands(Handshake::Hello, None, too_many).await);
    assert!(
        !shake_hands(
            Handshake::Hello,
            None,
            "received fatal alert: BadCertificate"
        )
        .await
    );
}
