//! Finds the server: at a fixed address, or the master that sentinels or the servers themselves report.
//!
//! - [`node`]: one sentinel or server, its connection and its answers.
//! - [`sentinel`]: what sentinels say, read from their answers.
//! - [`master_view`]: decides which of several answers is right.

mod master_view;
mod node;
mod sentinel;

use std::{
    fmt,
    future::ready,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};
use tokio_util::sync::CancellationToken;

use super::{
    BoxFuture,
    connector::Locate,
    endpoint::{Address, AddressMap, Endpoint},
    opener::ServerConfig,
    time_limits::{LATE_SENTINEL_WAIT, MASTER_ANSWER_WAIT, MASTER_ASKED_EVERY, MASTER_ASKED_OFTEN},
};
use crate::{error::Error, hash::HashSet};
use master_view::{Answers, MasterView, Undecided};
pub(super) use node::Question;
use node::{Answer, LookupNode};
use sentinel::PeerSentinel;
#[cfg(test)]
pub(super) use sentinel::fuzz;

/// The most nodes that an error names.
const MOST_LISTED: usize = 5;

/// The most sentinels that are asked: a false sentinel must not make the client connect to any number.
const MOST_KNOWN: usize = 32;

/// The way to find the master.
#[derive(Clone)]
pub(super) enum Locator {
    /// At the address of the configuration.
    Fixed,
    /// By requests to sentinels or servers.
    Lookup(Arc<Nodes>),
}

/// The nodes that know the master.
pub(super) struct Nodes {
    question: Question,
    /// The credentials for the nodes; its address is not used.
    server: ServerConfig,
    known: Mutex<Vec<Arc<LookupNode>>>,
    map: Option<AddressMap>,
    /// The number of replicas, by the last answers.
    replicas: AtomicUsize,
    /// The conclusion from the answers so far.
    view: watch::Sender<Option<MasterView>>,
    /// Cancelled when the client has ended.
    closed: CancellationToken,
}

impl Nodes {
    pub(super) fn new(
        question: Question,
        server: ServerConfig,
        addresses: Vec<Address>,
        map: Option<AddressMap>,
    ) -> Self {
        let mut known: Vec<Arc<LookupNode>> = Vec::new();
        for address in addresses {
            if known.iter().all(|node| node.address != address) {
                known.push(Arc::new(LookupNode::new(address, true, None)));
            }
        }
        Self {
            question,
            server,
            known: Mutex::new(known),
            map,
            replicas: AtomicUsize::new(0),
            view: watch::Sender::new(None),
            closed: CancellationToken::new(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Vec<Arc<LookupNode>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the sentinels that a node mentions.
    fn learn(&self, peers: Vec<PeerSentinel>) {
        let mut known = self.known();
        for mut peer in peers {
            peer.address = self.mapped(peer.address);
            known.retain(|node| !node.is_left_by(&peer));
            // All that fit are marked as seen.
            let is_new = known.iter().filter(|node| node.is(&peer)).count() == 0;
            if is_new && known.len() < MOST_KNOWN {
                known.push(Arc::new(LookupNode::new(
                    peer.address,
                    false,
                    Some(peer.id),
                )));
            }
        }
        known.retain(|node| node.is_kept());
    }

    fn mapped(&self, address: Address) -> Address {
        match &self.map {
            Some(map) => map(&address.0, address.1),
            None => address,
        }
    }

    /// Finds the master, and returns whether it may soon be replaced.
    async fn locate(self: &Arc<Self>) -> (Result<Address, Error>, bool) {
        let asked = Instant::now();
        let (answers, error) = self.ask(asked).await;
        let mut result = Err(Undecided::NoAnswer);
        let mut last = None;
        // Concurrent requests change the view one after the other.
        self.view.send_if_modified(|view| {
            result = answers.elect(asked, view.as_ref());
            last = view.as_ref().map(|view| view.master.clone());
            let Ok(new) = &result else { return false };
            *view = Some(new.clone());
            last.as_ref() != Some(&new.master)
        });
        let elected = result.as_ref().ok().map(|view| &view.master);
        if let Some(replicas) = answers.replicas(self.known().len(), elected) {
            self.replicas.store(replicas, Ordering::Relaxed);
        }
        if result.is_err() && self.question == Question::AreYou {
            for node in &*self.known() {
                node.look_up_again();
                // Its name may have the addresses of several servers.
                let endpoint = Endpoint::Tcp(node.address.clone());
                self.server
                    .servers
                    .at(&endpoint)
                    .address_order
                    .leads_astray();
            }
        }
        let master = match (result, last, error) {
            (Ok(view), _, _) => Ok(view.master),
            // While no node answers, the client assumes that the master has not moved: its connection or the network broke.
            (Err(Undecided::NoAnswer), Some(last), _) => Ok(last),
            (Err(Undecided::NoAnswer), None, Some(error @ Error::Config { .. })) => Err(error),
            (Err(Undecided::NoAnswer), None, error) => {
                let reason = self.explain(Undecided::NoAnswer);
                Err(Error::unavailable_by(
                    reason,
                    error.map(|error| error.cause()),
                ))
            }
            (Err(undecided), _, _) => Err(Error::unavailable(self.explain(undecided))),
        };
        (master, answers.unsettled())
    }

    /// Asks all nodes at once. Waits for all servers, because each reports itself alone; of sentinels, a majority is
    /// enough. Returns one of the errors too.
    async fn ask(self: &Arc<Self>, asked: Instant) -> (Answers, Option<Error>) {
        let known = self.known().clone();
        // A sentinel that is silent may have moved: the other sentinels are asked for its address. Two addresses of one
        // sentinel count once, as in its peers' count.
        let answering: HashSet<_> = known
            .iter()
            .filter_map(|node| node.answering_id())
            .collect();
        let count = answering.len();
        let awake = known.into_iter().filter(|node| !node.rests());
        let mut answering: FuturesUnordered<_> = awake
            .map(|node| {
                let nodes = self.clone();
                async move { node.ask(&nodes.question, &nodes.server, count).await }
            })
            .collect();
        let mut until = asked + MASTER_ANSWER_WAIT;
        let (mut answers, mut refused) = (Answers::default(), None);
        while let Ok(Some(answer)) = timeout_at(until, answering.next()).await {
            match answer {
                Ok((Answer::Report(mut report), peers)) => {
                    self.learn(peers);
                    report.master = report.master.map(|master| self.mapped(master));
                    answers.reports.push(report);
                }
                Ok((Answer::Role(role), _)) => answers.roles.push(role),
                Err(error) if matches!(refused, None | Some(Error::Unavailable { .. })) => {
                    refused = Some(error);
                }
                Err(_) => {}
            }
            if answers.majority() {
                until = until.min(Instant::now() + LATE_SENTINEL_WAIT);
            }
        }
        if answers.majority() && !answering.is_empty() {
            // A node that is too late for this question keeps its connection for the next one. Without it, a node a few
            // round trips away would never be heard.
            let rest = timeout_at(
                asked + MASTER_ANSWER_WAIT,
                answering.for_each(|_| ready(())),
            );
            let closed = self.closed.clone();
            let task: BoxFuture<()> = Box::pin(async move {
                let _ = closed.run_until_cancelled(rest).await;
            });
            tokio::spawn(task);
        }
        (answers, refused)
    }

    fn explain(&self, undecided: Undecided) -> String {
        let who = match self.question {
            Question::MasterOf(_) => "sentinels",
            Question::AreYou => "servers",
        };
        match (undecided, &self.question) {
            (Undecided::NoAnswer, _) => {
                let asked = listed(self.known().iter().map(|node| &node.address));
                format!(
                    "none of the {who} answered ({asked}): check their addresses, user and password"
                )
            }
            (Undecided::NoMaster, Question::MasterOf(service)) => {
                format!("the {who} know no master for the service {service:?}: check its name")
            }
            (Undecided::NoMaster, Question::AreYou) => format!("none of the {who} is a master"),
            (Undecided::Outdated, _) => {
                format!("the {who} that answered do not know the master of the latest failover yet")
            }
            (Undecided::TwoMasters((host, port), (other, other_port)), _) => format!(
                "{host}:{port} and {other}:{other_port} are both masters, and neither was promoted from the other's \
                 data: make one a replica of the other"
            ),
        }
    }
}

/// The first of these addresses, and how many follow.
fn listed<'a>(addresses: impl ExactSizeIterator<Item = &'a Address>) -> String {
    let more = addresses.len().saturating_sub(MOST_LISTED);
    let mut listed: Vec<_> = addresses
        .take(MOST_LISTED)
        .map(|(host, port)| format!("{host}:{port}"))
        .collect();
    if more > 0 {
        listed.push(format!("{more} more"));
    }
    listed.join(", ")
}

impl Locate for Locator {
    fn locate(&self) -> BoxFuture<Result<Option<Address>, Error>> {
        // Boxed: connections to the nodes use this code recursively.
        match self.clone() {
            Locator::Fixed => Box::pin(std::future::ready(Ok(None))),
            Locator::Lookup(nodes) => Box::pin(async move { nodes.locate().await.0.map(Some) }),
        }
    }

    fn moved(&self, address: Option<&Address>) -> BoxFuture<String> {
        let Some(address) = address.cloned() else {
            return Box::pin(std::future::pending());
        };
        let nodes = match self.clone() {
            Locator::Fixed => return Box::pin(std::future::pending()),
            Locator::Lookup(nodes) => nodes,
        };
        let mut view = nodes.view.subscribe();
        Box::pin(async move {
            let elsewhere = |view: &Option<MasterView>| {
                let believed = view.as_ref().map(|view| &view.master);
                believed.is_some_and(|master| *master != address)
            };
            let changed = view.wait_for(elsewhere).await.ok();
            let now = changed.and_then(|view| view.as_ref().map(|view| view.master.clone()));
            match now {
                Some((host, port)) => format!("the master is now {host}:{port}"),
                None => std::future::pending().await,
            }
        })
    }

    fn is_asked(&self) -> bool {
        matches!(self, Locator::Lookup(_))
    }

    fn leads_astray(&self, address: &Address) {
        if let Locator::Lookup(nodes) = self {
            let known = nodes.known();
            let there = known.iter().filter(|node| node.address == *address);
            there.for_each(|node| node.look_up_again());
        }
    }
}

impl Locator {
    /// Keeps asking until `closed` is cancelled.
    pub(super) async fn watch(self, closed: CancellationToken) {
        let Locator::Lookup(nodes) = self else { return };
        let watching = async {
            let mut pause = MASTER_ASKED_EVERY;
            loop {
                tokio::time::sleep(pause).await;
                let (_, unsettled) = nodes.locate().await;
                pause = if unsettled {
                    MASTER_ASKED_OFTEN
                } else {
                    MASTER_ASKED_EVERY
                };
            }
        };
        let _: Option<()> = closed.run_until_cancelled(watching).await;
        // The connections to the nodes end here, not with the client's last handle.
        nodes.closed.cancel();
        nodes.known().clear();
    }

    /// The number of the master's replicas, including replicas that are down, as far as sentinels or nodes know.
    pub(super) fn replicas(&self) -> usize {
        match self {
            Locator::Lookup(nodes) => nodes.replicas.load(Ordering::Relaxed),
            Locator::Fixed => 0,
        }
    }
}

impl fmt::Debug for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Locator::Fixed => f.write_str("Fixed"),
            Locator::Lookup(nodes) => {
                let known: Vec<_> = nodes
                    .known()
                    .iter()
                    .map(|node| node.address.clone())
                    .collect();
                f.debug_tuple("Lookup")
                    .field(&nodes.question)
                    .field(&known)
                    .finish()
            }
        }
    }
}

#[cfg(test)]
mod tests;
