//! The slots of a cluster's node: which commands it runs, and where it redirects the rest.

mod membership;
mod slots;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use super::{
    Data, Failure,
    command::{Action, Command},
    number::integer,
};
pub(crate) use membership::{Membership, NodeIndex};
pub(crate) use slots::{HashSlot, hash_slot};

/// The error of a server without cluster support.
pub(crate) const DISABLED: &str = "ERR This instance has cluster support disabled";

/// Why a node does not run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// No node has the slot.
    Unserved,
    /// The node serves no slot at the moment.
    Down,
    CrossSlot,
    TryAgain,
    Ask(HashSlot, NodeIndex),
    Moved(HashSlot, NodeIndex),
}

impl Redirect {
    /// The error for a client.
    pub(crate) fn message(&self, cluster: &Membership) -> Failure {
        let at = |node: NodeIndex| {
            let (host, port) = cluster.address(node);
            format!("{host}:{port}")
        };
        match *self {
            Self::Unserved => "CLUSTERDOWN Hash slot not served".into(),
            Self::Down => "CLUSTERDOWN The cluster is down".into(),
            Self::CrossSlot => "CROSSSLOT Keys in request don't hash to the same slot".into(),
            Self::TryAgain => "TRYAGAIN Multiple keys request during rehashing of slot".into(),
            Self::Ask(slot, node) => format!("ASK {slot} {}", at(node)).into(),
            Self::Moved(slot, node) => format!("MOVED {slot} {}", at(node)).into(),
        }
    }

    /// The error for a script, which is not redirected.
    fn message_in_script(&self) -> &'static str {
        match self {
            Self::Down => "ERR Script attempted to execute a command while the cluster is down",
            _ => "ERR Script attempted to access a non local key in a cluster node",
        }
    }
}

/// The keys of a command, or its sharded channels.
fn keys<'a, 'b>(command: &Command, args: &'a [&'b [u8]]) -> &'a [&'b [u8]] {
    let first = &args[..args.len().min(1)];
    match command.name {
        "eval" | "evalsha" => {
            let count = args.get(1).and_then(|count| integer(count));
            let count = count.and_then(|count| usize::try_from(count).ok());
            count
                .and_then(|count| args.get(2..2 + count))
                .unwrap_or(&[])
        }
        "exists" | "del" | "unlink" | "mget" | "ssubscribe" | "sunsubscribe" => args,
        "publish" | "ping" | "echo" | "time" | "keys" | "scan" | "dbsize" | "flushdb"
        | "flushall" => &[],
        _ if matches!(command.action, Action::Data(_)) => first,
        _ => &[],
    }
}

fn is_of_shard(command: &Command) -> bool {
    matches!(command.name, "spublish" | "ssubscribe" | "sunsubscribe")
}

/// The slot of a command that the node may run. `None` without a slot, or without a cluster.
pub(crate) fn route(
    data: &Data,
    command: &Command,
    args: &[&[u8]],
    now: u64,
) -> Result<Option<HashSlot>, Redirect> {
    let Some(cluster) = &data.cluster else {
        return Ok(None);
    };
    let keys = keys(command, args);
    let Some((first, others)) = keys.split_first() else {
        return Ok(None);
    };
    let slot = hash_slot(first);
    let owner = cluster.owner(slot).ok_or(Redirect::Unserved)?;
    if others.iter().any(|key| hash_slot(key) != slot) {
        return Err(Redirect::CrossSlot);
    }
    let is_channel = is_of_shard(command);
    if cluster.is_down() && !is_channel {
        return Err(Redirect::Down);
    }
    let is_there = |key: &&&[u8]| is_channel || data.has(key, now);
    let there = keys.iter().filter(is_there).count();
    let lacks_some = there < keys.len();
    if let Some(to) = cluster.leaves_for(slot).filter(|_| lacks_some) {
        return Err(match there {
            0 => Redirect::Ask(slot, to),
            _ => Redirect::TryAgain,
        });
    }
    if cluster.is_arriving(slot) && cluster.asking {
        let several = others.iter().any(|key| key != first);
        return match several && lacks_some {
            true => Err(Redirect::TryAgain),
            false => Ok(Some(slot)),
        };
    }
    match owner == cluster.own() {
        true => Ok(Some(slot)),
        false => Err(Redirect::Moved(slot, owner)),
    }
}

/// Checks a command of a script: all its keys must be in the script's slot.
pub(crate) fn check_in_script(
    data: &Data,
    command: &Command,
    args: &[&[u8]],
    now: u64,
    of_script: &mut Option<HashSlot>,
) -> Result<(), Failure> {
    let routed = route(data, command, args, now);
    let slot = routed.map_err(|redirect| redirect.message_in_script())?;
    match slot {
        Some(slot) if *of_script.get_or_insert(slot) != slot => {
            Err("ERR Script attempted to access keys that do not hash to the same slot".into())
        }
        _ => Ok(()),
    }
}

/// Returns the `names` in a slot.
pub(crate) fn of_slot(names: Vec<Bytes>, slot: HashSlot) -> Vec<Bytes> {
    let of_slot = |name: &Bytes| hash_slot(name) == slot;
    names.into_iter().filter(of_slot).collect()
}
