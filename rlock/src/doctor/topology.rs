//! Checks sentinels and clusters by their own reports.

use std::collections::{BTreeMap, BTreeSet};

use redisson_lock::{
    Config,
    probe::{Address, Probe, ProbedNode},
};

use super::{Findings, server::setting};
use crate::{
    Failure,
    answers::{error, good, list, pairs, text},
    fleet::Fleet,
    nodes::{Listed, nodes},
};

/// Compares the time until a failover begins with the rest of a lease at that time: docs/operations.md, "Timeouts".
fn detection(findings: &mut Findings, setting: &str, millis: u64) {
    let lease = Config::default().watchdog_lease;
    let least = lease.as_millis() as u64 / 3 * 2;
    let says = format!("{setting} is {millis} ms");
    // Election and reconnection take some additional seconds.
    if millis + 5_000 >= least {
        findings.warn(
            "timeouts",
            format!("{says}: with the default lease of {lease:?}, each failover loses holds"),
            &format!("Set {setting} to 5000 ms, or set a longer watchdog_lease."),
        );
    } else {
        findings.fine(
            "timeouts",
            format!("{says}, less than two thirds of the default lease"),
        );
    }
}

pub async fn sentinels(
    probe: &Probe,
    service: &str,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let mut known: BTreeSet<Address> = probe.given().iter().cloned().collect();
    let mut masters = BTreeMap::<Address, Vec<String>>::new();
    let mut asked = BTreeSet::new();
    let mut detections = BTreeSet::new();
    while let Some(address) = known.iter().find(|known| !asked.contains(*known)).cloned() {
        asked.insert(address.clone());
        let shown = format!("{}:{}", address.0, address.1);
        let Ok(mut sentinel) = probe.sentinel_at(&address).await else {
            findings.warn(
                "sentinel",
                format!("{shown} cannot be reached"),
                "Start it, or remove it from the URL.",
            );
            continue;
        };
        let answer = sentinel.ask("SENTINEL", &["MASTER", service]).await?;
        if let Some(message) = error(&answer) {
            findings.warn(
                "sentinel",
                format!("{shown} does not know {service:?}: {message}"),
                "Configure it to monitor the service, or remove it from the URL.",
            );
            continue;
        }
        let view: BTreeMap<_, _> = pairs(&answer).into_iter().collect();
        let field = |name: &str| view.get(name).map_or("", |value| value);
        let number = |name: &str| field(name).parse::<u64>().unwrap_or_default();
        let master = (
            field("ip").to_owned(),
            u16::try_from(number("port")).unwrap_or_default(),
        );
        masters.entry(master).or_default().push(shown.clone());
        detections.insert(number("down-after-milliseconds"));
        if field("flags") != "master" {
            findings.problem(
                "sentinel",
                format!("{shown} reports the master as {}", field("flags")),
                "A failover is under way or needed: check the master and the sentinels' logs.",
            );
        }
        let quorum = sentinel.ask("SENTINEL", &["CKQUORUM", service]).await?;
        match error(&quorum).filter(|message| !message.starts_with("NOPERM")) {
            Some(message) => findings.problem(
                "quorum",
                format!("{shown}: {message}"),
                "The sentinels cannot agree on a failover: start the missing sentinels, or lower the quorum.",
            ),
            None => findings.fine(
                "sentinel",
                format!(
                    "{shown}: a failover needs {} of {} sentinels; {} replicas",
                    number("quorum"),
                    number("num-other-sentinels") + 1,
                    number("num-slaves")
                ),
            ),
        }
        let others = sentinel.ask("SENTINEL", &["SENTINELS", service]).await?;
        for other in list(&others) {
            let other: BTreeMap<_, _> = pairs(other).into_iter().collect();
            if let (Some(ip), Some(port)) = (other.get("ip"), other.get("port"))
                && let Ok(port) = port.parse()
            {
                known.insert(probe.mapped(&(ip.clone(), port)));
            }
        }
    }
    if asked.len() < 3 {
        findings.warn(
            "sentinels",
            format!(
                "only {} known: a failover needs a majority of at least three",
                asked.len()
            ),
            "Run three sentinels, each on its own machine.",
        );
    }
    if masters.len() > 1 {
        let views = masters
            .iter()
            .map(|((host, port), sentinels)| format!("{host}:{port} by {}", sentinels.join(", ")));
        findings.problem(
            "sentinels",
            format!(
                "the sentinels name different masters: {}",
                views.collect::<Vec<_>>().join("; ")
            ),
            "A failover is under way, or the network separates some sentinels: check again, then check the network.",
        );
    }
    for millis in detections {
        detection(findings, "down-after-milliseconds", millis);
    }
    Ok(())
}

pub async fn cluster(
    probe: &Probe,
    fleet: &mut Fleet,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let mut first = probe.master().await?;
    let listed = nodes(&mut first).await?;
    for node in &listed {
        let shown = node.shown();
        if node.is("fail") || node.is("fail?") {
            findings.problem(
                "cluster",
                format!("{shown} is marked as failed"),
                "Start it, or remove it from the cluster (CLUSTER FORGET).",
            );
        } else if !node.is_connected && !node.is("myself") {
            findings.warn(
                "cluster",
                format!("{shown} has no bus connection to {}", first.address()),
                "Check the network between the nodes: the port of the bus is the node's port plus 10000.",
            );
        }
        let follows = |other: &&Listed| other.follows.as_ref() == Some(&node.id);
        if node.is("master") && node.slots > 0 && listed.iter().find(follows).is_none() {
            findings.warn(
                "cluster",
                format!("{shown} has no replica: if it fails, its slots are not served"),
                "Add a replica (CLUSTER REPLICATE).",
            );
        }
    }
    let slots: u32 = listed.iter().map(|node| node.slots).sum();
    let mut views = BTreeSet::new();
    let mut detections = BTreeSet::new();
    for master in &mut fleet.masters {
        views.insert(view(master).await?);
        if let Some(millis) = setting(master, "cluster-node-timeout").await? {
            detections.extend(millis.parse::<u64>());
        }
        let info = good(master.ask("CLUSTER", &["INFO"]).await?);
        // The user may lack the right to this command, which locks do not need.
        let info = info.ok().and_then(|info| text(&info)).unwrap_or_default();
        if info.contains("cluster_state:fail") {
            findings.problem(
                "cluster",
                format!("{} reports cluster_state:fail", master.address()),
                "Some slots have no owner, or the node reaches no majority of the masters: check CLUSTER NODES.",
            );
        }
    }
    match (slots, views.len()) {
        (16_384, 0 | 1) => findings.fine(
            "cluster",
            format!(
                "{} nodes, {} masters, all slots served, all masters agree",
                listed.len(),
                fleet.masters.len()
            ),
        ),
        (16_384, _) => findings.warn(
            "cluster",
            "the masters disagree about the owners of slots",
            "A slot migration is under way, or the network separates nodes: run redis-cli --cluster check.",
        ),
        (slots, _) => findings.problem(
            "cluster",
            format!("{slots} of 16384 slots have an owner"),
            "Locks in the remaining slots cannot be acquired: run redis-cli --cluster fix.",
        ),
    }
    for millis in detections {
        detection(findings, "cluster-node-timeout", millis);
    }
    Ok(())
}

/// The number of slots of each node, as `master` reports it.
async fn view(master: &mut ProbedNode) -> Result<Vec<(String, u32)>, Failure> {
    let mut view: Vec<_> = nodes(master)
        .await?
        .into_iter()
        .filter(|node| node.slots > 0)
        .map(|node| (node.id, node.slots))
        .collect();
    view.sort();
    Ok(view)
}
