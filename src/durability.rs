//! How durable an acquisition is to be.

/// How many replicas are to have an acquisition before it counts: [`Config::durability`](crate::Config::durability) and
/// [`Lock::with_durability`](crate::Lock::with_durability).
///
/// Redis replicates after it has answered. A master that dies right then takes with it what it has just granted, and the
/// lock is free on its successor. To wait for replicas (`WAIT`) makes that less likely; it is excluded only where the
/// successor is sure to be one of those that have it, which takes [`Majority`](Self::Majority) and a failover that waits
/// for the most up-to-date replica. What is promised, and what a wait costs, is in
/// [docs/operations.md](https://docs.rs/crate/redisson-lock/latest/source/docs/operations.md).
///
/// Where fewer have acknowledged after [`Config::replica_wait`](crate::Config::replica_wait) than were wanted, the hold is
/// given back, and the answer is [`Error::Replication`](crate::Error::Replication). Renewals of a hold that was taken with
/// anything else than `Auto` or `Local` wait likewise: one that too few have acknowledged does not lengthen the hold.
///
/// A `redis://` URL and the like carry no topology: replicas that are down are not known, and only connected ones count.
///
/// They have no order: which of two asks for more depends on how many replicas there are.
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
    /// As Redisson: one replica of those that are connected, if there are any. With `redis://` and the like, as
    /// [`Local`](Self::Local).
    #[default]
    Auto,
    /// None.
    Local,
    /// So many.
    Replicas(u32),
    /// So many that they and the master are more than half of all, counting those that are down.
    Majority,
    /// All that there are, counting those that are down.
    All,
}

impl Durability {
    /// Renewals are to be as durable as the acquisition.
    pub(crate) fn of_renewals(self) -> Self {
        match self {
            Durability::Auto => Durability::Local,
            other => other,
        }
    }

    /// A number for each, for keys.
    pub(crate) fn key(self) -> (u8, u32) {
        match self {
            Durability::Auto => (0, 0),
            Durability::Local => (1, 0),
            Durability::Replicas(count) => (2, count),
            Durability::Majority => (3, 0),
            Durability::All => (4, 0),
        }
    }

    /// Whether to ask replicas at all, of which `listed` ones are known.
    pub(crate) fn waits(self, listed: usize) -> bool {
        match self {
            Durability::Local => false,
            Durability::Auto => listed > 0,
            _ => true,
        }
    }

    /// Which of them asks for most, of so many replicas. None of them is as none were asked for.
    pub(crate) fn strictest(of: impl IntoIterator<Item = Self>, listed: usize) -> Self {
        let most = of
            .into_iter()
            .max_by_key(|durability| (durability.wanted(None, listed), *durability != Self::Local));
        most.unwrap_or(Self::Local)
    }

    /// How many replicas are to acknowledge, of `connected` ones and `listed` ones, which count those that are down.
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
    fn it_is_read_from_a_configuration() {
        let read = |text| serde_json::from_str::<Durability>(text).unwrap();
        assert_eq!(read(r#""majority""#), Durability::Majority);
        assert_eq!(read(r#"{"replicas": 2}"#), Durability::Replicas(2));
        assert!(serde_json::from_str::<Durability>(r#""some""#).is_err());
    }
}
