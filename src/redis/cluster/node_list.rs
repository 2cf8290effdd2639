//! The answer of a node to `CLUSTER NODES`.

use std::ops::RangeInclusive;

use crate::redis::{HashSlot, endpoint::Address};

const SLOTS: usize = crate::redis::SLOTS as usize;
/// The most nodes that are read from one report. Redis itself is designed for 1,000.
pub(super) const MOST_LISTED: usize = 2_000;
/// The longest id of a node, in bytes. Redis uses 40.
const LONGEST_ID: usize = 64;
/// The longest host, in bytes: the limit of DNS.
const LONGEST_HOST: usize = 255;

/// A node, from a line of `CLUSTER NODES`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) id: String,
    /// Its IP address and, if it has one, its host name.
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
pub(super) fn read(text: &str, asked: &Address) -> Option<Vec<Listed>> {
    let lines = text.lines().filter_map(|line| read_line(line, &asked.0));
    let listed: Vec<_> = lines.take(MOST_LISTED).collect();
    let claimed: usize = listed.iter().map(Listed::claimed).sum();
    (claimed <= SLOTS).then_some(listed)
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

fn read_line(line: &str, asked: &str) -> Option<Listed> {
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
        addresses: read_addresses(address, asked)?,
        master: has("slave").then(|| master.to_owned()),
        epoch,
        slots,
        is_reporter: has("myself"),
    };
    (node.claimed() <= SLOTS).then_some(node)
}

/// `ip:port@bus[,name[,more=..]]`. A node that does not know its own address yet is at `asked`.
fn read_addresses(text: &str, asked: &str) -> Option<Vec<Address>> {
    let mut parts = text.split(',');
    let (host, port) = parts.next()?.split('@').next()?.rsplit_once(':')?;
    let port = port.parse().ok().filter(|port| *port != 0)?;
    let host = if host.is_empty() { asked } else { host };
    let name = parts
        .next()
        .filter(|name| !name.is_empty() && !name.contains('='));
    let hosts = [Some(host), name].into_iter().flatten();
    let is_short = |host: &str| host.len() <= LONGEST_HOST;
    let address = |host: &str| is_short(host).then(|| (host.to_owned(), port));
    hosts.map(address).collect()
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

    /// Otherwise one line could repeat a range millions of times, and each of its slots takes a step.
    #[test]
    fn line_that_claims_more_slots_than_exist_is_left_out() {
        let read_ranges = |ranges: &str| {
            let line = format!("aaa h:1@1 master - 0 0 1 connected {ranges}");
            read(&line, &("h".into(), 1)).unwrap().len()
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
            read(&lines.concat(), &("h".into(), 1)).map(|listed| listed.len())
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
            read(&line, &("h".into(), 1)).unwrap().len()
        };
        assert_eq!(read_node(64, 64, 255, 255), 1);
        assert_eq!(read_node(65, 64, 255, 255), 0);
        assert_eq!(read_node(64, 65, 255, 255), 0);
        assert_eq!(read_node(64, 64, 256, 255), 0);
        assert_eq!(read_node(64, 64, 255, 256), 0);
    }
}
