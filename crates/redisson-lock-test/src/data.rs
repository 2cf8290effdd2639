//! The databases and subscriptions, which commands and scripts change.

use bytes::Bytes;

use super::{
    Delivery, Refusal, cluster::Membership, key_space::KeySpace, subscriptions::Subscriptions,
};

/// The number of databases.
const DATABASES: usize = 16;

/// The part of a server that a script can reach. It moves into the interpreter while a script runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Data {
    databases: Vec<KeySpace>,
    /// The database of the running command.
    pub(crate) selected: usize,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) refusal: Option<Refusal>,
    /// The messages of the running command.
    pub(crate) deliveries: Vec<Delivery>,
    /// The number of write commands that ran, failed ones included.
    pub(crate) writes: u64,
    /// The cluster that the server is a node of.
    pub(crate) cluster: Option<Box<Membership>>,
    /// The messages of the running command for all nodes of the cluster: channels and payloads.
    pub(crate) relayed: Vec<(Bytes, Bytes)>,
}

/// The keys of all databases at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Snapshot(Vec<KeySpace>);

impl Snapshot {
    /// The live keys of the first database that differ from another snapshot.
    pub(crate) fn differing(&self, other: &Self, now: u64) -> Vec<Bytes> {
        let (Some(own), Some(others)) = (self.0.first(), other.0.first()) else {
            return Vec::new();
        };
        let mut names = own.names(b"*", now);
        names.extend(others.names(b"*", now));
        names.sort_unstable();
        names.dedup();
        names.retain(|name| own.peek(name, now) != others.peek(name, now));
        names
    }
}

impl Data {
    pub(crate) fn new() -> Self {
        Self {
            databases: vec![KeySpace::default(); DATABASES],
            ..Self::default()
        }
    }

    /// The keys of the selected database.
    pub(crate) fn keys(&mut self) -> &mut KeySpace {
        &mut self.databases[self.selected]
    }

    /// Whether the selected database has this key.
    pub(crate) fn has(&self, key: &[u8], now: u64) -> bool {
        self.databases[self.selected].peek(key, now).is_some()
    }

    /// The keys of a database.
    pub(crate) fn database(&self, number: usize) -> Option<&KeySpace> {
        self.databases.get(number)
    }

    /// All keys as they are now, for replicas.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot(self.databases.clone())
    }

    /// Replaces all keys by those of another server.
    pub(crate) fn restore(&mut self, snapshot: &Snapshot) {
        self.databases.clone_from(&snapshot.0);
    }

    pub(crate) fn clear_all(&mut self) {
        self.databases.iter_mut().for_each(KeySpace::clear);
    }

    /// Sends a message to the subscribers of a channel, and returns their number.
    pub(crate) fn publish(&mut self, channel: &[u8], payload: &[u8], sharded: bool) -> i64 {
        let before = self.deliveries.len();
        let payload = Bytes::copy_from_slice(payload);
        if self.cluster.is_some() && !sharded {
            let channel = Bytes::copy_from_slice(channel);
            self.relayed.push((channel, payload.clone()));
        }
        self.subscriptions
            .deliver(channel, &payload, sharded, &mut self.deliveries);
        i64::try_from(self.deliveries.len() - before).unwrap_or(i64::MAX)
    }
}
