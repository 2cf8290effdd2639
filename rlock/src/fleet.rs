//! The servers that a URL names.

use std::collections::{BTreeMap, BTreeSet};

use redisson_lock::probe::{Address, Frame, Probe, ProbedNode, SetUp};

use crate::{
    Failure,
    answers::{error, good, list, text},
    nodes::{Hosts, Listed, nodes},
};

/// Commands that are sent in one batch.
pub type Commands = Vec<(&'static str, Vec<Vec<u8>>)>;

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
        let mut hosts = Hosts::of(probe, &mut first).await?;
        for node in listed {
            match hosts.reach(probe, &node).await {
                Ok(master) => {
                    fleet.masters.push(master);
                    fleet.announced.push(hosts.addresses(&node));
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
        let mut answered_by = vec![master; answers.len()];
        for _ in 0..MOST_REDIRECTIONS {
            let mut again_at = BTreeMap::<_, Vec<_>>::new();
            for (index, answer) in answers.iter().enumerate() {
                if let Some(to) = redirected(&self.announced, answered_by[index], answer) {
                    again_at.entry(to).or_default().push(index);
                }
            }
            for (to, indices) in again_at {
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
                    answered_by[index] = to;
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
}

/// The master to which the answer of the master `asked` redirects, by what masters announce.
fn redirected(announced: &[Vec<Address>], asked: usize, answer: &Frame) -> Option<usize> {
    let words: Vec<_> = error(answer)?.split(' ').collect();
    let ["MOVED" | "ASK", _, address] = words[..] else {
        return None;
    };
    let (host, port) = address.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    let hosts = match host {
        // The host is that of the asked node.
        "" => announced
            .get(asked)?
            .iter()
            .map(|(own, _)| &**own)
            .collect(),
        host => vec![host],
    };
    let is_at = |own: &Address, host: &str| own.0 == host && own.1 == port;
    hosts.into_iter().find_map(|host| {
        let mut masters = announced.iter();
        masters.position(|addresses| addresses.iter().any(|own| is_at(own, host)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_lead_to_the_master_that_announces_the_address() {
        let at = |host: &str, port| (host.to_owned(), port);
        let announced = [
            vec![at("10.0.0.1", 7001), at("one.example", 7001)],
            vec![at("10.0.0.2", 7001), at("10.0.0.1", 7002)],
            vec![at("one.example", 7003)],
        ];
        for (asked, answer, expected) in [
            (0, "MOVED 1 10.0.0.2:7001", Some(1)),
            (0, "ASK 1 one.example:7003", Some(2)),
            (0, "MOVED 1 :7002", Some(1)),
            (0, "ASK 1 :7003", Some(2)),
            (1, "MOVED 1 :7001", Some(1)),
            (2, "MOVED 1 :7001", Some(0)),
            (2, "MOVED 1 :7002", None),
            (9, "MOVED 1 :7001", None),
            (0, "MOVED 1 ?:7001", None),
            (0, "MOVED 1 :x", None),
            (0, "MOVED 1", None),
            (0, "TRYAGAIN 1 :7001", None),
        ] {
            let frame = Frame::Error(answer.into());
            assert_eq!(
                redirected(&announced, asked, &frame),
                expected,
                "{asked}: {answer}"
            );
        }
    }
}
