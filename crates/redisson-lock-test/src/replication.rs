//! Replication from masters to replicas, with acknowledgements.
//!
//! After each write, a master sends a snapshot of all its keys. A replica that has received it has the effects of all writes up to
//! that one, as by Redis's replication stream. A snapshot arrives after a random lag, in the order of sending.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use fastrand::Rng;
use tokio::time::Instant;

use super::data::Snapshot;
use crate::Address;

/// A replica that a master knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownReplica {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) offset: u64,
}

/// The links between masters and replicas.
pub(super) struct Replication {
    random: Rng,
    /// The longest lag of a write, and of its acknowledgement.
    pub(super) lag: Duration,
    /// The fewest connected replicas with which a master accepts writes.
    pub(super) min_replicas: usize,
    streams: BTreeMap<Address, Stream>,
}

/// The replication stream of one master.
#[derive(Default)]
struct Stream {
    /// Its offset: the number of its writes.
    offset: u64,
    links: Vec<Link>,
}

/// The connection from a replica to its master.
struct Link {
    replica: Address,
    /// The link is broken, and the master has not noticed.
    is_severed: bool,
    /// Unacknowledged snapshots.
    sent: VecDeque<Sent>,
    /// The time at which everything sent is acknowledged.
    idle_from: Instant,
    received: Option<u64>,
    acknowledged: Option<u64>,
}

struct Sent {
    offset: u64,
    arrives: Instant,
    acknowledged: Instant,
    /// `None` once the replica has received it.
    keys: Option<Arc<Snapshot>>,
}

impl Link {
    /// Processes arrived snapshots. Returns the latest one, if it is new.
    fn catch_up(&mut self, now: Instant) -> Option<Arc<Snapshot>> {
        let mut latest = None;
        for sent in &mut self.sent {
            if sent.arrives <= now {
                self.received = Some(sent.offset);
                latest = sent.keys.take().or(latest);
            }
        }
        while let Some(first) = self.sent.front().filter(|first| first.acknowledged <= now) {
            self.acknowledged = Some(first.offset);
            self.sent.pop_front();
        }
        latest
    }

    /// The time at which the replica will have acknowledged an offset.
    fn acknowledges(&self, offset: u64) -> Option<Instant> {
        let covering = self.sent.iter().find(|sent| sent.offset >= offset);
        covering.map(|sent| sent.acknowledged)
    }
}

impl Replication {
    pub(super) fn new(random: Rng) -> Self {
        Self {
            random,
            lag: Duration::ZERO,
            min_replicas: 0,
            streams: BTreeMap::new(),
        }
    }

    fn stream(&mut self, master: &Address) -> &mut Stream {
        self.streams.entry(master.clone()).or_default()
    }

    /// Makes a server a master, at this offset.
    pub(super) fn begin(&mut self, master: &Address, offset: u64) {
        self.stream(master).offset = offset;
    }

    /// Sends a snapshot after a write to all replicas of a master. Returns the new offset.
    pub(super) fn send(&mut self, master: &Address, keys: Snapshot, now: Instant) -> u64 {
        let keys = Arc::new(keys);
        let (lag, random) = (self.lag, &mut self.random);
        let stream = self.streams.entry(master.clone()).or_default();
        stream.offset += 1;
        for link in &mut stream.links {
            if !link.is_severed {
                put(link, stream.offset, keys.clone(), now, lag, random);
            }
        }
        stream.offset
    }

    /// Makes a replica follow a master, and sends it a full snapshot.
    pub(super) fn attach(
        &mut self,
        master: &Address,
        replica: &Address,
        keys: Snapshot,
        now: Instant,
    ) {
        self.detach(replica);
        let mut link = Link {
            replica: replica.clone(),
            is_severed: false,
            sent: VecDeque::new(),
            idle_from: now,
            received: None,
            acknowledged: None,
        };
        let (lag, random) = (self.lag, &mut self.random);
        let stream = self.streams.entry(master.clone()).or_default();
        put(&mut link, stream.offset, Arc::new(keys), now, lag, random);
        stream.links.push(link);
    }

    /// Ends the replication to a replica. Returns its offset, or `None` if it never received a full snapshot.
    pub(super) fn detach(&mut self, replica: &Address) -> Option<u64> {
        let mut received = None;
        for stream in self.streams.values_mut() {
            let mut leaving = stream.links.extract_if(.., |link| link.replica == *replica);
            received = leaving.next().and_then(|link| link.received).or(received);
        }
        received
    }

    /// Ends the replication from a master.
    pub(super) fn end(&mut self, master: &Address) {
        self.streams.remove(master);
    }

    /// Breaks all links of a server without notice.
    pub(super) fn sever(&mut self, server: &Address) {
        for (master, stream) in &mut self.streams {
            for link in &mut stream.links {
                if master == server || link.replica == *server {
                    link.is_severed = true;
                    link.sent.clear();
                }
            }
        }
    }

    /// Whether a replica receives all writes of this master.
    pub(super) fn follows(&self, master: &Address, replica: &Address) -> bool {
        let links = self
            .streams
            .get(master)
            .map_or(&[][..], |stream| &stream.links);
        let mut links = links.iter();
        links.any(|link| link.replica == *replica && !link.is_severed)
    }

    /// The offset of a replica; `None` if it never received a full snapshot.
    pub(super) fn received(&self, replica: &Address) -> Option<u64> {
        let mut links = self.streams.values().flat_map(|stream| &stream.links);
        links.find(|link| link.replica == *replica)?.received
    }

    /// The snapshots that replicas have received and not applied.
    pub(super) fn catch_up(&mut self, now: Instant) -> Vec<(Address, Arc<Snapshot>)> {
        let links = self
            .streams
            .values_mut()
            .flat_map(|stream| &mut stream.links);
        let arrived = links.filter_map(|link| Some((link.replica.clone(), link.catch_up(now)?)));
        arrived.collect()
    }

    /// The number of replicas whose acknowledgement of an offset has reached the master.
    pub(super) fn acknowledged(&mut self, master: &Address, offset: u64) -> usize {
        let links = self.stream(master).links.iter();
        links
            .filter(|link| link.acknowledged.is_some_and(|has| has >= offset))
            .count()
    }

    /// The time at which this many replicas will have acknowledged an offset.
    pub(super) fn expected(
        &mut self,
        master: &Address,
        offset: u64,
        wanted: usize,
    ) -> Option<Instant> {
        let missing = wanted.checked_sub(self.acknowledged(master, offset) + 1)?;
        let links = self.stream(master).links.iter();
        let behind = links.filter(|link| link.acknowledged.is_none_or(|has| has < offset));
        let mut times: Vec<Instant> = behind
            .filter_map(|link| link.acknowledges(offset))
            .collect();
        times.sort_unstable();
        times.get(missing).copied()
    }

    /// The offset of a master, and its synchronized replicas.
    pub(super) fn report(&mut self, master: &Address) -> (u64, Vec<KnownReplica>) {
        let stream = self.stream(master);
        let online = stream.links.iter().filter_map(|link| {
            let (host, port) = link.replica.clone();
            let offset = link.acknowledged?;
            Some(KnownReplica { host, port, offset })
        });
        (stream.offset, online.collect())
    }
}

/// Sends a snapshot.
fn put(
    link: &mut Link,
    offset: u64,
    keys: Arc<Snapshot>,
    now: Instant,
    lag: Duration,
    random: &mut Rng,
) {
    let mut way = || lag.mul_f64(random.f64());
    let last = link.sent.back().map_or(now, |last| last.arrives);
    let arrives = (now + way()).max(last);
    let acknowledged = (arrives + way()).max(link.idle_from);
    link.idle_from = acknowledged;
    link.sent.push_back(Sent {
        offset,
        arrives,
        acknowledged,
        keys: Some(keys),
    });
}
