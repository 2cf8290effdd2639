//! The queue of events from the connections to the dispatcher, in order. Messages are bounded; other events are rare.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use tokio::sync::mpsc;

use super::Event;

/// The most messages that wait for the dispatcher. If there are more, all waiters are woken.
pub(super) const MESSAGES: usize = 2048;

/// The sender of events.
#[derive(Clone)]
pub struct EventSender {
    queue: mpsc::UnboundedSender<Event>,
    waiting: Arc<Waiting>,
}

/// The receiver of events.
pub(crate) struct Events {
    queue: mpsc::UnboundedReceiver<Event>,
    waiting: Arc<Waiting>,
}

/// The contents of the queue.
#[derive(Default)]
struct Waiting {
    messages: AtomicUsize,
    has_missed: AtomicBool,
}

pub(super) fn channel() -> (EventSender, Events) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::<Waiting>::default();
    let sender = EventSender {
        queue: sender,
        waiting: waiting.clone(),
    };
    let events = Events {
        queue: receiver,
        waiting,
    };
    (sender, events)
}

impl EventSender {
    /// Sends an event; fails if the dispatcher has ended. A message without room becomes a report of missed messages. One
    /// report in the queue is enough: it is read after all losses before.
    pub(super) fn send(&self, event: Event) -> Result<(), mpsc::error::SendError<Event>> {
        let waiting = &*self.waiting;
        let event = match event {
            Event::Message { .. } => {
                let has_room = |messages| (messages < MESSAGES).then_some(messages + 1);
                let counted =
                    waiting
                        .messages
                        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, has_room);
                counted.map_or(Event::MessagesMissed, |_| event)
            }
            event => event,
        };
        if event == Event::MessagesMissed && waiting.has_missed.swap(true, Ordering::SeqCst) {
            return match self.queue.is_closed() {
                true => Err(mpsc::error::SendError(event)),
                false => Ok(()),
            };
        }
        self.queue.send(event)
    }
}

impl Events {
    /// The next event; `None` once all senders have gone.
    pub(crate) async fn recv(&mut self) -> Option<Event> {
        let event = self.queue.recv().await?;
        match event {
            Event::Message { .. } => {
                self.waiting.messages.fetch_sub(1, Ordering::SeqCst);
            }
            // Reset before the dispatcher handles the report: a later loss needs a report of its own.
            Event::MessagesMissed => self.waiting.has_missed.store(false, Ordering::SeqCst),
            _ => {}
        }
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Event {
        Event::Message {
            channel: "channel".into(),
            payload: "0".into(),
        }
    }

    async fn received(events: &mut Events) -> Vec<Event> {
        let mut received = Vec::new();
        while !events.queue.is_empty() {
            received.extend(events.recv().await);
        }
        received
    }

    #[tokio::test]
    async fn messages_without_room_are_reported_once_and_other_events_are_kept() {
        let (sender, mut events) = channel();
        for _ in 0..2 {
            for _ in 0..10 * MESSAGES {
                sender.send(message()).unwrap();
            }
            sender.send(Event::Reconnected).unwrap();
            sender.send(Event::MessagesMissed).unwrap();
            let received = received(&mut events).await;
            let (messages, rest) = received.split_at(MESSAGES);
            assert!(messages.iter().all(|event| *event == message()));
            assert!(rest == [Event::MessagesMissed, Event::Reconnected]);
        }
    }

    #[tokio::test]
    async fn loss_after_a_report_was_received_is_reported_again() {
        let (sender, mut events) = channel();
        for _ in 0..3 {
            sender.send(Event::MessagesMissed).unwrap();
            sender.send(Event::MessagesMissed).unwrap();
            assert_eq!(received(&mut events).await, [Event::MessagesMissed]);
        }
        drop(events);
        assert!(sender.send(Event::MessagesMissed).is_err());
        assert!(sender.send(Event::MessagesMissed).is_err());
    }
}
