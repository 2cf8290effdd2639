//! The wanted subscriptions. Pure.

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::{
    hash::HashSet,
    rate_limit::RateLimit,
    redis::{BoxFuture, CallError},
    server_text,
    wire::Refusal,
};

/// A change of the subscriptions.
#[derive(Debug)]
pub(in crate::redis) enum Want {
    Subscribe {
        channel: Bytes,
        done: oneshot::Sender<Result<(), CallError>>,
    },
    Unsubscribe {
        channel: Bytes,
    },
    /// The channel has moved to another server, which has ended the subscription here.
    Forget {
        channel: Bytes,
    },
}

/// The sender of wants, which are applied in order.
pub(in crate::redis) struct Wants(mpsc::UnboundedSender<Want>);

impl Wants {
    pub(in crate::redis) fn new() -> (Self, mpsc::UnboundedReceiver<Want>) {
        let (wants, wanted) = mpsc::unbounded_channel();
        (Self(wants), wanted)
    }

    /// Completes when the server has confirmed the subscription.
    pub(in crate::redis) fn subscribe(&self, channel: Bytes) -> BoxFuture<Result<(), CallError>> {
        let (done, answer) = oneshot::channel();
        let _ = self.0.send(Want::Subscribe { channel, done });
        Box::pin(async move { answer.await.unwrap_or(Err(CallError::Closed)) })
    }

    pub(in crate::redis) fn unsubscribe(&self, channel: Bytes) {
        let _ = self.0.send(Want::Unsubscribe { channel });
    }
}

/// The wanted channels, and the callers that wait for confirmations.
#[derive(Debug)]
pub(super) struct Wanted {
    channels: HashSet<Bytes>,
    /// The channels that the server has not confirmed on the present connection.
    unconfirmed: HashSet<Bytes>,
    asking: Vec<(Bytes, oneshot::Sender<Result<(), CallError>>)>,
    lines: RateLimit,
}

/// The changes to send to the server.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) subscribe: Vec<Bytes>,
    pub(super) unsubscribe: Vec<Bytes>,
    /// The channels of which the server has already ended the subscription.
    pub(super) forget: Vec<Bytes>,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            channels: HashSet::default(),
            unconfirmed: HashSet::default(),
            asking: Vec::new(),
            lines: RateLimit::new(1),
        }
    }
}

impl Wanted {
    /// Applies `wants` in order. Returns the resulting changes.
    pub(super) fn take_up(&mut self, wants: impl IntoIterator<Item = Want>) -> Change {
        let mut touched = HashSet::default();
        let mut forget = Vec::new();
        for want in wants {
            match want {
                Want::Subscribe { channel, done } if self.is_confirmed(&channel) => {
                    let _ = done.send(Ok(()));
                }
                Want::Subscribe { channel, done } => {
                    self.channels.insert(channel.clone());
                    self.unconfirmed.insert(channel.clone());
                    self.ask(channel.clone(), done);
                    touched.insert(channel);
                }
                Want::Unsubscribe { channel } => {
                    self.remove(&channel);
                    touched.insert(channel);
                }
                Want::Forget { channel } => {
                    self.remove(&channel);
                    touched.remove(&channel);
                    forget.push(channel);
                }
            }
        }
        let is_wanted = |channel: &Bytes| self.channels.contains(channel);
        let (subscribe, unsubscribe) = touched.into_iter().partition(is_wanted);
        Change {
            subscribe,
            unsubscribe,
            forget,
        }
    }

    fn ask(&mut self, channel: Bytes, done: oneshot::Sender<Result<(), CallError>>) {
        if self.asking.len() == self.asking.capacity() {
            // Without a connection, no confirmation removes callers that have gone.
            self.asking.retain(|(_, done)| !done.is_closed());
        }
        self.asking.push((channel, done));
    }

    /// Removes a channel. Its callers receive no confirmation: they have gone, or ask anew elsewhere.
    fn remove(&mut self, channel: &Bytes) {
        self.channels.remove(channel);
        // A confirmed channel has no callers.
        if self.unconfirmed.remove(channel) {
            self.asking.retain(|(asked, _)| asked != channel);
        }
    }

    fn is_confirmed(&self, channel: &Bytes) -> bool {
        self.channels.contains(channel) && !self.unconfirmed.contains(channel)
    }

    /// All wanted channels, for a new connection. `late` arrived while there was no connection. A channel that `late`
    /// forgets must not be subscribed to: nothing would end that subscription.
    pub(super) fn everything(&mut self, late: impl IntoIterator<Item = Want>) -> Change {
        self.disconnected();
        self.take_up(late);
        Change {
            subscribe: self.channels.iter().cloned().collect(),
            ..Change::default()
        }
    }

    /// The connection has ended, and its subscriptions with it.
    pub(super) fn disconnected(&mut self) {
        self.unconfirmed = self.channels.clone();
    }

    /// All wanted channels are subscribed to, except `missing`.
    pub(super) fn confirmed(&mut self, missing: &HashSet<Bytes>) {
        self.unconfirmed = self.channels.intersection(missing).cloned().collect();
        let is_confirmed = |(channel, _): &mut (Bytes, _)| !missing.contains(channel);
        for (_, done) in self.asking.extract_if(.., is_confirmed) {
            let _ = done.send(Ok(()));
        }
        if self.asking.is_empty() {
            // Frees the memory of thousands of callers that began to wait at once.
            self.asking = Vec::new();
        }
    }

    /// The server refused to subscribe to `channel`. Does not remember the refusal: names are many, and rights may change.
    pub(super) fn refuse(&mut self, channel: &Bytes, message: String) {
        let shown = server_text::shown(&String::from_utf8_lossy(channel));
        let message = server_text::shown(&message);
        match self.lines.may_log_about(&message) {
            Some(suppressed) => tracing::warn!(
                channel = shown,
                message,
                suppressed,
                "Redis refuses the subscription: waiters for this lock poll"
            ),
            None => {
                tracing::debug!(channel = shown, message, "Redis refuses the subscription")
            }
        }
        self.channels.remove(channel);
        self.unconfirmed.remove(channel);
        for (_, done) in self.asking.extract_if(.., |(asked, _)| asked == channel) {
            let message = message.clone();
            let _ = done.send(Err(CallError::Refused(Refusal::Failed { message })));
        }
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
            "no caller hears of it before it is confirmed"
        );
        wanted.confirmed(&HashSet::default());
        assert_eq!(a_done.try_recv(), Ok(Ok(())));
        let (again, mut again_done) = subscribe("a");
        assert_eq!(wanted.take_up([again]), Change::default());
        assert_eq!(again_done.try_recv(), Ok(Ok(())), "confirmed already");
        assert_eq!(wanted.everything([]).subscribe, ["a"]);
    }

    #[test]
    fn a_missing_or_moved_channel_is_not_confirmed() {
        let mut wanted = Wanted::default();
        let (a, mut a_done) = subscribe("a");
        let (b, mut b_done) = subscribe("b");
        wanted.take_up([a, b]);
        wanted.confirmed(&HashSet::from_iter(["b".into()]));
        assert_eq!(a_done.try_recv(), Ok(Ok(())));
        assert!(matches!(
            b_done.try_recv(),
            Err(oneshot::error::TryRecvError::Empty)
        ));
        let channel = "b".into();
        let change = wanted.take_up([Want::Forget { channel }]);
        assert_eq!(change.forget, ["b"]);
        assert!(change.subscribe.is_empty() && change.unsubscribe.is_empty());
        assert!(matches!(
            b_done.try_recv(),
            Err(oneshot::error::TryRecvError::Closed)
        ));
        assert_eq!(wanted.everything([]).subscribe, ["a"]);
    }

    #[test]
    fn subscription_is_not_confirmed_while_there_is_no_connection() {
        let mut wanted = Wanted::default();
        let (a, _a_done) = subscribe("a");
        wanted.take_up([a]);
        wanted.confirmed(&HashSet::default());
        wanted.disconnected();
        let (again, mut again_done) = subscribe("a");
        wanted.take_up([again]);
        assert!(again_done.try_recv().is_err());
        wanted.everything([]);
        wanted.confirmed(&HashSet::default());
        assert_eq!(again_done.try_recv(), Ok(Ok(())));
    }

    #[tokio::test]
    async fn a_refused_channel_fails_its_subscription_and_is_not_subscribed_again() {
        let mut wanted = Wanted::default();
        let (a, mut a_done) = subscribe("a");
        let (b, mut b_done) = subscribe("b");
        wanted.take_up([a, b]);
        wanted.refuse(&"a".into(), "NOPERM no".into());
        assert!(matches!(a_done.try_recv(), Ok(Err(CallError::Refused(_)))));
        wanted.confirmed(&HashSet::default());
        assert_eq!(b_done.try_recv(), Ok(Ok(())));
        assert_eq!(wanted.everything([]).subscribe, ["b"]);
        let (again, mut again_done) = subscribe("a");
        assert_eq!(wanted.take_up([again]).subscribe, ["a"]);
        assert!(again_done.try_recv().is_err());
    }
}
