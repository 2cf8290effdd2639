//! `ls`: the locks of all masters.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use redisson_lock::probe::Probe;

use crate::{
    Done, Failure,
    answers::{bytes, error, good, list, text},
    entry::{self, Entry, QUEUE, queued},
    exit,
    fleet::Fleet,
    out::say,
    servers::Servers,
    table::Table,
};

/// The COUNT of `SCAN`: the server handles other commands between two calls.
const COUNT: &str = "1000";
/// The number of scans that may fail before `ls` does, and the pause after each.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(300);

/// The result of a scan of all keys.
pub struct Found {
    pub locks: Vec<Entry>,
    pub others: Vec<Entry>,
}

/// A client, identified by the name of its connections.
pub struct Named {
    pub name: String,
    pub hosts: BTreeSet<String>,
    pub connections: u64,
    /// The age of the oldest connection.
    pub oldest: Duration,
}

/// A connection with a name, the host that it comes from, and its age.
struct Connected {
    name: String,
    host: String,
    age: Duration,
}

impl Named {
    fn shown(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(String::as_str).collect();
        let oldest = humantime::format_duration(self.oldest);
        let connections = match self.connections {
            1 => format!("1 connection, for {oldest}"),
            count => format!("{count} connections, the oldest for {oldest}"),
        };
        format!(
            "{} ({}, {connections})",
            self.name.escape_debug(),
            hosts.join(", ")
        )
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::json!({
            "name": self.name,
            "hosts": self.hosts,
            "connections": self.connections,
            "oldest_connection_ms": self.oldest.as_millis() as u64,
        })
    }
}

/// The text that lists candidates for a holder whose owner does not identify its client.
pub fn shown_clients(clients: &[Named]) -> String {
    let shown: Vec<_> = clients.iter().map(Named::shown).collect();
    match shown.is_empty() {
        true => "Java clients have no names: set `clientName` for each instance".to_owned(),
        false => format!(
            "clients with a name but without an id: {}",
            shown.join("; ")
        ),
    }
}

impl Fleet {
    /// The data at one name, if any.
    pub async fn at(&mut self, name: &str) -> Result<Option<Entry>, Failure> {
        for master in 0..self.masters.len() {
            let kind = self.masters[master].ask("TYPE", &[name]).await?;
            if error(&kind).is_some_and(|message| message.starts_with("MOVED")) {
                continue;
            }
            let keys = vec![name.as_bytes().to_vec()];
            let mut entries = entry::read(self, master, keys).await?;
            self.name_clients(&mut entries).await;
            return Ok(entries.into_iter().next());
        }
        Ok(None)
    }

    /// Scans all keys in steps, so that the server can handle other clients in between.
    pub async fn find(&mut self, pattern: &str) -> Result<Found, Failure> {
        let (mut found, mut others) = (BTreeMap::new(), BTreeMap::new());
        for master in 0..self.masters.len() {
            for key in self.entries_at(master, pattern).await? {
                let all = match key.is_foreign() {
                    true => &mut others,
                    false => &mut found,
                };
                all.insert(key.name.clone(), key);
            }
            self.queues_at(master, pattern, &mut found).await?;
        }
        Ok(Found {
            locks: found.into_values().collect(),
            others: others.into_values().collect(),
        })
    }

    /// Adds the names of the holders' clients, as far as the servers show them to this user.
    pub async fn name_clients(&mut self, entries: &mut [Entry]) {
        let connections = self.named_connections().await;
        // This crate names its connections `<name>/<client id>`.
        let names: BTreeMap<_, _> = connections
            .iter()
            .filter_map(|connected| connected.name.rsplit_once('/'))
            .map(|(name, id)| (id, name))
            .collect();
        let holders = entries.iter_mut().flat_map(|entry| &mut entry.holders);
        holders.for_each(|holder| {
            let name = names.get(holder.owner.client());
            holder.client = name.map(|name| (*name).to_owned());
        });
    }

    /// Named clients of other libraries. Their names do not contain the client id, so no owner can be matched to them.
    pub async fn clients_without_id(&mut self) -> Vec<Named> {
        let mut clients = BTreeMap::<String, Named>::new();
        for Connected { name, host, age } in self.named_connections().await {
            if name.contains('/') {
                continue;
            }
            let client = clients.entry(name.clone()).or_insert(Named {
                name,
                hosts: BTreeSet::new(),
                connections: 0,
                oldest: Duration::ZERO,
            });
            client.hosts.insert(host);
            client.connections += 1;
            client.oldest = client.oldest.max(age);
        }
        clients.into_values().collect()
    }

    /// The connections with a name.
    async fn named_connections(&mut self) -> Vec<Connected> {
        let mut named = Vec::new();
        for asked in &mut self.masters {
            let clients = asked.ask("CLIENT", &["LIST"]).await.ok();
            let clients = clients.as_ref().and_then(text).unwrap_or_default();
            named.extend(clients.lines().filter_map(|line| {
                let field = |name: &str| line.split(' ').find_map(|word| word.strip_prefix(name));
                let name = field("name=").filter(|name| !name.is_empty())?;
                let (host, _) = field("addr=")?.rsplit_once(':')?;
                let age = field("age=").and_then(|age| age.parse().ok());
                Some(Connected {
                    name: name.to_owned(),
                    host: host.to_owned(),
                    age: Duration::from_secs(age.unwrap_or_default()),
                })
            }));
        }
        named
    }

    async fn entries_at(&mut self, master: usize, pattern: &str) -> Result<Vec<Entry>, Failure> {
        let mut entries = Vec::new();
        let mut cursor = Some("0".to_owned());
        while let Some(from) = cursor {
            let (next, keys) = self.page(master, &from, pattern).await?;
            entries.extend(entry::read(self, master, keys).await?);
            cursor = next;
        }
        Ok(entries)
    }

    /// Adds the fair locks that are free and have waiters.
    async fn queues_at(
        &mut self,
        master: usize,
        pattern: &str,
        found: &mut BTreeMap<String, Entry>,
    ) -> Result<(), Failure> {
        let mut patterns = vec![format!("{QUEUE}:{{{pattern}}}")];
        // The key of a name with braces has no additional ones, so such a name needs a pattern of its own.
        if pattern.contains(['{', '*', '?', '[']) {
            patterns.push(format!("{QUEUE}:{pattern}"));
        }
        for pattern in patterns {
            let mut cursor = Some("0".to_owned());
            while let Some(from) = cursor {
                let (next, keys) = self.page(master, &from, &pattern).await?;
                let names = keys.iter().filter_map(|key| {
                    let name = queued(str::from_utf8(key).ok()?)?;
                    (!found.contains_key(name)).then(|| Entry::free(name.to_owned()))
                });
                let mut entries: Vec<_> = names.collect();
                entry::around(self, master, &mut entries).await?;
                entries.retain(|entry| entry.queue_length > 0);
                found.extend(entries.into_iter().map(|entry| (entry.name.clone(), entry)));
                cursor = next;
            }
        }
        Ok(())
    }

    /// Returns the keys after a cursor, and the next cursor if there are more keys.
    async fn page(
        &mut self,
        master: usize,
        cursor: &str,
        pattern: &str,
    ) -> Result<(Option<String>, Vec<Vec<u8>>), Failure> {
        let words = [cursor, "MATCH", pattern, "COUNT", COUNT];
        let page = good(self.masters[master].ask("SCAN", &words).await?)?;
        let cursor = list(&page).first().and_then(text);
        let keys = list(&page).get(1).map(list).unwrap_or_default();
        let keys = keys.iter().filter_map(bytes).map(<[u8]>::to_vec).collect();
        Ok((cursor.filter(|cursor| cursor != "0"), keys))
    }
}

/// Scans all keys, and repeats a scan that a failover or the end of a slot's migration has cut short.
async fn found(probe: &Probe, pattern: &str) -> Result<(Fleet, Found), Failure> {
    let mut attempts = 1;
    loop {
        let mut fleet = Fleet::connect(probe).await?;
        match fleet.find(pattern).await {
            Err(failure) if failure.code == exit::UNAVAILABLE && attempts < ATTEMPTS => {
                tokio::time::sleep(PAUSE).await;
                attempts += 1;
            }
            found => return Ok((fleet, found?)),
        }
    }
}

pub async fn ls(servers: &Servers, pattern: &str, all: bool, json: bool) -> Result<Done, Failure> {
    let (mut fleet, Found { mut locks, others }) = found(&servers.probe()?, pattern).await?;
    let hidden = match all {
        true => 0,
        false => others.len(),
    };
    fleet.name_clients(&mut locks).await;
    if all {
        locks.extend(others);
    }
    if json {
        for lock in &locks {
            say(lock.json().to_string())?;
        }
        return Ok(Done::Code(0));
    }
    if !locks.is_empty() {
        let mut table = Table::new(&HEADINGS);
        for lock in &locks {
            rows(lock).into_iter().for_each(|row| table.row(row));
        }
        say(table.text())?;
    }
    let keys = |count: usize| match count {
        1 => "1 key that is not a lock".to_owned(),
        count => format!("{count} keys that are not locks"),
    };
    match (locks.len(), hidden) {
        (0, 0) => say("no locks")?,
        (0, hidden) => say(format!("no locks; {} (--all names them)", keys(hidden)))?,
        (_, 0) => {}
        (_, hidden) => say(format!("and {} (--all names them)", keys(hidden)))?,
    }
    Ok(Done::Code(0))
}

pub const COLUMNS: usize = 8;
pub const HEADINGS: [&str; COLUMNS] = [
    "NAME", "KIND", "HOLDER", "BY", "COUNT", "HELD", "LEASE", "WAITING",
];

/// The rows of a lock in the table, one per holder.
pub fn rows(lock: &Entry) -> Vec<[String; COLUMNS]> {
    let name = lock.name.escape_debug().to_string();
    let waiting = match lock.waiting() {
        0 => String::new(),
        waiting => waiting.to_string(),
    };
    let kind = lock.kind.text();
    if lock.holders.is_empty() {
        let holder = if lock.is_foreign() { "" } else { "(free)" };
        let lease = lock.lease.map(shown).unwrap_or_default();
        let empty = String::new;
        let row = [
            name,
            kind,
            holder.into(),
            empty(),
            empty(),
            empty(),
            lease,
            waiting,
        ];
        return vec![row];
    }
    let mut rows: Vec<_> = lock
        .holders
        .iter()
        .enumerate()
        .map(|(index, holder)| {
            let first = |text: &str| match index {
                0 => text.to_owned(),
                _ => String::new(),
            };
            [
                first(&name),
                first(&kind),
                holder.owner.text.clone(),
                holder.by(),
                holder.count.to_string(),
                holder.held_at_most().map(at_most).unwrap_or_default(),
                holder.lease.map_or_else(|| "no expiry".to_owned(), shown),
                first(&waiting),
            ]
        })
        .collect();
    let unnamed = lock.holder_count.saturating_sub(lock.holders.len() as u64);
    if unnamed > 0 {
        let mut row: [String; COLUMNS] = Default::default();
        row[2] = format!("and {unnamed} more");
        rows.push(row);
    }
    rows
}

/// Formats the longest time for which a lock can have been held.
pub fn at_most(age: Duration) -> String {
    let whole = Duration::from_secs(age.as_secs());
    match age < Duration::from_secs(60) {
        true => format!("<={}", shown(age)),
        false => format!("<={}", humantime::format_duration(whole)).replace(' ', ""),
    }
}

/// Formats a time in seconds with one decimal.
pub fn shown(time: Duration) -> String {
    format!("{:.1}s", time.as_secs_f64())
}
