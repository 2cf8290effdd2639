//! The answer of a node to `CLUSTER NODES`.

use std::ops::RangeInclusive;

use crate::redis::{HashSlot, endpoint::Address};

const SLOTS: usize = crate::redis::SLOTS as usize;
/// The most nodes that are read from one report. Redis itself is designed for 1,000.
pub(super) const MOST_LISTED: usize = 2_000;

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
}

/// Reads the answer of the node at `asked` to `CLUSTER NODES`. Leaves out malformed lines.
pub(super) fn read(text: &str, asked: &Address) -> Vec<Listed> {
    text.lines()
        .filter_map(|line| read_line(line, &asked.0))
        .take(MOST_LISTED)
        .collect()
}

fn read_line(line: &str, asked: &str) -> Option<Listed> {
    let mut words = line.split_ascii_whitespace();
    let (id, address, flags, master) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let epoch = words.nth(2)?.parse().ok()?;
    let slots = words.skip(1).filter_map(read_slots);
    // A range has a slot at least, so a longer list claims too many slots too.
    let slots: Vec<_> = slots.take(SLOTS + 1).collect();
    let claimed: usize = slots.iter().map(ExactSizeIterator::len).sum();
    let has = |flag| flags.split(',').any(|has| has == flag);
    if has("noaddr") || has("handshake") || claimed > SLOTS {
        return None;
    }
    Some(Listed {
        id: id.to_owned(),
        addresses: read_addresses(address, asked)?,
        master: has("slave").then(|| master.to_owned()),
        epoch,
        slots,
    })
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
    Some(hosts.map(|host| (host.to_owned(), port)).collect())
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
            read(&line, &("h".into(), 1)).len()
        };
        assert_eq!(read_ranges("0-8191 8192-16383"), 1);
        assert_eq!(read_ranges("0-16383 7"), 0);
        assert_eq!(read_ranges(&"7 ".repeat(SLOTS + 1)), 0);
    }
}
