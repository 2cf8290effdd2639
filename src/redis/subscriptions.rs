//! The connection for subscriptions, and the one task that uses it.

use std::collections::HashSet;

use bytes::Bytes;
use fred::{
    clients::Client,
    interfaces::{EventInterface, PubsubInterface},
    types::Message,
};
use tokio::{
    sync::{broadcast, mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

use super::{
    CallError, Event,
    line::PING_EVERY,
    link::{self, Connection, Connector},
};
use crate::wire::Refusal;

/// Channels in one `SUBSCRIBE`.
const AT_ONCE: usize = 256;

/// A change to what is subscribed to.
#[derive(Debug)]
pub(super) enum Want {
    Subscribe {
        channel: Bytes,
        done: oneshot::Sender<Result<(), CallError>>,
    },
    Unsubscribe {
        channel: Bytes,
    },
}

/// What should be subscribed to, and who waits to hear that it is.
#[derive(Debug, Default)]
struct Wanted {
    channels: HashSet<Bytes>,
    /// Those of `channels` that the server has confirmed on the present connection.
    confirmed: HashSet<Bytes>,
    asking: Vec<(Bytes, oneshot::Sender<Result<(), CallError>>)>,
    /// What the server refused: asked again, it would cost the connection each time.
    refused: HashSet<Bytes>,
    /// Some channel of several was refused; which one, only asking one by one can tell.
    one_by_one: bool,
}

/// What the server has to be told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Change {
    subscribe: Vec<Bytes>,
    unsubscribe: Vec<Bytes>,
}

impl Wanted {
    /// Takes up `wants` in order; says what changes once all of them are in.
    fn take_up(&mut self, wants: impl IntoIterator<Item = Want>) -> Change {
        let mut touched = HashSet::new();
        for want in wants {
            match want {
                Want::Subscribe { channel, done } if self.refused.contains(&channel) => {
                    let _ = done.send(Err(no_permission()));
                }
                Want::Subscribe { channel, done } if self.confirmed.contains(&channel) => {
                    let _ = done.send(Ok(()));
                }
                Want::Subscribe { channel, done } => {
                    self.channels.insert(channel.clone());
                    self.asking.push((channel.clone(), done));
                    touched.insert(channel);
                }
                Want::Unsubscribe { channel } => {
                    self.channels.remove(&channel);
                    self.confirmed.remove(&channel);
                    touched.insert(channel);
                }
            }
        }
        let is_wanted = |channel: &Bytes| self.channels.contains(channel);
        let (subscribe, unsubscribe) = touched.into_iter().partition(is_wanted);
        Change {
            subscribe,
            unsubscribe,
        }
    }

    /// Everything, for a connection that has nothing yet.
    fn everything(&mut self) -> Change {
        self.confirmed.clear();
        Change {
            subscribe: self.channels.iter().cloned().collect(),
            unsubscribe: Vec::new(),
        }
    }

    /// All that is wanted is in place.
    fn confirmed(&mut self) {
        self.one_by_one = false;
        self.confirmed.clone_from(&self.channels);
        for (_, done) in self.asking.drain(..) {
            let _ = done.send(Ok(()));
        }
    }

    /// The server refused to subscribe to at least one of `channels`.
    fn refuse(&mut self, channels: &[Bytes]) {
        let [channel] = channels else {
            self.one_by_one = true;
            return;
        };
        tracing::warn!(
            channel = %text(channel),
            "Redis refuses the subscription: those who wait for this lock have to ask now and then"
        );
        self.channels.remove(channel);
        self.refused.insert(channel.clone());
        for (_, done) in self.asking.extract_if(.., |(asked, _)| asked == channel) {
            let _ = done.send(Err(no_permission()));
        }
    }
}

fn no_permission() -> CallError {
    CallError::Refused(Refusal::Failed {
        message: "NOPERM no permission to subscribe to the lock's channel".into(),
    })
}

/// Subscribes and unsubscribes as `wants` say and passes the messages on, over one connection after the other.
pub(super) async fn serve(
    connector: Connector,
    first: Connection,
    mut wants: mpsc::UnboundedReceiver<Want>,
    events: mpsc::UnboundedSender<Event>,
    closed: CancellationToken,
) {
    let mut wanted = Wanted::default();
    let mut connection = first;
    loop {
        let listener = listen(&connection.client, events.clone());
        let used = use_connection(&mut connection, &mut wanted, &mut wants, &events);
        let ended = closed.run_until_cancelled(used).await;
        listener.abort();
        match ended {
            // Closed, or nobody is left who could want anything.
            None | Some(None) => return link::quit(&connection.client).await,
            Some(Some(reason)) => {
                tracing::warn!(%reason, "the connection for subscriptions broke; connecting again");
            }
        }
        let old = connection.identity.take();
        drop(connection);
        let Some(next) = connector.connect_until(&closed).await else {
            return;
        };
        if let Some(old) = old {
            Connection::kill(&next.client, &old).await;
        }
        connection = next;
    }
}

/// Serves until the connection breaks, and says why; `None` when nobody can want anything any more.
async fn use_connection(
    connection: &mut Connection,
    wanted: &mut Wanted,
    wants: &mut mpsc::UnboundedReceiver<Want>,
    events: &mpsc::UnboundedSender<Event>,
) -> Option<String> {
    let mut session = Session {
        client: connection.client.clone(),
        counts: connection.counts_subscriptions,
        subscribed: HashSet::new(),
        pings: 0,
    };
    let everything = wanted.everything();
    let router = &mut connection.router;
    if let Err(reason) = router.run(session.apply(everything, wanted)).await {
        return Some(reason);
    }
    let _ = events.send(Event::MessagesMissed);
    let mut batch = Vec::new();
    loop {
        tokio::select! {
            biased;
            reason = router.ended() => return Some(reason),
            taken = wants.recv_many(&mut batch, AT_ONCE) => {
                if taken == 0 {
                    return None;
                }
                let change = wanted.take_up(batch.drain(..));
                if let Err(reason) = router.run(session.apply(change, wanted)).await {
                    return Some(reason);
                }
            }
            () = tokio::time::sleep(PING_EVERY) => {
                if let Err(reason) = router.run(session.ping()).await {
                    return Some(reason);
                }
            }
        }
    }
}

/// One connection's worth of subscribing. Nothing else uses the connection, and one change at a time is on its way.
struct Session {
    client: Client,
    /// The server can be asked how many channels it has subscribed to.
    counts: bool,
    /// Those that it should have.
    subscribed: HashSet<Bytes>,
    pings: u64,
}

impl Session {
    async fn apply(&mut self, change: Change, wanted: &mut Wanted) -> Result<(), String> {
        if !change.unsubscribe.is_empty() {
            for channel in &change.unsubscribe {
                self.subscribed.remove(channel);
            }
            let channels: Vec<String> = change.unsubscribe.iter().map(text).collect();
            self.client
                .unsubscribe(channels)
                .await
                .map_err(|error| error.details().to_owned())?;
        }
        let at_once = if wanted.one_by_one { 1 } else { AT_ONCE };
        for channels in change.subscribe.chunks(at_once) {
            if let Err(reason) = self.subscribe(channels).await {
                if reason.starts_with("NOPERM") {
                    wanted.refuse(channels);
                }
                // After an error every answer is one behind (P-FR7): this connection is of no use any more.
                return Err(reason);
            }
        }
        wanted.confirmed();
        Ok(())
    }

    /// Subscribes; the answer to a question behind it says that the server has done so (P-FR6).
    async fn subscribe(&mut self, channels: &[Bytes]) -> Result<(), String> {
        self.subscribed.extend(channels.iter().cloned());
        let texts: Vec<String> = channels.iter().map(text).collect();
        let client = self.client.clone();
        // Handed over together: fred drops an error that comes when no command is on its way.
        let (subscribed, confirmed) = tokio::join!(biased; client.subscribe(texts), self.confirm());
        subscribed.map_err(|error| error.details().to_owned())?;
        confirmed
    }

    async fn confirm(&mut self) -> Result<(), String> {
        if !self.counts {
            return self.ping().await;
        }
        // An error that fred has dropped all the same is a channel too few.
        match Connection::subscriptions(&self.client).await? {
            count if count >= self.subscribed.len() => Ok(()),
            _ => Err("NOPERM: the server has not subscribed".into()),
        }
    }

    async fn ping(&mut self) -> Result<(), String> {
        self.pings += 1;
        Connection::ping(&self.client, self.pings).await
    }
}

fn text(channel: &Bytes) -> String {
    String::from_utf8_lossy(channel).into_owned()
}

/// Passes messages on while `client` lives.
fn listen(client: &Client, events: mpsc::UnboundedSender<Event>) -> JoinHandle<()> {
    let mut messages = client.message_rx();
    tokio::spawn(async move {
        while let Some(event) = next_event(&mut messages).await {
            if events.send(event).is_err() {
                return;
            }
        }
    })
}

async fn next_event(messages: &mut broadcast::Receiver<Message>) -> Option<Event> {
    match messages.recv().await {
        Ok(message) => Some(Event::Message {
            channel: message.channel.into_inner(),
            payload: message.value.into_bytes().unwrap_or_default(),
        }),
        Err(broadcast::error::RecvError::Lagged(_)) => Some(Event::MessagesMissed),
        Err(broadcast::error::RecvError::Closed) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = oneshot::Receiver<Result<(), CallError>>;

    fn subscribe(channel: &'static str) -> (Want, Answer) {
        let (done, answer) = oneshot::channel();
        let channel = channel.into();
        (Want::Subscribe { channel, done }, answer)
    }

    fn unsubscribe(channel: &'static str) -> Want {
        Want::Unsubscribe {
            channel: channel.into(),
        }
    }

    #[test]
    fn the_last_want_of_a_batch_decides() {
        let mut wanted = Wanted::default();
        let (a, mut a_done) = subscribe("a");
        let (b, _b_done) = subscribe("b");
        let change = wanted.take_up([unsubscribe("a"), a, b, unsubscribe("b")]);
        assert_eq!(change.subscribe, ["a"]);
        assert_eq!(change.unsubscribe, ["b"]);
        assert!(
            a_done.try_recv().is_err(),
            "nobody hears of it before it is confirmed"
        );
        wanted.confirmed();
        assert_eq!(a_done.try_recv(), Ok(Ok(())));
        let (again, mut again_done) = subscribe("a");
        assert_eq!(wanted.take_up([again]), Change::default());
        assert_eq!(again_done.try_recv(), Ok(Ok(())), "confirmed already");
        assert_eq!(wanted.everything().subscribe, ["a"]);
    }

    #[test]
    fn a_refused_channel_is_found_and_not_asked_again() {
        let mut wanted = Wanted::default();
        let (a, mut a_done) = subscribe("a");
        let (b, mut b_done) = subscribe("b");
        wanted.take_up([a, b]);
        wanted.refuse(&["a".into(), "b".into()]);
        assert!(wanted.one_by_one && a_done.try_recv().is_err());
        wanted.refuse(&["a".into()]);
        assert!(matches!(a_done.try_recv(), Ok(Err(CallError::Refused(_)))));
        wanted.confirmed();
        assert_eq!(b_done.try_recv(), Ok(Ok(())));
        let (again, mut again_done) = subscribe("a");
        assert_eq!(wanted.take_up([again]), Change::default());
        assert!(matches!(
            again_done.try_recv(),
            Ok(Err(CallError::Refused(_)))
        ));
    }
}
