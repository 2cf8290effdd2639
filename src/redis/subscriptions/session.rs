//! One connection's worth of subscribing. Nothing else uses the connection, and one change at a time is on its way.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::time::{Instant, timeout};

use super::{
    Channels,
    wanted::{Change, Wanted},
};
use crate::hash::HashSet;
use crate::redis::{
    connection::Connection,
    frame,
    line::PING_EVERY,
    link::{self, Link},
};

/// Channels in one `SUBSCRIBE`, or `SSUBSCRIBE` on their way at a time.
pub(super) const AT_ONCE: usize = 256;
/// How often a shard is asked whether all subscriptions are still there: fred keeps it to itself when the server ends
/// one because its slot has moved (P-W7).
const COUNT_EVERY: Duration = Duration::from_millis(500);

pub(super) struct Session<'a> {
    connection: Arc<dyn Connection>,
    channels: &'a Channels,
    /// The server can be asked how many channels it has subscribed to.
    counts: bool,
    /// Those that it should have.
    subscribed: HashSet<Bytes>,
    /// Those whose slot the server does not have, or not yet.
    missing: HashSet<Bytes>,
    has_subscribed: bool,
    pings: u64,
    looked: Instant,
}

impl<'a> Session<'a> {
    pub(super) fn new(link: &Link, channels: &'a Channels) -> Self {
        Self {
            connection: link.connection.clone(),
            channels,
            counts: link.counts_subscriptions,
            subscribed: HashSet::default(),
            missing: HashSet::default(),
            has_subscribed: false,
            pings: 0,
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
                // Those of one command would have to be of one slot.
                Channels::OfShard(_) => {
                    let each = channels
                        .into_iter()
                        .map(|channel| self.connection.send("SUNSUBSCRIBE", vec![channel]));
                    let done = join_all(each).await;
                    done.into_iter().try_for_each(|done| done.map(drop))
                }
            }
        };
        let unsubscribed = timeout(link::PING_WAIT, unsubscribing).await;
        let unsubscribed = unsubscribed.map_err(|_| "no answer to an UNSUBSCRIBE")?;
        unsubscribed.map_err(|reason| reason.as_ref().to_owned())
    }

    async fn subscribe_in_batches(
        &mut self,
        channels: &[Bytes],
        wanted: &mut Wanted,
    ) -> Result<(), String> {
        let at_once = if wanted.one_by_one { 1 } else { AT_ONCE };
        for channels in channels.chunks(at_once) {
            if let Err(reason) = self.subscribe(channels).await {
                if reason.starts_with("NOPERM") {
                    wanted.refuse(channels);
                }
                // After an error every answer is one behind (P-FR7): this connection is of no use any more.
                return Err(reason);
            }
        }
        Ok(())
    }

    /// Subscribes; the answer to a question behind it says that the server has done so (P-FR6).
    async fn subscribe(&mut self, channels: &[Bytes]) -> Result<(), String> {
        self.subscribed.extend(channels.iter().cloned());
        let connection = self.connection.clone();
        let subscribe = connection.send("SUBSCRIBE", channels.to_vec());
        let subscribe = timeout(link::PING_WAIT, subscribe);
        // Handed over together: fred drops an error that comes when no command is on its way.
        let (subscribed, confirmed) = tokio::join!(biased; subscribe, self.confirm());
        let subscribed = subscribed.map_err(|_| "no answer to a SUBSCRIBE")?;
        match subscribed.as_ref().map(frame::error) {
            Err(reason) => return Err(reason.as_ref().to_owned()),
            Ok(Some(message)) => return Err(message),
            Ok(None) => {}
        }
        confirmed
    }

    async fn confirm(&mut self) -> Result<(), String> {
        if !self.counts {
            return self.ping(link::PING_WAIT).await;
        }
        // An error that fred has dropped all the same is a channel too few.
        match Link::subscriptions(&*self.connection).await? {
            count if count.everywhere >= self.subscribed.len() => Ok(()),
            _ => Err("NOPERM: the server has not subscribed".into()),
        }
    }

    /// Subscribes to one channel after the other: to a shard, fred takes what comes back for the answer to the command.
    async fn subscribe_to_shard(
        &mut self,
        channels: &[Bytes],
        wanted: &mut Wanted,
    ) -> Result<(), String> {
        for channels in channels.chunks(AT_ONCE) {
            let ask = |channel: &Bytes| self.connection.send("SSUBSCRIBE", vec![channel.clone()]);
            let answers = timeout(link::PING_WAIT, join_all(channels.iter().map(ask)));
            let answers = answers.await.map_err(|_| "no answer to a SSUBSCRIBE")?;
            for (channel, answer) in channels.iter().zip(answers) {
                let answer = answer.map_err(|reason| reason.as_ref().to_owned())?;
                match frame::error(&answer) {
                    None => {
                        self.subscribed.insert(channel.clone());
                        self.missing.remove(channel);
                    }
                    Some(message) if message.starts_with("NOPERM") => {
                        wanted.refuse(std::slice::from_ref(channel));
                    }
                    Some(_) => {
                        self.missing.insert(channel.clone());
                    }
                }
            }
        }
        if !self.missing.is_empty() {
            self.channels.doubt();
        }
        Ok(())
    }

    /// When to [`look`](Self::look) next.
    pub(super) fn next_look(&self) -> Instant {
        let idle = self.subscribed.is_empty() && self.missing.is_empty();
        let rest = match self.channels {
            Channels::OfShard(_) | Channels::OfCluster if !idle => COUNT_EVERY,
            _ => PING_EVERY,
        };
        self.looked + rest
    }

    /// Sees to it that all is as it should be; says whether messages may have been missed.
    pub(super) async fn look(&mut self, wanted: &mut Wanted) -> Result<bool, String> {
        self.looked = Instant::now();
        match self.channels {
            Channels::Everywhere => return self.ping(link::PING_WAIT).await.map(|()| false),
            // Messages between nodes that are well have to come by it, and another would do as well.
            Channels::OfCluster => return self.ping(COUNT_EVERY).await.map(|()| false),
            Channels::OfShard(_) => {}
        }
        self.look_for_all().await?;
        let missing: Vec<Bytes> = self.missing.iter().cloned().collect();
        self.subscribe_to_shard(&missing, wanted).await?;
        wanted.confirmed(&self.missing);
        Ok(self.missing.len() < missing.len())
    }

    /// Fails if the shard has ended a subscription. One that cannot be asked answers a `PING`; then only the map tells.
    async fn look_for_all(&mut self) -> Result<(), String> {
        if !self.counts {
            return self.ping(link::PING_WAIT).await;
        }
        let count = Link::subscriptions(&*self.connection).await?;
        if count
            .of_shard
            .is_some_and(|count| count < self.subscribed.len())
        {
            self.channels.doubt();
            return Err("the server has ended a subscription".into());
        }
        Ok(())
    }

    async fn ping(&mut self, wait: Duration) -> Result<(), String> {
        self.pings += 1;
        Link::ping(&*self.connection, self.pings, wait).await
    }
}
