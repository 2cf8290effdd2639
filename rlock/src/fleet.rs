//! The servers that a URL names, and helpers that read their answers.

use std::collections::{BTreeMap, BTreeSet};

use redisson_lock::probe::{Address, Frame, Probe, ProbedNode, SetUp, is_transient};

use crate::{Failure, exit};

/// Commands that are sent in one batch.
pub type Commands = Vec<(&'static str, Vec<Vec<u8>>)>;

/// The slots of a cluster.
const SLOTS: u32 = 16_384;
/// The most nodes that are read from one report. Redis itself is designed for 1,000.
const MOST_LISTED: usize = 2_000;
/// The redirections to follow: to the owner of a slot, and to the node to which the slot migrates.
const MOST_REDIRECTIONS: u32 = 2;

/// Connections to the masters that have the keys.
pub struct Fleet {
    pub masters: Vec<ProbedNode>,
    set_up: SetUp,
    /// What the masters of a cluster announce, in their order.
    announced: Vec<Vec<Address>>,
    /// The ids of a cluster's masters.
    ids: BTreeSet<String>,
}

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
    fn may_have_keys(&self) -> bool {
        self.is("master") && (self.slots > 0 || !self.is("fail"))
    }
}

impl Fleet {
    pub async fn connect(probe: &Probe) -> Result<Self, Failure> {
        let mut first = probe.master().await?;
        let mut fleet = Self {
            masters: Vec::new(),
            set_up: probe.set_up().clone(),
            announced: Vec::new(),
            ids: BTreeSet::new(),
        };
        if !fleet.is_cluster() {
            fleet.masters.push(first);
            return Ok(fleet);
        }
        let mut listed = nodes(&mut first).await?;
        listed.retain(Listed::may_have_keys);
        for node in listed {
            match reach(probe, &node.addresses).await {
                Ok(master) => {
                    fleet.masters.push(master);
                    fleet.announced.push(node.addresses);
                }
                // The rest of the cluster does not depend on a master without slots.
                Err(_) if node.slots == 0 => {}
                Err(failure) => return Err(failure),
            }
            fleet.ids.insert(node.id);
        }
        Ok(fleet)
    }

    pub fn is_cluster(&self) -> bool {
        self.set_up == SetUp::Cluster
    }

    /// Whether these are still the masters. A connection to a demoted master stays open.
    pub async fn is_current(&mut self) -> Result<bool, Failure> {
        let Some(first) = self.masters.first_mut() else {
            return Ok(false);
        };
        match self.set_up {
            SetUp::Single => Ok(true),
            SetUp::Sentinel(_) | SetUp::Replicated => {
                let role = good(first.ask("ROLE", &[""; 0]).await?)?;
                Ok(list(&role).first().and_then(text).as_deref() == Some("master"))
            }
            SetUp::Cluster => {
                let mut listed = nodes(first).await?;
                listed.retain(Listed::may_have_keys);
                Ok(self.ids == listed.into_iter().map(|node| node.id).collect())
            }
        }
    }

    /// Sends commands for keys to a master. Follows redirections: a key of a slot that migrates may be at the other node.
    pub async fn ask_all(
        &mut self,
        master: usize,
        commands: Commands,
    ) -> Result<Vec<Frame>, Failure> {
        let mut answers = self.masters[master].ask_all(commands.clone()).await?;
        for _ in 0..MOST_REDIRECTIONS {
            let mut redirected = BTreeMap::<_, Vec<_>>::new();
            for (index, answer) in answers.iter().enumerate() {
                if let Some(to) = self.redirection(answer) {
                    redirected.entry(to).or_default().push(index);
                }
            }
            for (to, indices) in redirected {
                // The owner of a slot ignores ASKING. The node to which it migrates requires it.
                let again = indices
                    .iter()
                    .flat_map(|index| [("ASKING", Vec::new()), commands[*index].clone()]);
                let again = self.masters[to].ask_all(again.collect()).await?;
                let mut again = again.into_iter();
                for index in indices {
                    let (Some(asking), Some(answer)) = (again.next(), again.next()) else {
                        break;
                    };
                    // A user without the right to ASKING would be redirected for ever.
                    answers[index] = match error(&asking) {
                        Some(_) => asking,
                        None => answer,
                    };
                }
            }
        }
        Ok(answers)
    }

    /// The master that an answer redirects to.
    fn redirection(&self, answer: &Frame) -> Option<usize> {
        let words: Vec<_> = error(answer)?.split(' ').collect();
        let ["MOVED" | "ASK", _, address] = words[..] else {
            return None;
        };
        let (host, port) = address.rsplit_once(':')?;
        let to: Address = (host.to_owned(), port.parse().ok()?);
        self.announced.iter().position(|own| own.contains(&to))
    }
}

/// Connects to the node that announces these addresses: first at one that `--map` translates.
async fn reach(probe: &Probe, announced: &[Address]) -> Result<ProbedNode, Failure> {
    let mut addresses: Vec<_> = announced.iter().collect();
    addresses.sort_by_key(|address| probe.mapped(address) == **address);
    let mut failed = Failure::silent(exit::UNAVAILABLE);
    for address in addresses {
        match probe.at(address).await {
            Ok(node) => return Ok(node),
            Err(error) => failed = error.into(),
        }
    }
    failed.message += " (the cluster announces this node: if this machine reaches it at another address, as through a tunnel, give --map FROM=TO)";
    Err(failed)
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

/// Returns the answer, or a failure if the server refused the command.
pub fn good(frame: Frame) -> Result<Frame, Failure> {
    match frame {
        Frame::Error(message) if message.starts_with("NOPERM") => Err(Failure {
            code: exit::FAILED,
            message: format!(
                "the user lacks a right that this verb needs (see the list in docs/rlock.md): {message}"
            ),
        }),
        Frame::Error(message) if is_transient(&message) => Err(Failure {
            code: exit::UNAVAILABLE,
            message: format!("Redis cannot answer at the moment: {message}"),
        }),
        Frame::Error(message) => Err(Failure {
            code: exit::FAILED,
            message: format!("Redis refused: {message}"),
        }),
        frame => Ok(frame),
    }
}

pub fn text(frame: &Frame) -> Option<String> {
    bytes(frame).map(|text| String::from_utf8_lossy(text).into_owned())
}

pub fn bytes(frame: &Frame) -> Option<&[u8]> {
    match frame {
        Frame::Text(text) | Frame::Status(text) => Some(text),
        _ => None,
    }
}

pub fn number(frame: &Frame) -> Option<i64> {
    match frame {
        Frame::Number(number) => Some(*number),
        frame => text(frame)?.parse().ok(),
    }
}

pub fn list(frame: &Frame) -> &[Frame] {
    match frame {
        Frame::List(frames) => frames,
        _ => &[],
    }
}

pub fn error(frame: &Frame) -> Option<&str> {
    match frame {
        Frame::Error(message) => Some(message),
        _ => None,
    }
}

/// The names and values of an answer, in RESP2 or RESP3.
pub fn pairs(frame: &Frame) -> Vec<(String, String)> {
    match frame {
        Frame::Map(pairs) => pairs
            .iter()
            .filter_map(|(name, value)| Some((text(name)?, text(value)?)))
            .collect(),
        frame => list(frame)
            .chunks_exact(2)
            .filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)))
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_a_retry_may_change_differ_from_refusals() {
        let code = |message: &str| good(Frame::Error(message.into())).err().map(|it| it.code);
        for transient in [
            "LOADING",
            "MOVED 1 a:1",
            "ASK 1 a:1",
            "CLUSTERDOWN",
            "MASTERDOWN",
            "TRYAGAIN",
            "BUSY",
        ] {
            assert_eq!(code(transient), Some(exit::UNAVAILABLE), "{transient}");
        }
        for refusal in ["NOPERM", "WRONGTYPE", "ERR unknown command"] {
            assert_eq!(code(refusal), Some(exit::FAILED), "{refusal}");
        }
    }

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
