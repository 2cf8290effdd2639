//! Checks one server: version, role, memory, persistence, replicas and clock.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use redisson_lock::{
    EndpointKind,
    probe::{Probe, ProbedNode, SetUp, is_transient},
};

use super::Findings;
use crate::{
    Failure,
    answers::{error, good, list, number, pairs, text},
};

/// The largest difference between server clocks for the default lease: docs/operations.md, "Clocks".
const MOST_DIFFERENCE: Duration = Duration::from_millis(302);
/// The largest lag of a replica, in seconds.
const MOST_LAG: u64 = 2;

type Info = BTreeMap<String, String>;

fn read(answer: &str) -> Info {
    let fields = answer.lines().filter_map(|line| line.split_once(':'));
    fields
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect()
}

fn whole(info: &Info, field: &str) -> u64 {
    let value = info.get(field).and_then(|value| value.parse().ok());
    value.unwrap_or_default()
}

/// The value of a setting, if the user may read it.
pub async fn setting(asked: &mut ProbedNode, name: &str) -> Result<Option<String>, Failure> {
    let answer = asked.ask("CONFIG", &["GET", name]).await?;
    Ok(pairs(&answer).into_iter().next().map(|(_, value)| value))
}

/// Checks a master and its replicas.
pub async fn look(
    probe: &Probe,
    asked: &mut ProbedNode,
    findings: &mut Findings,
    clocks: &mut Clocks,
) -> Result<(), Failure> {
    let address = asked.address();
    end_point(probe, asked, findings);
    let answer = asked.ask("INFO", &[] as &[&str]).await;
    let refused = match &answer {
        Ok(answer) => error(answer)
            .filter(|message| !is_transient(message))
            .map(str::to_owned),
        Err(error) => Some(error.to_string()),
    };
    if let Some(refused) = refused {
        findings.advise(
            "server",
            format!("{address}: version, role, memory, persistence and replicas are not checked: INFO is refused ({refused})"),
            "Run the doctor as a user with the rights +info +config|get, or at a server without a proxy.",
        );
        if answer.is_err() {
            *asked = probe.master().await?;
        }
        return Ok(());
    }
    let info = read(&text(&good(answer?)?).unwrap_or_default());
    if !version(&address, &info, findings) {
        return Ok(());
    }
    role(probe, &address, &info, findings);
    memory(&address, &info, findings);
    persistence(probe, &address, &info, asked, findings).await?;
    let replicas = replicas(probe, &address, &info, findings);
    idle(&address, asked, findings).await?;
    clocks.read(asked).await?;
    for address in replicas {
        match probe.at(&address).await {
            Ok(mut replica) => clocks.read(&mut replica).await?,
            Err(_) => findings.note(
                "replica",
                format!(
                    "{}:{} cannot be reached from this machine; after a failover, clients must reach it",
                    address.0, address.1
                ),
            ),
        }
    }
    Ok(())
}

/// Checks whether names share calls.
fn end_point(probe: &Probe, asked: &ProbedNode, findings: &mut Findings) {
    if asked.shares_calls() || probe.endpoint_kind() == EndpointKind::Proxy {
        return;
    }
    findings.advise(
        "end point",
        format!(
            "{} does not prove to be one server by this client's address, so it may be a proxy in front of several: each name \
             travels alone, which is safe and slower",
            asked.address()
        ),
        "Add ?endpoint=server to the URL if one server answers there, behind a NAT or a tunnel; ?endpoint=proxy behind a proxy.",
    );
}

/// Checks the version. Returns whether the other checks are possible.
fn version(address: &str, info: &Info, findings: &mut Findings) -> bool {
    // Valkey and Redict have names of their own for the mode.
    let is_sentinel =
        |(name, value): (&String, &String)| name.ends_with("_mode") && value == "sentinel";
    if info.iter().any(is_sentinel) {
        findings.problem(
            "server",
            format!("{address} is a sentinel, which stores no locks"),
            "Use redis-sentinel://host:port/service.",
        );
        return false;
    }
    let (program, version) = match info.get("valkey_version") {
        Some(version) => ("Valkey", version.clone()),
        None => (
            "Redis",
            info.get("redis_version").cloned().unwrap_or_default(),
        ),
    };
    let major: u32 = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok())
        .unwrap_or_default();
    let says = format!("{address} is {program} {version}");
    match major {
        0..=5 => findings.problem("version", says, "Upgrade to Redis 6.0 or later."),
        6 => findings.warn(
            "version",
            says,
            "Redis 7.0 or later is fully tested, and has rights to channels and sharded pub/sub.",
        ),
        _ => findings.fine("version", says),
    }
    true
}

fn role(probe: &Probe, address: &str, info: &Info, findings: &mut Findings) {
    let is_cluster = whole(info, "cluster_enabled") == 1;
    let is_hidden = probe.endpoint_kind() == EndpointKind::Proxy;
    if *probe.set_up() != SetUp::Cluster && is_cluster && !is_hidden {
        findings.problem(
            "role",
            format!("{address} is a node of a cluster, and the URL names one server"),
            "Use redis-cluster://, or ?endpoint=proxy if this end point leads to all nodes.",
        );
    } else if info.get("role").is_some_and(|role| role == "slave") {
        let master = format!(
            "{}:{}",
            info.get("master_host").map_or("", |host| host),
            info.get("master_port").map_or("", |port| port)
        );
        findings.problem(
            "role",
            format!("{address} is a replica of {master}: it refuses writes"),
            "Name the master, or use redis-sentinel:// or redis-replicated://, which find the master.",
        );
    }
}

fn memory(address: &str, info: &Info, findings: &mut Findings) {
    let (limit, used) = (whole(info, "maxmemory"), whole(info, "used_memory"));
    let policy = info
        .get("maxmemory_policy")
        .map_or("unknown", |policy| policy);
    if limit > 0 && policy != "noeviction" {
        findings.problem(
            "memory",
            format!("{address}: maxmemory-policy is {policy}: a server without free memory evicts held locks"),
            "Set maxmemory-policy noeviction, or use a server of its own for locks.",
        );
    } else if limit > 0 && used > limit / 10 * 9 {
        findings.warn(
            "memory",
            format!("{address}: {used} of {limit} bytes are used: a server without free memory refuses new locks"),
            "Raise maxmemory, or find the keys that use the memory.",
        );
    } else {
        let limit = match limit {
            0 => "no maxmemory".to_owned(),
            limit => format!("maxmemory {limit}"),
        };
        findings.fine("memory", format!("{address}: {limit}, policy {policy}"));
    }
}

async fn persistence(
    probe: &Probe,
    address: &str,
    info: &Info,
    asked: &mut ProbedNode,
    findings: &mut Findings,
) -> Result<(), Failure> {
    if info
        .get("aof_last_write_status")
        .is_some_and(|status| status == "err")
        || info
            .get("rdb_last_bgsave_status")
            .is_some_and(|status| status == "err")
    {
        findings.problem(
            "persistence",
            format!(
                "{address}: the last write to the disk failed; the server may refuse locks (MISCONF)"
            ),
            "Check the server's log and its disk.",
        );
    }
    if whole(info, "aof_enabled") == 0 {
        findings.warn(
            "persistence",
            format!("{address}: appendonly is no: a restart loses held locks"),
            match probe.set_up() {
                SetUp::Single => {
                    "Set appendonly yes; else two owners may hold a lock after a restart (docs/operations.md, \
                     Persistence)."
                }
                _ => {
                    "Set appendonly yes, or make sure that a failed master restarts only after the failover: it \
                     restarts empty."
                }
            },
        );
        return Ok(());
    }
    let fsync = setting(asked, "appendfsync").await?;
    let says = match fsync.as_deref() {
        Some("always") => "appendonly yes, appendfsync always: a restart loses no lock".to_owned(),
        Some(fsync) => {
            format!(
                "appendonly yes, appendfsync {fsync}: a restart may lose the writes of the last second"
            )
        }
        None => "appendonly yes".to_owned(),
    };
    findings.fine("persistence", format!("{address}: {says}"));
    Ok(())
}

/// Checks the replicas and returns their addresses.
fn replicas(
    probe: &Probe,
    address: &str,
    info: &Info,
    findings: &mut Findings,
) -> Vec<(String, u16)> {
    let mut addresses = Vec::new();
    let mut behind = Vec::new();
    for number in 0.. {
        let Some(line) = info.get(&format!("slave{number}")) else {
            break;
        };
        let fields: Info = line
            .split(',')
            .filter_map(|field| field.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let (Some(host), port) = (fields.get("ip"), whole(&fields, "port")) else {
            continue;
        };
        let is_online = fields.get("state").is_some_and(|state| state == "online");
        if !is_online || whole(&fields, "lag") > MOST_LAG {
            behind.push(format!("{host}:{port}"));
        }
        if is_online {
            addresses.push((host.clone(), u16::try_from(port).unwrap_or_default()));
        }
    }
    if !behind.is_empty() {
        findings.warn(
            "replicas",
            format!(
                "{address}: replicas that lag or are not in sync: {}",
                behind.join(", ")
            ),
            "A failover to one of these loses locks: check its log and its network.",
        );
    }
    let is_alone = *probe.set_up() == SetUp::Single;
    match (addresses.len(), is_alone) {
        (0, true) => findings.note("replicas", format!("{address} has no replica: the locks are on one server")),
        (0, false) => findings.warn(
            "replicas",
            format!("{address} has no replica: if it fails, its locks are lost"),
            "Add two replicas.",
        ),
        (1, false) => findings.warn(
            "replicas",
            format!("{address} has one replica: if it fails, Durability::Majority and min-replicas-to-write refuse \
             all locks"),
            "Add a second replica.",
        ),
        (number, _) => findings.fine("replicas", format!("{address} has {number} replicas, in sync")),
    }
    // `INFO` has this field only if the setting is not 0.
    let has_least = info.contains_key("min_slaves_good_slaves");
    if !is_alone && !addresses.is_empty() && !has_least {
        findings.warn(
            "min-replicas",
            format!("{address}: min-replicas-to-write is 0: a master without its replicas grants locks that its \
             successor does not know"),
            "Set min-replicas-to-write 1, with two replicas (docs/operations.md).",
        );
    }
    addresses
}

async fn idle(
    address: &str,
    asked: &mut ProbedNode,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let timeout = setting(asked, "timeout").await?;
    if let Some(seconds) = timeout.and_then(|timeout| timeout.parse::<u64>().ok())
        && (1..=10).contains(&seconds)
    {
        findings.warn(
            "timeout",
            format!("{address}: the server closes connections that are idle for {seconds} s"),
            "Set timeout to 0 or to more than 10 s: an idle connection sends a PING every 5 s.",
        );
    }
    Ok(())
}

/// The offsets of the server clocks from this machine's clock.
#[derive(Default)]
pub struct Clocks {
    began: Option<(Instant, Duration)>,
    ahead: Vec<(String, f64)>,
}

impl Clocks {
    async fn read(&mut self, asked: &mut ProbedNode) -> Result<(), Failure> {
        let sent = Instant::now();
        let answer = asked.ask("TIME", &[] as &[&str]).await?;
        // The middle of the round trip is the best estimate of the time of the answer.
        let at = sent + sent.elapsed() / 2;
        let [seconds, micros] = list(&answer) else {
            return Ok(());
        };
        let (Some(seconds), Some(micros)) = (number(seconds), number(micros)) else {
            return Ok(());
        };
        let told = Duration::from_secs(seconds.unsigned_abs())
            + Duration::from_micros(micros.unsigned_abs());
        let (began, first) = *self.began.get_or_insert((at, told));
        let expected = first.as_secs_f64() + at.saturating_duration_since(began).as_secs_f64();
        self.ahead
            .push((asked.address(), told.as_secs_f64() - expected));
        Ok(())
    }

    pub fn compare(&self, findings: &mut Findings) {
        let by_time = |a: &&(String, f64), b: &&(String, f64)| a.1.total_cmp(&b.1);
        let ends = (
            self.ahead.iter().min_by(by_time),
            self.ahead.iter().max_by(by_time),
        );
        let (Some((first, early)), Some((last, late))) = ends else {
            return;
        };
        if self.ahead.len() < 2 {
            return;
        }
        let difference = Duration::from_secs_f64((late - early).max(0.0));
        let says = format!(
            "the clocks of {} servers differ by {difference:.0?}",
            self.ahead.len()
        );
        if difference > MOST_DIFFERENCE {
            findings.warn(
                "clocks",
                format!("{says}: {last} is ahead of {first}"),
                "Synchronize the clocks by NTP: after a failover, leases end too early by this difference.",
            );
        } else {
            findings.fine("clocks", says);
        }
    }
}
