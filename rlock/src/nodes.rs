//! The nodes of a cluster, as one of them lists them.

use redisson_lock::probe::{Address, Preferred as Host, Probe, ProbedNode};

use crate::{
    Failure,
    answers::{error, good, text},
    exit,
};

/// The slots of a cluster.
const SLOTS: u32 = 16_384;
/// The most nodes that are read from one report. Redis itself is designed for 1,000.
const MOST_LISTED: usize = 2_000;

/// A node, parsed from a line of `CLUSTER NODES`.
pub struct Listed {
    pub id: String,
    /// The node's address, by its IP address and, if it has one, by its host name.
    pub addresses: Vec<Address>,
    pub flags: Vec<String>,
    /// The id of its master, if it is a replica.
    pub follows: Option<String>,
    pub is_connected: bool,
    pub slots: u32,
}

impl Listed {
    pub fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|has| has == flag)
    }

    /// The node's address, for display.
    pub fn shown(&self) -> String {
        let address = self.addresses.first();
        address.map_or_else(String::new, |(host, port)| format!("{host}:{port}"))
    }

    /// Whether the node may have keys. A master without slots has keys while its first slot migrates to it.
    pub fn may_have_keys(&self) -> bool {
        self.is("master") && (self.slots > 0 || !self.is("fail"))
    }
}

/// The sorts of hosts by which nodes are tried. A host that does not answer takes seconds, for each node.
pub struct Hosts {
    preferred: Host,
    /// The best comes first.
    order: Vec<Host>,
    /// The host of the node that lists the nodes.
    asked: String,
}

impl Hosts {
    /// Begins with the host that the nodes prefer (`cluster-preferred-endpoint-type`). A user may lack the right to ask.
    pub async fn of(probe: &Probe, asked: &mut ProbedNode) -> Result<Self, Failure> {
        let slots = asked.ask("CLUSTER", &["SLOTS"]).await?;
        let asked = asked.host().unwrap_or_default().to_owned();
        let preferred = probe.preferred(&slots, &asked);
        let mut order = vec![Host::Ip, Host::Name];
        order.retain(|host| *host != preferred);
        order.insert(0, preferred.clone());
        Ok(Self {
            preferred,
            order,
            asked,
        })
    }

    /// The addresses at which a node may be reached.
    pub fn addresses(&self, node: &Listed) -> Vec<Address> {
        self.choices(node).map(|(_, address)| address).collect()
    }

    fn choices(&self, node: &Listed) -> impl Iterator<Item = (Host, Address)> {
        self.order.iter().filter_map(|host| {
            let address = match host {
                Host::Ip => node.addresses.first()?.clone(),
                Host::Name => node.addresses.get(1)?.clone(),
                Host::Asked(asked) => (asked.clone(), node.addresses.first()?.1),
            };
            Some((host.clone(), address))
        })
    }

    /// Connects to a node: first at an address that `--map` translates, then by the host that reached the node before.
    pub async fn reach(&mut self, probe: &Probe, node: &Listed) -> Result<ProbedNode, Failure> {
        let mut choices: Vec<_> = self.choices(node).collect();
        choices.sort_by_key(|(_, address)| probe.mapped(address) == *address);
        let mut failed = None;
        for (host, address) in choices {
            // From this machine, a host that the node does not prefer, or that of the URL, may lead to another server.
            let reached = match host == self.preferred && address.0 != self.asked {
                true => probe.at(&address).await,
                false => probe.node_at(&node.id, &address).await,
            };
            match reached {
                Ok(reached) => {
                    self.order.retain(|other| *other != host);
                    self.order.insert(0, host);
                    return Ok(reached);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        let mut failed = failed.map_or_else(|| Failure::silent(exit::UNAVAILABLE), Failure::from);
        failed.message += " (the cluster announces this node: if this machine reaches it at another address, as through a tunnel, give --map FROM=TO)";
        Err(failed)
    }
}

/// The nodes of a cluster as one node lists them.
pub async fn nodes(asked: &mut ProbedNode) -> Result<Vec<Listed>, Failure> {
    let answer = asked.ask("CLUSTER", &["NODES"]).await?;
    if error(&answer).is_some_and(|refused| refused.contains("cluster support disabled")) {
        let told = "the server of the URL is not a cluster node: use redis://";
        return Err(Failure::usage(told));
    }
    let text = text(&good(answer)?).unwrap_or_default();
    let host = asked.host().unwrap_or_default().to_owned();
    Ok(text
        .lines()
        .filter_map(|line| listed(line, &host))
        .take(MOST_LISTED)
        .collect())
}

fn listed(line: &str, asked: &str) -> Option<Listed> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let [id, address, flags, master, _, _, _, state, slots @ ..] = &words[..] else {
        return None;
    };
    let mut parts = address.split(',');
    let (host, port) = parts.next()?.split('@').next()?.rsplit_once(':')?;
    let host = if host.is_empty() { asked } else { host };
    let name = parts
        .next()
        .filter(|name| !name.is_empty() && !name.contains('='));
    let port = port.parse().ok()?;
    let slots = slots.iter().filter_map(|word| slots_of(word));
    // Each range has a slot at least, so a longer list claims too many slots too.
    let slots: u32 = slots.take(SLOTS as usize + 1).sum();
    let node = Listed {
        id: (*id).to_owned(),
        addresses: [Some(host), name]
            .into_iter()
            .flatten()
            .map(|host| (host.to_owned(), port))
            .collect(),
        flags: flags.split(',').map(str::to_owned).collect(),
        follows: (*master != "-").then(|| (*master).to_owned()),
        is_connected: *state == "connected",
        slots,
    };
    (slots <= SLOTS).then_some(node)
}

/// The number of slots in `7` or `0-5460`. A moving slot, in brackets, still belongs to the node that it leaves.
fn slots_of(word: &str) -> Option<u32> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && last < SLOTS).then(|| last - first + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read() {
        let master = "07c3 127.0.0.1:30004@31004,host1 myself,master - 0 1426238317239 4 connected 0-5460 7 [8->-e7d1]";
        let node = listed(master, "asked").unwrap();
        let at = |host: &str| (host.to_owned(), 30004);
        assert_eq!(node.addresses, [at("127.0.0.1"), at("host1")]);
        assert_eq!(
            (node.slots, node.is("master"), node.follows),
            (5462, true, None)
        );
        let replica = "67ed :30002@31002 slave,fail 07c3 0 1 2 disconnected";
        let node = listed(replica, "asked").unwrap();
        assert_eq!(node.addresses, [("asked".to_owned(), 30002)]);
        assert_eq!(node.follows.as_deref(), Some("07c3"));
        assert!(!node.is_connected && node.is("fail"));
        assert!(listed("odd", "asked").is_none());
    }

    #[test]
    fn slots_that_cannot_be_are_not_counted() {
        let count = |slots: &str| {
            let line = format!("07c3 h:1@1 master - 0 0 1 connected {slots}");
            listed(&line, "asked").map(|node| node.slots)
        };
        assert_eq!(count("0-16383"), Some(16_384));
        for odd in [
            "5-1",
            "0-16384",
            "0-4294967295",
            "4294967295-4294967295",
            "-1",
            "1-",
            "a-b",
        ] {
            assert_eq!(count(&format!("{odd} 7")), Some(1), "{odd}");
        }
        for too_many in ["0-16383 7", &"0-16383 ".repeat(1 << 18)] {
            assert_eq!(count(too_many), None);
        }
    }
}
