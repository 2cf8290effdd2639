//! The channels of a server and the connections that listen to them.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{ConnectionId, Delivery, glob};

/// The three kinds of subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Channel,
    Pattern,
    Shard,
}

/// Listeners by the kind and the channel, in the order in which they subscribed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Subscriptions {
    channels: BTreeMap<Bytes, Vec<ConnectionId>>,
    patterns: BTreeMap<Bytes, Vec<ConnectionId>>,
    shards: BTreeMap<Bytes, Vec<ConnectionId>>,
}

impl Subscriptions {
    fn of(&mut self, kind: Kind) -> &mut BTreeMap<Bytes, Vec<ConnectionId>> {
        match kind {
            Kind::Channel => &mut self.channels,
            Kind::Pattern => &mut self.patterns,
            Kind::Shard => &mut self.shards,
        }
    }

    fn these(&self, kind: Kind) -> &BTreeMap<Bytes, Vec<ConnectionId>> {
        match kind {
            Kind::Channel => &self.channels,
            Kind::Pattern => &self.patterns,
            Kind::Shard => &self.shards,
        }
    }

    pub(crate) fn add(&mut self, kind: Kind, channel: &[u8], connection: ConnectionId) {
        let of = self.of(kind);
        match of.get_mut(channel) {
            Some(listeners) if listeners.contains(&connection) => {}
            Some(listeners) => listeners.push(connection),
            None => drop(of.insert(Bytes::copy_from_slice(channel), vec![connection])),
        }
    }

    pub(crate) fn remove(&mut self, kind: Kind, channel: &[u8], connection: ConnectionId) {
        let of = self.of(kind);
        let Some(listeners) = of.get_mut(channel) else {
            return;
        };
        listeners.retain(|listener| *listener != connection);
        if listeners.is_empty() {
            of.remove(channel);
        }
    }

    /// Ends all subscriptions to a channel, and returns the connections that had them.
    pub(crate) fn take(&mut self, kind: Kind, channel: &[u8]) -> Vec<ConnectionId> {
        self.of(kind).remove(channel).unwrap_or_default()
    }

    /// The channels or patterns of a connection, in their order.
    pub(crate) fn of_connection(&self, kind: Kind, connection: ConnectionId) -> Vec<Bytes> {
        let all = self.these(kind).iter();
        let of = all.filter(|(_, listeners)| listeners.contains(&connection));
        of.map(|(channel, _)| channel.clone()).collect()
    }

    pub(crate) fn remove_all(&mut self, connection: ConnectionId) {
        for kind in [Kind::Channel, Kind::Pattern, Kind::Shard] {
            for channel in self.of_connection(kind, connection) {
                self.remove(kind, &channel, connection);
            }
        }
    }

    /// The number of listeners of one channel.
    pub(crate) fn count(&self, kind: Kind, channel: &[u8]) -> usize {
        self.these(kind).get(channel).map_or(0, Vec::len)
    }

    /// The channels that have listeners and match a pattern.
    pub(crate) fn names(&self, kind: Kind, pattern: &[u8]) -> Vec<Bytes> {
        let names = self.these(kind).keys();
        names
            .filter(|name| glob::matches(pattern, name))
            .cloned()
            .collect()
    }

    /// The number of patterns that have listeners.
    pub(crate) fn patterns(&self) -> usize {
        self.patterns.len()
    }

    /// Adds a delivery for each listener of a channel.
    pub(crate) fn deliver(
        &self,
        channel: &[u8],
        payload: &Bytes,
        sharded: bool,
        deliveries: &mut Vec<Delivery>,
    ) {
        let kind = if sharded { Kind::Shard } else { Kind::Channel };
        if let Some((name, listeners)) = self.these(kind).get_key_value(channel) {
            deliveries.extend(listeners.iter().map(|listener| Delivery {
                connection: *listener,
                channel: name.clone(),
                pattern: None,
                payload: payload.clone(),
            }));
        }
        if !sharded && !self.patterns.is_empty() {
            self.deliver_by_pattern(channel, payload, deliveries);
        }
    }

    fn deliver_by_pattern(&self, channel: &[u8], payload: &Bytes, deliveries: &mut Vec<Delivery>) {
        let name = Bytes::copy_from_slice(channel);
        let patterns = self.patterns.iter();
        for (pattern, listeners) in patterns.filter(|(pattern, _)| glob::matches(pattern, channel))
        {
            deliveries.extend(listeners.iter().map(|listener| Delivery {
                connection: *listener,
                channel: name.clone(),
                pattern: Some(pattern.clone()),
                payload: payload.clone(),
            }));
        }
    }
}
