//! The connections of a client that behaves like Redisson. The network never disturbs them.

use futures_util::StreamExt;
use redisson_lock::test_util::{
    InMemoryRedis,
    simulation::{Frame, Pushed, RawConnection},
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// One connection for scripts, and one for messages.
pub struct Connections {
    scripts: RawConnection,
    messages: RawConnection,
    /// The numbers in the received messages. Redisson's listeners take nothing else.
    received: mpsc::UnboundedReceiver<i64>,
}

impl Connections {
    pub async fn open(server: &InMemoryRedis) -> Self {
        let scripts = server.raw().await.expect("the server is up");
        let messages = server.raw().await.expect("the server is up");
        let mut pushed = messages.messages();
        let (receive, received) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Pushed::Message { payload, .. }) = pushed.next().await {
                let number = std::str::from_utf8(&payload).ok();
                let number = number.and_then(|number| number.parse().ok());
                let _ = receive.send(number.expect("a message of Redisson is a number"));
            }
        });
        Self {
            scripts,
            messages,
            received,
        }
    }

    /// Runs a script that answers a number. `words` are the number of keys, the keys and the arguments.
    pub async fn number(&self, script: &str, words: &[&str]) -> i64 {
        let words = [&[script], words].concat();
        match self.scripts.send("EVAL", &words).await {
            Ok(Frame::Number(number)) => number,
            other => panic!("a script of Redisson answered {other:?}"),
        }
    }

    /// Subscribes, and forgets earlier messages.
    pub async fn subscribe(&mut self, channel: &str) {
        let subscribed = self.messages.send("SUBSCRIBE", &[channel]).await;
        subscribed.expect("the connection is never disturbed");
        while self.received.try_recv().is_ok() {}
    }

    pub async fn unsubscribe(&self, channel: &str) {
        let ended = self.messages.send("UNSUBSCRIBE", &[channel]).await;
        ended.expect("the connection is never disturbed");
    }

    /// Waits for a message that `wakes` a waiter, until `until` at most.
    pub async fn next_message(&mut self, until: Instant, wakes: impl Fn(i64) -> bool) {
        let message =
            async { while !wakes(self.received.recv().await.expect("the listener runs")) {} };
        let _ = timeout_at(until, message).await;
    }
}
