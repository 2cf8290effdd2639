//! The connections of a client that behaves like Redisson. Only undisturbed histories have them:
//! commands and messages are delayed, and none is lost.

use futures_util::StreamExt;
use redisson_lock_test::simulation::{Frame, Pushed, RawConnection};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

use super::servers::World;

/// One connection for scripts, and one for messages, both to the master that has a lock.
pub struct Connections {
    /// Whether messages are published within a shard of the cluster.
    is_sharded: bool,
    scripts: RawConnection,
    messages: RawConnection,
    /// The numbers in the received messages. Redisson's listeners take nothing else.
    received: mpsc::UnboundedReceiver<i64>,
}

impl Connections {
    pub async fn open(world: &World, name: &str, is_sharded: bool) -> Self {
        let scripts = world.raw(name).await.expect("the server is up");
        let messages = world.raw(name).await.expect("the server is up");
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
            is_sharded,
            scripts,
            messages,
            received,
        }
    }

    fn either(&self, classic: &'static str, sharded: &'static str) -> &'static str {
        match self.is_sharded {
            true => sharded,
            false => classic,
        }
    }

    /// Runs a script that answers a number. `words` are the number of keys, the keys and the arguments.
    pub async fn number(&self, script: &str, words: &[&str]) -> i64 {
        let script = script.replace("'PUBLISH'", self.either("'PUBLISH'", "'SPUBLISH'"));
        let words = [&[&*script], words].concat();
        match self.scripts.send("EVAL", &words).await {
            Ok(Frame::Number(number)) => number,
            other => panic!("a script of Redisson answered {other:?}"),
        }
    }

    /// Subscribes, and forgets earlier messages.
    pub async fn subscribe(&mut self, channel: &str) {
        let command = self.either("SUBSCRIBE", "SSUBSCRIBE");
        let subscribed = self.messages.send(command, &[channel]).await;
        subscribed.expect("the connection is never disturbed");
        while self.received.try_recv().is_ok() {}
    }

    pub async fn unsubscribe(&self, channel: &str) {
        let command = self.either("UNSUBSCRIBE", "SUNSUBSCRIBE");
        let ended = self.messages.send(command, &[channel]).await;
        ended.expect("the connection is never disturbed");
    }

    /// Waits for a message that `wakes` a waiter, until `until` at most.
    pub async fn next_message(&mut self, until: Instant, wakes: impl Fn(i64) -> bool) {
        let message =
            async { while !wakes(self.received.recv().await.expect("the listener runs")) {} };
        let _ = timeout_at(until, message).await;
    }
}
