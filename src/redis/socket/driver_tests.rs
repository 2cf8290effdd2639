use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

struct Peer {
    stream: DuplexStream,
    requests: mpsc::UnboundedSender<Request>,
    received: Received,
    moving: tokio::task::JoinHandle<String>,
}

fn peer(version: Version, room: usize) -> Peer {
    let (ours, stream) = tokio::io::duplex(1 << 16);
    let (requests, taken) = mpsc::unbounded_channel();
    let (messages, received) = messages(room);
    let driver = Driver::new(Box::new(ours), version, "s3cret".into(), taken, messages);
    Peer {
        stream,
        requests,
        received,
        moving: tokio::spawn(driver.run()),
    }
}

impl Peer {
    fn ask(
        &self,
        name: &'static str,
        args: &[&'static str],
    ) -> impl Future<Output = Result<Result<Frame, String>, oneshot::error::RecvError>> + use<>
    {
        let (answer, answered) = oneshot::channel();
        let args = args.iter().map(|arg| Bytes::from(*arg)).collect();
        let sent = self.requests.send(Request { name, args, answer });
        assert!(sent.is_ok());
        async move { Ok(answered.await?.map_err(|error| error.to_string())) }
    }

    async fn says(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }
}

#[tokio::test]
async fn an_error_answers_the_subscription_it_is_about_and_no_other_command() {
    for version in [Version::Resp2, Version::Resp3] {
        let mut peer = peer(version, 8);
        let refused = peer.ask("SUBSCRIBE", &["a"]);
        let ping = peer.ask("PING", &["1"]);
        let confirmed = peer.ask("SUBSCRIBE", &["b", "c"]);
        // All commands are sent before the answers arrive.
        peer.stream.read_exact(&mut [0; 80]).await.unwrap();
        let (push, text) = match version {
            Version::Resp2 => ("*3", "*2\r\n$4\r\npong\r\n$1\r\n1\r\n"),
            Version::Resp3 => (">3", "$1\r\n1\r\n"),
        };
        peer.says("-NOPERM no\r\n").await;
        peer.says(text).await;
        peer.says(&format!("{push}\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"))
            .await;
        peer.says(&format!(
            "{push}\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n"
        ))
        .await;
        peer.says(&format!(
            "{push}\r\n$12\r\nsunsubscribe\r\n$1\r\nb\r\n:1\r\n"
        ))
        .await;
        peer.says(&format!("{push}\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n"))
            .await;
        assert_eq!(refused.await.unwrap(), Ok(Frame::Error("NOPERM no".into())));
        assert!(matches!(
            ping.await.unwrap(),
            Ok(Frame::Text(_) | Frame::List(_))
        ));
        assert_eq!(confirmed.await.unwrap(), Ok(Frame::Null));
        let message = Pushed::message("c".into(), "0".into());
        assert_eq!(peer.received.next().await, Some(message));
    }
}

#[tokio::test]
async fn a_connection_that_ends_fails_its_calls_with_the_reason() {
    for (said, reason) in [
        ("", "the server closed the connection"),
        ("*1\r\n", "the server closed the connection"),
        (
            "HTTP/1.1 400\r\n",
            "the answer is not valid RESP: unknown type marker",
        ),
    ] {
        let mut peer = peer(Version::Resp3, 8);
        let call = peer.ask("PING", &[]);
        peer.says(said).await;
        drop(peer.stream);
        assert_eq!(call.await.unwrap(), Err(reason.into()), "{said:?}");
        assert_eq!(peer.moving.await.unwrap(), reason);
    }
    let mut peer = peer(Version::Resp3, 8);
    peer.says("-ERR max number of clients reached\r\n").await;
    assert_eq!(
        peer.moving.await.unwrap(),
        "ERR max number of clients reached"
    );
}

#[tokio::test]
async fn an_answer_to_nothing_ends_the_connection() {
    let mut peer = peer(Version::Resp3, 8);
    peer.says(":1\r\n").await;
    let reason = peer.moving.await.unwrap();
    assert!(reason.starts_with(NOT_RESP), "{reason}");
}

#[tokio::test]
async fn an_answer_that_confirms_no_subscription_ends_the_connection() {
    for version in [Version::Resp2, Version::Resp3] {
        let mut peer = peer(version, 8);
        let subscribed = peer.ask("SUBSCRIBE", &["a"]);
        peer.stream.read_exact(&mut [0; 26]).await.unwrap();
        peer.says("+OK\r\n").await;
        let reason = peer.moving.await.unwrap();
        assert!(reason.starts_with(NOT_RESP), "{reason}");
        assert_eq!(subscribed.await.unwrap(), Err(reason));
    }
}

#[tokio::test]
async fn messages_without_room_in_the_buffer_are_reported_as_missed_once() {
    let mut peer = peer(Version::Resp3, 2);
    let message = ">3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\n0\r\n";
    let ping = peer.ask("PING", &[]);
    peer.stream.read_exact(&mut [0; 14]).await.unwrap();
    peer.says(&format!("{}+PONG\r\n", message.repeat(100)))
        .await;
    assert!(ping.await.unwrap().is_ok());
    let mut missed = 0;
    for _ in 0..3 {
        missed += usize::from(peer.received.next().await == Some(Pushed::Missed));
    }
    assert_eq!(missed, 1);
}

#[tokio::test]
async fn a_call_that_was_given_up_before_it_was_sent_is_not_sent() {
    let mut peer = peer(Version::Resp3, 8);
    drop(peer.ask("SET", &["late", "1"]));
    let ping = peer.ask("PING", &[]);
    let mut sent = [0; 14];
    peer.stream.read_exact(&mut sent).await.unwrap();
    assert_eq!(&sent, b"*1\r\n$4\r\nPING\r\n");
    peer.says("+PONG\r\n").await;
    assert_eq!(ping.await.unwrap(), Ok(Frame::Status("PONG".into())));
}

/// Otherwise a client that publishes long messages on a lock's channel fills the memory of a receiver that is behind.
#[tokio::test]
async fn long_message_is_not_kept() {
    let mut peer = peer(Version::Resp3, 8);
    for length in [LONGEST_PAYLOAD + 1, LONGEST_PAYLOAD] {
        let payload = "0".repeat(length);
        let begin = format!(">3\r\n$7\r\nmessage\r\n$1\r\na\r\n${length}\r\n");
        peer.says(&format!("{begin}{payload}\r\n")).await;
    }
    let Some(Pushed::Message { payload, .. }) = peer.received.next().await else {
        panic!("a message was lost");
    };
    assert_eq!(payload.len(), LONGEST_PAYLOAD);
}

/// A proxy answers twice, and quotes the command.
#[tokio::test]
async fn an_error_without_a_request_ends_the_connection_and_hides_the_password() {
    let mut peer = peer(Version::Resp3, 8);
    peer.says("-ERR invalid command HELLO 3 AUTH u s3cret\r\n")
        .await;
    let reason = peer.moving.await.unwrap();
    assert_eq!(reason, "ERR invalid command HELLO 3 AUTH u ..");
}

/// A later login has another password, which the server may repeat as well.
#[tokio::test]
async fn the_password_of_the_latest_login_is_removed_from_last_words() {
    let mut peer = peer(Version::Resp3, 8);
    let login = peer.ask("AUTH", &["app", "n3w"]);
    peer.stream.read_exact(&mut [0; 32]).await.unwrap();
    peer.says("+OK\r\n-ERR closing after app n3w\r\n").await;
    assert!(login.await.unwrap().is_ok());
    assert_eq!(peer.moving.await.unwrap(), "ERR closing after app ..");
}
