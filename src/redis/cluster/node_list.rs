//! The answer of a node to `CLUSTER NODES`.

use std::ops::RangeInclusive;

use crate::{
    hash::HashMap,
    redis::{HashSlot, endpoint::Address, frame},
    transport::Frame,
};

const SLOTS: usize = crate::redis::SLOTS as usize;
/// The most nodes that are read from one report. Redis itself is designed for 1,000.
pub(super) const MOST_LISTED: usize = 2_000;
/// The longest id of a node, in bytes. Redis uses 40.
const LONGEST_ID: usize = 64;
/// The longest host, in bytes: the limit of DNS.
const LONGEST_HOST: usize = 255;

/// The host by which the nodes have their clients reach them (`cluster-preferred-endpoint-type`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preferred {
    /// The IP address of each node.
    Ip,
    /// The host name of each node.
    Name,
    /// The one at which the client has asked, for every node.
    Asked(String),
}

impl Preferred {
    /// Reads the answer of the node at the host `asked` to `CLUSTER SLOTS`. The default serves nodes that tell nothing.
    pub(in crate::redis) fn of(slots: &Frame, asked: &str, is_encrypted: bool) -> Self {
        Self::read(slots, asked).unwrap_or(match is_encrypted {
            // Certificates have names in most places.
            true => Self::Name,
            false => Self::Ip,
        })
    }

    /// `None` if the node has no slots, refuses the question, or does not know its own address.
    fn read(slots: &Frame, asked: &str) -> Option<Self> {
        let Frame::List(ranges) = slots else {
            return None;
        };
        let nodes = ranges.iter().flat_map(|range| match range {
            Frame::List(parts) => parts.get(2..).unwrap_or_default(),
            _ => &[],
        });
        nodes.into_iter().find_map(|node| {
            let Frame::List(parts) = node else {
                return None;
            };
            let has_ip = parts
                .get(3)
                .is_some_and(|more| frame::map(more).contains_key("ip"));
            let host = parts.first()?;
            match frame::text(host).as_deref() {
                None if *host == Frame::Null => Some(Self::Asked(asked.to_owned())),
                // A node that does not know its own IP address yet.
                None | Some("") => None,
                // A node without a name among nodes that prefer names.
                Some("?") => Some(Self::Name),
                Some(_) if has_ip => Some(Self::Name),
                Some(_) => Some(Self::Ip),
            }
        })
    }
}

/// A node, from a line of `CLUSTER NODES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) id: String,
    /// The hosts by which it can be reached; the preferred one is the first.
    pub(super) addresses: Vec<Address>,
    /// The node that it follows, if it is a replica.
    pub(super) master: Option<String>,
    /// Of two nodes that claim a slot, the one with the later epoch owns it.
    pub(super) epoch: u64,
    pub(super) slots: Vec<RangeInclusive<HashSlot>>,
    /// Whether this node has made the report.
    pub(super) is_reporter: bool,
}

/// Reads the answer of the node at `asked` to `CLUSTER NODES`. Leaves out malformed lines. Returns `None` if the nodes claim more
/// slots than exist: a node reports one owner of each slot, and each claim takes time.
pub(super) fn read(text: &str, asked: &Address, preferred: &Preferred) -> Option<Vec<Listed>> {
    let lines = text.lines();
    let lines = lines.filter_map(|line| read_line(line, &asked.0, preferred));
    let mut listed: Vec<_> = lines.take(MOST_LISTED).collect();
    if let Preferred::Asked(host) = preferred {
        tell_apart(&mut listed, host);
    }
    let claimed: usize = listed.iter().map(Listed::claimed).sum();
    (claimed <= SLOTS).then_some(listed)
}

/// Removes the host that was asked from nodes that its port does not tell apart.
fn tell_apart(listed: &mut [Listed], host: &str) {
    let mut ports: HashMap<u16, usize> = HashMap::default();
    for node in &*listed {
        *ports.entry(node.addresses[0].1).or_default() += 1;
    }
    for node in listed {
        let is_shared = ports[&node.addresses[0].1] > 1;
        if is_shared && node.addresses.len() > 1 {
            node.addresses.retain(|(known, _)| known != host);
        }
    }
}

/// Whether any node has slots: a node that was reset, or joins no cluster yet, knows of none.
pub(super) fn have_slots(listed: &[Listed]) -> bool {
    listed.iter().any(|node| !node.slots.is_empty())
}

impl Listed {
    fn claimed(&self) -> usize {
        self.slots.iter().map(ExactSizeIterator::len).sum()
    }
}

fn read_line(line: &str, asked: &str, preferred: &Preferred) -> Option<Listed> {
    let mut words = line.split_ascii_whitespace();
    let (id, address, flags, master) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let epoch = words.nth(2)?.parse().ok()?;
    let slots = words.skip(1).filter_map(read_slots);
    // A range has a slot at least, so a longer list claims too many slots too.
    let slots: Vec<_> = slots.take(SLOTS + 1).collect();
    let has = |flag| flags.split(',').any(|has| has == flag);
    if has("noaddr") || has("handshake") || [id, master].iter().any(|id| id.len() > LONGEST_ID) {
        return None;
    }
    let node = Listed {
        id: id.to_owned(),
        addresses: read_addresses(address, asked, preferred)?,
        master: has("slave").then(|| master.to_owned()),
        epoch,
        slots,
        is_reporter: has("myself"),
    };
    (node.claimed() <= SLOTS).then_some(node)
}

/// `ip:port@bus[,name[,more=..]]`. A node that does not know its own address yet is at `asked`.
fn read_addresses(text: &str, asked: &str, preferred: &Preferred) -> Option<Vec<Address>> {
    let mut parts = text.split(',');
    let (ip, port) = parts.next()?.split('@').next()?.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let ip = Some(if ip.is_empty() { asked } else { ip });
    let name = parts
        .next()
        .filter(|name| !name.is_empty() && !name.contains('='));
    let hosts = match preferred {
        Preferred::Ip => [ip, name, None],
        Preferred::Name => [name, ip, None],
        Preferred::Asked(host) => [Some(&**host), ip, name],
    };
    let mut addresses: Vec<Address> = Vec::new();
    for host in hosts.into_iter().flatten() {
        if host.len() > LONGEST_HOST {
            return None;
        }
        if addresses.iter().all(|(known, _)| known != host) {
            addresses.push((host.to_owned(), port));
        }
    }
    Some(addresses)
}

/// `7` or `0-5460`. A moving slot, in brackets, still belongs to the node that it leaves.
fn read_slots(word: &str) -> Option<RangeInclusive<HashSlot>> {
    let (first, last) = word.split_once('-').unwrap_or((word, word));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && usize::from(last) < SLOTS).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preferred_address_comes_first() {
        let line = "aaa 10.0.0.1:7001@1,one.example master - 0 0 1 connected 0";
        let hosts = |line: &str, preferred| {
            let listed = read(line, &("asked".into(), 1), &preferred).unwrap();
            let addresses = listed[0].addresses.iter();
            addresses.map(|(host, _)| host.clone()).collect::<Vec<_>>()
        };
        assert_eq!(hosts(line, Preferred::Ip), ["10.0.0.1", "one.example"]);
        assert_eq!(hosts(line, Preferred::Name), ["one.example", "10.0.0.1"]);
        let asked = || Preferred::Asked("balancer".into());
        let all = ["balancer", "10.0.0.1", "one.example"];
        assert_eq!(hosts(line, asked()), all);
        let unnamed = "aaa :7001@1,,shard-id=1 master - 0 0 1 connected 0";
        assert_eq!(hosts(unnamed, Preferred::Name), ["asked"]);
        let repeated = "aaa balancer:7001@1,balancer master - 0 0 1 connected 0";
        assert_eq!(hosts(repeated, asked()), ["balancer"]);
    }

    /// Otherwise all of them would be reached at one address.
    #[test]
    fn nodes_with_one_port_do_not_share_the_host_that_was_asked() {
        let nodes = "aaa 10.0.0.1:7001@1 myself,master - 0 0 1 connected 0\n\
                     bbb 10.0.0.2:7001@1 master - 0 0 1 connected 1\n\
                     ccc 10.0.0.3:7003@1 master - 0 0 1 connected 2\n";
        let asked = Preferred::Asked("balancer".into());
        let listed = read(nodes, &("balancer".into(), 1), &asked).unwrap();
        let first: Vec<_> = listed.iter().map(|node| &*node.addresses[0].0).collect();
        assert_eq!(first, ["10.0.0.1", "10.0.0.2", "balancer"]);
    }

    #[test]
    fn the_preference_is_read_from_the_list_of_slots() {
        let text = |text: &'static str| Frame::Text(text.into());
        let slots = |host: Frame, more: &[&'static str]| {
            let more = more.iter().map(|word| text(word)).collect();
            let node = [host, Frame::Number(7001), text("aaa"), Frame::List(more)];
            let range = [Frame::Number(0), Frame::Number(1), Frame::List(node.into())];
            Frame::List(vec![Frame::List(range.into())])
        };
        let read = |slots: &Frame| {
            [false, true].map(|is_encrypted| Preferred::of(slots, "asked", is_encrypted))
        };
        let both = |preferred: Preferred| [preferred.clone(), preferred];
        let by_ip = text("10.0.0.1");
        let name = ["hostname", "one.example"];
        assert_eq!(read(&slots(by_ip.clone(), &[])), both(Preferred::Ip));
        assert_eq!(read(&slots(by_ip, &name)), both(Preferred::Ip));
        let ip = ["ip", "10.0.0.1"];
        let by_name = slots(text("one.example"), &ip);
        assert_eq!(read(&by_name), both(Preferred::Name));
        assert_eq!(read(&slots(text("?"), &ip)), both(Preferred::Name));
        let asked = both(Preferred::Asked("asked".into()));
        assert_eq!(read(&slots(Frame::Null, &ip)), asked);
        let short = Frame::List(vec![Frame::List(vec![Frame::Number(0)])]);
        let refused = Frame::Error("NOPERM no".into());
        // Before `CLUSTER MEET`, a node does not know its own address.
        let unmet = slots(text(""), &[]);
        for odd in [short, refused, unmet, Frame::List(Vec::new()), Frame::Null] {
            assert_eq!(read(&odd), [Preferred::Ip, Preferred::Name], "{odd:?}");
        }
    }

    /// Otherwise one line could repeat a range millions of times, and each of its slots takes a step.
    #[test]
    fn line_that_claims_more_slots_than_exist_is_left_out() {
        let read_ranges = |ranges: &str| {
            let line = format!("aaa h:1@1 master - 0 0 1 connected {ranges}");
            read(&line, &("h".into(), 1), &Preferred::Ip).unwrap().len()
        };
        assert_eq!(read_ranges("0-8191 8192-16383"), 1);
        assert_eq!(read_ranges("0-16383 7"), 0);
        assert_eq!(read_ranges(&"7 ".repeat(SLOTS + 1)), 0);
    }

    /// Otherwise 2,000 lines could claim all slots each.
    #[test]
    fn report_that_claims_more_slots_than_exist_is_refused() {
        let read_all = |ranges: [&str; 2]| {
            let lines =
                ranges.map(|range| format!("{range} h:1@1 master - 0 0 1 connected {range}\n"));
            read(&lines.concat(), &("h".into(), 1), &Preferred::Ip).map(|listed| listed.len())
        };
        assert_eq!(read_all(["0-8191", "8192-16383"]), Some(2));
        assert_eq!(read_all(["0-8192", "8192-16383"]), None);
    }

    /// The client remembers thousands of nodes, and compares their ids and addresses.
    #[test]
    fn node_with_a_long_id_or_host_is_left_out() {
        let read_node = |id: usize, master: usize, host: usize, name: usize| {
            let [id, master, host, name] =
                [id, master, host, name].map(|length| "x".repeat(length));
            let line = format!("{id} {host}:1@1,{name} slave {master} 0 0 1 connected");
            read(&line, &("h".into(), 1), &Preferred::Ip).unwrap().len()
        };
        assert_eq!(read_node(64, 64, 255, 255), 1);
        assert_eq!(read_node(65, 64, 255, 255), 0);
        assert_eq!(read_node(64, 65, 255, 255), 0);
        assert_eq!(read_node(64, 64, 256, 255), 0);
        assert_eq!(read_node(64, 64, 255, 256), 0);
    }
}
