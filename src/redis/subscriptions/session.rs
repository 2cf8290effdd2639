//! The subscriptions of one connection. Nothing else uses the connection, and one change is under way at a time.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, error::Elapsed, timeout};

use super::{
    Channels,
    wanted::{Change, Wanted},
};
use crate::{
    hash::HashSet,
    redis::{
        frame,
        open_connection::{OpenConnection, Pong},
        time_limits::{PING_EVERY, PING_WAIT, SUBSCRIPTIONS_CHECKED_EVERY},
    },
    transport::{Connection, Frame, TransportError},
    wire::Refusal,
};

/// The most channels in one `SUBSCRIBE`, or of `SSUBSCRIBE`s under way at a time.
pub(super) const AT_ONCE: usize = 256;

const NO_ANSWER: &str = "the server did not confirm a change of subscriptions";

/// The message of an error answer.
fn answered(
    answer: Result<Result<Frame, TransportError>, Elapsed>,
) -> Result<Option<String>, String> {
    let answer = answer.map_err(|_| NO_ANSWER)?;
    let answer = answer.map_err(|error| error.to_string())?;
    Ok(frame::error(&answer))
}

/// Whether the server has refused a subscription in words of a passing state, such as a moving slot.
fn may_pass(message: &str) -> bool {
    Refusal::from_message(message.to_owned()).is_of_failover()
}

/// Whether the answer to `SUNSUBSCRIBE` leaves the subscription in place. The server ends the subscriptions of a slot that
/// moves away, so a redirection means the opposite.
fn is_refused(answer: &Frame) -> bool {
    frame::error(answer).is_some_and(|message| !message.starts_with("MOVED"))
}

pub(super) struct Session<'a> {
    connection: Arc<dyn Connection>,
    channels: &'a Channels,
    /// Whether the server can report the number of subscriptions.
    counts: bool,
    /// The channels that the connection should have.
    subscribed: HashSet<Bytes>,
    /// The channels whose slot the server does not have, or not yet.
    missing: HashSet<Bytes>,
    /// Whether a missing channel has been subscribed to since the last [`take_regained`](Self::take_regained).
    has_regained: bool,
    /// The number of channels that the shard has refused to end.
    refused: usize,
    has_subscribed: bool,
    pings: u64,
    pong: Pong,
    looked: Instant,
}

impl<'a> Session<'a> {
    pub(super) fn new(open: &OpenConnection, channels: &'a Channels) -> Self {
        Self {
            connection: open.connection.clone(),
            channels,
            counts: open.counts_subscriptions,
            subscribed: HashSet::default(),
            missing: HashSet::default(),
            has_regained: false,
            refused: 0,
            has_subscribed: false,
            pings: 0,
            pong: open.pong,
            looked: Instant::now(),
        }
    }

    pub(super) async fn apply(
        &mut self,
        change: Change,
        wanted: &mut Wanted,
    ) -> Result<(), String> {
        for channel in change.forget.iter().chain(&change.unsubscribe) {
            self.missing.remove(channel);
        }
        for channel in &change.forget {
            self.subscribed.remove(channel);
        }
        self.unsubscribe(&change.unsubscribe).await?;
        match self.channels {
            Channels::Everywhere | Channels::OfCluster => {
                self.subscribe_in_batches(&change.subscribe, wanted).await?
            }
            Channels::OfShard(_) => self.subscribe_to_shard(&change.subscribe, wanted).await?,
        }
        self.has_subscribed |= !self.subscribed.is_empty();
        wanted.confirmed(&self.missing);
        Ok(())
    }

    /// Whether a missing channel has been subscribed to: its messages may have been lost meanwhile. True once.
    pub(super) fn take_regained(&mut self) -> bool {
        std::mem::take(&mut self.has_regained)
    }

    /// Whether the server has confirmed a subscription.
    pub(super) fn has_subscribed(&self) -> bool {
        self.has_subscribed
    }

    async fn unsubscribe(&mut self, channels: &[Bytes]) -> Result<(), String> {
        let subscribed = channels
            .iter()
            .filter(|channel| self.subscribed.remove(*channel));
        let channels: Vec<Bytes> = subscribed.cloned().collect();
        if channels.is_empty() {
            return Ok(());
        }
        let unsubscribing = async {
            match self.channels {
                Channels::Everywhere | Channels::OfCluster => {
                    let unsubscribed = self.connection.send("UNSUBSCRIBE", channels).await;
                    unsubscribed.map(drop)
                }
                // All channels of one command would have to be in one slot.
                Channels::OfShard(_) => {
                    let each = channels
                        .into_iter()
                        .map(|channel| self.connection.send("SUNSUBSCRIBE", vec![channel]));
                    for done in join_all(each).await {
                        self.refused += usize::from(is_refused(&done?));
                    }
                    Ok(())
                }
            }
        };
        let unsubscribed = timeout(PING_WAIT, unsubscribing).await;
        let unsubscribed = unsubscribed.map_err(|_| NO_ANSWER)?;
        unsubscribed.map_err(|error| error.to_string())
    }

    /// Subscribes to several channels at a time. The answer is the server's confirmation.
    async fn subscribe_in_batches(
        &mut self,
        channels: &[Bytes],
        wanted: &mut Wanted,
    ) -> Result<(), String> {
        for channels in channels.chunks(AT_ONCE) {
            let together = self.connection.send("SUBSCRIBE", channels.to_vec());
            match answered(timeout(PING_WAIT, together).await)? {
                None => self.subscribed.extend(channels.iter().cloned()),
                Some(message) if may_pass(&message) => return Err(message),
                // One refused channel makes the server refuse all.
                Some(_) => {
                    self.subscribe_one_by_one("SUBSCRIBE", channels, wanted)
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Subscribes to each channel by a command of its own, so that a refusal affects no other channel.
    async fn subscribe_one_by_one(
        &mut self,
        command: &'static str,
        channels: &[Bytes],
        wanted: &mut Wanted,
    ) -> Result<(), String> {
        let ask = |channel: &Bytes| self.connection.send(command, vec![channel.clone()]);
        let answers = timeout(PING_WAIT, join_all(channels.iter().map(ask)));
        let answers = answers.await.map_err(|_| NO_ANSWER)?;
        for (channel, answer) in channels.iter().zip(answers) {
            match answered(Ok(answer))? {
                None => {
                    self.subscribed.insert(channel.clone());
                    self.has_regained |= self.missing.remove(channel);
                }
                // The shard does not have the slot, or not yet.
                Some(message) if may_pass(&message) && command == "SSUBSCRIBE" => {
                    self.missing.insert(channel.clone());
                }
                Some(message) if may_pass(&message) => return Err(message),
                // The right or the command is missing: a new connection would be refused, too.
                Some(message) => {
                    self.missing.remove(channel);
                    wanted.refuse(channel, message);
                }
            }
        }
        Ok(())
    }

    /// Subscribes to each channel alone: all channels of one command would have to be in one slot.
    async fn subscribe_to_shard(
        &mut self,
        channels: &[Bytes],
        wanted: &mut Wanted,
    ) -> Result<(), String> {
        for channels in channels.chunks(AT_ONCE) {
            self.subscribe_one_by_one("SSUBSCRIBE", channels, wanted)
                .await?;
        }
        if !self.missing.is_empty() {
            self.channels.request_refresh();
        }
        Ok(())
    }

    /// Whether a second connection may prove this one dead during the next [`look`](Self::look): a waiter needs it, and the look may
    /// last longer than a connection takes to open, but takes one round trip.
    pub(super) fn is_doubted(&self) -> bool {
        let is_needed = !self.subscribed.is_empty();
        match self.channels {
            Channels::Everywhere => is_needed,
            Channels::OfCluster => false,
            Channels::OfShard(_) => is_needed && self.missing.is_empty(),
        }
    }

    /// The time of the next [`look`](Self::look).
    pub(super) fn next_look(&self) -> Instant {
        let idle = self.subscribed.is_empty() && self.missing.is_empty();
        let rest = match self.channels {
            Channels::OfShard(_) | Channels::OfCluster if !idle => SUBSCRIPTIONS_CHECKED_EVERY,
            _ => PING_EVERY,
        };
        self.looked + rest
    }

    /// Verifies and repairs the subscriptions.
    pub(super) async fn look(&mut self, wanted: &mut Wanted) -> Result<(), String> {
        let verified = self.verify(wanted).await;
        // A look that takes longer than the pause between two looks would leave no time for changes otherwise.
        self.looked = Instant::now();
        verified
    }

    async fn verify(&mut self, wanted: &mut Wanted) -> Result<(), String> {
        match self.channels {
            Channels::Everywhere => return self.ping(PING_WAIT).await,
            // The node must relay messages from healthy nodes; any other node can replace it.
            Channels::OfCluster => return self.ping(SUBSCRIPTIONS_CHECKED_EVERY).await,
            Channels::OfShard(_) => {}
        }
        self.look_for_all().await?;
        let missing: Vec<Bytes> = self.missing.iter().cloned().collect();
        self.subscribe_to_shard(&missing, wanted).await?;
        wanted.confirmed(&self.missing);
        Ok(())
    }

    /// Fails if the shard has ended a subscription. A server without that report answers a `PING`; then only the map of
    /// slots shows a move.
    async fn look_for_all(&mut self) -> Result<(), String> {
        if !self.counts {
            return self.ping(PING_WAIT).await;
        }
        let count = OpenConnection::subscriptions(&*self.connection).await?;
        if count
            .of_shard
            .is_some_and(|count| count < self.subscribed.len() + self.refused)
        {
            self.channels.request_refresh();
            return Err("the server has ended a subscription".into());
        }
        Ok(())
    }

    async fn ping(&mut self, wait: Duration) -> Result<(), String> {
        self.pings += 1;
        OpenConnection::ping(&*self.connection, self.pings, wait, &mut self.pong).await
    }
}
