//! The connections of the clients: their ends and their successors.

use std::time::Duration;

use bytes::Bytes;
use redisson_lock::direct::EventSender;
use tokio::{sync::watch, time::Instant};

use super::{Connection, Link, State, jobs::Job};

/// The pause between two attempts to connect to a server that is down.
const CONNECTS_EVERY: Duration = Duration::from_millis(50);

/// A connection of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Calls,
    Subscriptions,
}

/// The place of a connection: its client, its side and its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) client: u64,
    pub(super) side: Side,
    pub(super) number: u64,
}

impl State {
    /// Adds a client with its connections. Returns its number, and whether its calls have a connection.
    pub(super) fn open(
        &mut self,
        events: EventSender,
        now: Instant,
    ) -> (u64, watch::Receiver<bool>) {
        let client = self.last_connection;
        let mut connection = || {
            self.last_connection += 1;
            Connection::new(self.last_connection, now)
        };
        let connections = [connection(), connection()];
        let link = Link {
            events,
            connections,
            calls: Default::default(),
            last_call: 0,
            channels: Default::default(),
            restoring: 0,
            is_up: watch::Sender::new(true),
        };
        let is_up = link.is_up.subscribe();
        self.links.insert(client, link);
        (client, is_up)
    }

    pub(super) fn connection(&mut self, client: u64, side: Side) -> Option<&mut Connection> {
        let link = self.links.get_mut(&client)?;
        Some(&mut link.connections[side as usize])
    }

    /// The connection at `at`, if it has no successor.
    pub(super) fn present(&mut self, at: At) -> Option<&mut Connection> {
        let connection = self.connection(at.client, at.side)?;
        (connection.number == at.number).then_some(connection)
    }

    /// Whether the server executes what arrives there now.
    pub(super) fn is_served(&mut self, at: At) -> bool {
        self.present(at)
            .is_some_and(|connection| connection.is_served)
    }

    pub(super) fn is_up(&mut self, at: At) -> bool {
        self.present(at).is_some_and(|connection| connection.is_up)
    }

    pub(super) fn disconnect(&mut self, now: Instant) {
        let links = self.links.iter_mut();
        let ended: Vec<At> = links
            .flat_map(|(client, link)| {
                let sides = [Side::Calls, Side::Subscriptions];
                let connections = link.connections.iter_mut().zip(sides);
                connections.map(|(connection, side)| {
                    connection.is_served = false;
                    At {
                        client: *client,
                        side,
                        number: connection.number,
                    }
                })
            })
            .collect();
        for at in ended {
            if at.side == Side::Subscriptions {
                self.forget_subscriptions(at.client);
            }
            self.push(now, Job::End { at });
        }
    }

    pub(super) fn forget_subscriptions(&mut self, client: u64) {
        let channels: Vec<Bytes> = self.server.channels().cloned().collect();
        for channel in channels {
            self.server.unsubscribe(client, &channel);
        }
    }

    /// The client notices the end of a connection, and begins to connect anew.
    pub(super) fn end(&mut self, at: At, now: Instant) {
        let Some(connection) = self.present(at).filter(|connection| connection.is_up) else {
            return;
        };
        connection.is_up = false;
        if at.side == Side::Calls
            && let Some(link) = self.links.get(&at.client)
        {
            link.is_up.send_replace(false);
        }
        let due = now + self.faults.connecting();
        self.push(due, Job::Connect { at });
    }

    /// Replaces a connection that has ended. The server forgets what was under way on it.
    pub(super) fn connect(&mut self, at: At, now: Instant) {
        if !self.is_up {
            return self.push(now + CONNECTS_EVERY, Job::Connect { at });
        }
        let number = self.last_connection + 1;
        let Some(connection) = self.present(at) else {
            return;
        };
        *connection = Connection::new(number, now);
        self.last_connection = number;
        if at.side == Side::Subscriptions {
            return self.restore(at.client, now);
        }
        if let Some(link) = self.links.get_mut(&at.client) {
            // The calls of the old connection end without an answer.
            link.calls.retain(|_, call| call.connection == number);
            link.is_up.send_replace(true);
            link.events.reconnected();
        }
    }

    /// Subscribes to all wanted channels on a new connection.
    pub(super) fn restore(&mut self, client: u64, now: Instant) {
        self.forget_subscriptions(client);
        let Some(link) = self.links.get_mut(&client) else {
            return;
        };
        let channels: Vec<Bytes> = link.channels.keys().cloned().collect();
        link.restoring = channels.len();
        if channels.is_empty() {
            link.events.missed();
        }
        for channel in channels {
            self.subscribe(client, channel, true, now);
        }
    }

    /// Removes a client that has closed.
    pub(super) fn close(&mut self, client: u64) {
        self.forget_subscriptions(client);
        if let Some(link) = self.links.remove(&client) {
            link.is_up.send_replace(false);
        }
    }
}
