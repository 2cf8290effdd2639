//! How many replicas must acknowledge an acquisition.

use std::sync::Arc;

/// How many replicas must acknowledge an acquisition: [`Config::durability`](crate::Config::durability) and
/// [`Lock::with_durability`](crate::Lock::with_durability).
///
/// Redis answers before it replicates. A master can therefore die just after a grant, and the lock is free on its successor. A
/// wait for replicas (`WAIT`) makes that less likely. With [`Majority`](Self::Majority) and [`All`](Self::All), a failover that most
/// servers take part in finds a server with the hold and prefers it. That is not a proof: `WAIT` is no consensus, and received data
/// is not yet on a replica's disk.
/// [docs/guarantees.md](https://docs.rs/crate/redisson-lock/latest/source/docs/guarantees.md) lists the promises,
/// [docs/operations.md](https://docs.rs/crate/redisson-lock/latest/source/docs/operations.md) the costs.
///
/// If too few replicas have acknowledged after [`Config::replica_wait`](crate::Config::replica_wait), the client releases the hold
/// and returns [`Error::Replication`](crate::Error::Replication). Renewals wait in the same way, except with `Auto` and `Local`. A
/// renewal with too few acknowledgements does not extend the validity. With
/// [`Config::check_replicas`](crate::Config::check_replicas) `false`, no renewal waits.
///
/// A server without `WAIT`, or a user without the right to it, is logged. [`Auto`](Self::Auto) then goes on without; any value that
/// demands replicas is [`Error::Redis`](crate::Error::Redis) with the server's words.
///
/// A `redis://` URL contains no topology: only connected replicas count, because the client knows of no down replica.
/// With `redis-replicated://`, replicas that are down count only if the URL names them.
///
/// Values have no order: which of two needs more acknowledgements depends on the number of replicas.
///
/// As configuration: `"auto"`, `"local"`, `"majority"`, `"all"`, or `{ "replicas": 2 }`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(rename_all = "lowercase")
)]
#[non_exhaustive]
pub enum Durability {
    /// One replica, if any is connected, as in Redisson. With a single server (`redis://`), as [`Local`](Self::Local).
    #[default]
    Auto,
    /// No replica.
    Local,
    /// This many replicas.
    Replicas(u32),
    /// Enough replicas that they and the master are more than half of all servers, including servers that are down.
    Majority,
    /// All replicas, including those that are down.
    All,
}

impl Durability {
    /// The durability of renewals: `Auto` waits for replicas at the acquisition alone, as Redisson does.
    pub(crate) fn of_renewals(self) -> Self {
        match self {
            Durability::Auto => Durability::Local,
            other => other,
        }
    }

    /// A different pair of numbers for each value, as a map key.
    pub(crate) fn key(self) -> (u8, u32) {
        match self {
            Durability::Auto => (0, 0),
            Durability::Local => (1, 0),
            Durability::Replicas(count) => (2, count),
            Durability::Majority => (3, 0),
            Durability::All => (4, 0),
        }
    }

    /// Whether to wait for replicas at all, if the client knows of `listed` ones.
    pub(crate) fn waits(self, listed: usize) -> bool {
        match self {
            Durability::Local => false,
            Durability::Auto => listed > 0,
            _ => true,
        }
    }

    /// Returns the value that needs the most acknowledgements of `listed` replicas; `Local` if there are no values.
    pub(crate) fn strictest(of: impl IntoIterator<Item = Self>, listed: usize) -> Self {
        let most = of
            .into_iter()
            .max_by_key(|durability| (durability.wanted(None, listed), *durability != Self::Local));
        most.unwrap_or(Self::Local)
    }

    /// How many replicas must acknowledge. `listed` includes replicas that are down; `connected` is `None` if unknown.
    pub(crate) fn wanted(self, connected: Option<usize>, listed: usize) -> u32 {
        let all = listed.max(connected.unwrap_or(0)) as u32;
        match self {
            Durability::Auto => connected.unwrap_or(listed).min(1) as u32,
            Durability::Local => 0,
            Durability::Replicas(count) => count,
            Durability::Majority => all.div_ceil(2),
            Durability::All => all,
        }
    }
}

/// The number of replicas that have a call's writes, and the number that was required.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acknowledged {
    pub(crate) by: u32,
    pub(crate) wanted: u32,
    /// The number of replicas that were connected to the master, if it tells.
    pub(crate) connected: Option<u32>,
    /// The words of a server that does not wait for replicas.
    pub(crate) refused: Option<Arc<str>>,
}

impl Acknowledged {
    /// The result where the server does not wait for replicas. `None` if the durability can do without.
    pub(crate) fn without_wait(
        durability: Durability,
        wanted: u32,
        words: &Arc<str>,
    ) -> Option<Self> {
        let is_demanded = wanted > 0 && !matches!(durability, Durability::Local | Durability::Auto);
        is_demanded.then(|| Self {
            by: 0,
            wanted,
            connected: None,
            refused: Some(words.clone()),
        })
    }

    pub(crate) fn is_enough(&self) -> bool {
        self.by >= self.wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn with_the_master_a_majority_is_more_than_half() {
        for replicas in 0..20 {
            let wanted = Durability::Majority.wanted(Some(replicas), replicas) as usize;
            let servers = replicas + 1;
            assert!(2 * (wanted + 1) > servers, "{replicas}");
            assert!(wanted == 0 || 2 * wanted <= servers, "{replicas}");
        }
    }

    #[test]
    fn replicas_that_are_down_count_but_for_redissons_rule() {
        let wanted = |durability: Durability| durability.wanted(Some(0), 2);
        assert_eq!(wanted(Durability::Auto), 0);
        assert_eq!(wanted(Durability::Majority), 1);
        assert_eq!(wanted(Durability::All), 2);
        assert_eq!(wanted(Durability::Replicas(5)), 5);
        assert_eq!(Durability::Auto.wanted(None, 2), 1);
        assert_eq!(Durability::All.wanted(Some(3), 2), 3);
    }

    #[test]
    fn the_strictest_asks_for_most_of_the_replicas_that_there_are() {
        use Durability::{All, Auto, Local, Majority, Replicas};
        let strictest =
            |of: &[Durability], listed| Durability::strictest(of.iter().copied(), listed);
        assert_eq!(strictest(&[Replicas(5), Majority], 4), Replicas(5));
        assert_eq!(strictest(&[Replicas(1), Majority], 4), Majority);
        assert_eq!(strictest(&[Replicas(5), All], 4), Replicas(5));
        assert_eq!(strictest(&[All, Replicas(3)], 4), All);
        assert_eq!(strictest(&[Auto, Local], 1), Auto);
        assert_eq!(strictest(&[Auto, Local], 0), Auto);
        assert_eq!(strictest(&[], 1), Local);
    }

    #[cfg(feature = "serde")]
    #[test]
    fn durability_is_read_from_a_configuration() {
        let read = |text| serde_json::from_str::<Durability>(text).unwrap();
        assert_eq!(read(r#""majority""#), Durability::Majority);
        assert_eq!(read(r#"{"replicas": 2}"#), Durability::Replicas(2));
        assert!(serde_json::from_str::<Durability>(r#""some""#).is_err());
    }
}
