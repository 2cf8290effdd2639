//! `show` and `unlock`.

use std::{
    io::{BufRead, IsTerminal, Write, stderr, stdin},
    time::Duration,
};

use redisson_lock::{Error, LockClient};
use serde_json::{Value, json};

use crate::{
    Done, Failure,
    cli::Kind,
    entry::{self, Entry, Holder},
    exit,
    fleet::Fleet,
    ls::{self, Named, shown_clients},
    out::{complain, say},
    servers::Servers,
    table::Table,
};

/// Runs `$body` with `$lock`, the lock of the kind `$kind`.
macro_rules! with_lock {
    ($client:expr, $kind:expr, $name:expr, |$lock:ident| $body:expr) => {
        match $kind {
            Kind::Reentrant => {
                let $lock = $client.reentrant_lock($name);
                $body
            }
            Kind::Fair => {
                let $lock = $client.fair_lock($name);
                $body
            }
            Kind::Fenced => {
                let $lock = $client.fenced_lock($name);
                $body
            }
            Kind::Read => {
                let $lock = $client.read_write_lock($name).read().clone();
                $body
            }
            Kind::Write => {
                let $lock = $client.read_write_lock($name).write().clone();
                $body
            }
            Kind::Simple => {
                let $lock = $client.simple_lock($name);
                $body
            }
        }
    };
}
#[cfg(unix)]
pub(crate) use with_lock;

/// The state of a lock on the server.
struct State {
    is_locked: bool,
    lease: Option<Duration>,
}

async fn state(client: &LockClient, name: &str, kind: Kind) -> Result<State, Error> {
    with_lock!(client, kind, name, |lock| Ok(State {
        is_locked: lock.is_locked().await?,
        lease: lock.remaining_lease().await?,
    }))
}

impl State {
    fn lease(&self) -> Option<Duration> {
        self.lease.filter(|_| self.is_locked)
    }

    fn json(&self, name: &str) -> Value {
        let lease = self.lease().map(|lease| lease.as_millis() as u64);
        json!({ "name": name, "locked": self.is_locked, "remaining_lease_ms": lease })
    }

    fn line(&self, name: &str) -> String {
        let state = match (self.is_locked, self.lease()) {
            (false, _) => "free".to_owned(),
            (true, None) => "taken".to_owned(),
            (true, Some(lease)) => format!("taken, {} left of its lease", ls::shown(lease)),
        };
        format!("{}: {state}", name.escape_debug())
    }
}

/// Reads a lock's data.
async fn look(servers: &Servers, name: &str) -> Result<(Fleet, Option<Entry>), Failure> {
    let mut fleet = Fleet::connect(&servers.probe()?).await?;
    let entry = fleet.at(name).await?;
    Ok((fleet, entry))
}

fn table(entry: &Entry) -> String {
    let mut table = Table::new(&ls::HEADINGS);
    ls::rows(entry).into_iter().for_each(|row| table.row(row));
    table.text()
}

pub async fn show(
    servers: &Servers,
    client: &LockClient,
    name: &str,
    given: Option<Kind>,
    json: bool,
) -> Result<Done, Failure> {
    // A user may lack the rights for more than the lock's own commands.
    let (mut fleet, entry) = look(servers, name).await.ok().unzip();
    let entry = entry.flatten();
    check_is_lock(name, given, entry.as_ref())?;
    let kind = kind_of(given, entry.as_ref());
    let state = state(client, name, kind).await?;
    let is_java = |holder: &Holder| !holder.owner.is_rust;
    let clients = match (&mut fleet, &entry) {
        (Some(fleet), Some(entry)) if entry.holders.iter().any(is_java) => {
            Some(fleet.clients_without_id().await)
        }
        _ => None,
    };
    if json {
        let mut told = state.json(name);
        if let (Some(told), Some(Value::Object(more))) =
            (told.as_object_mut(), entry.map(|entry| entry.json()))
        {
            for (field, value) in more {
                told.entry(field).or_insert(value);
            }
        }
        if let Some(clients) = clients {
            told["clients_without_id"] = clients.iter().map(Named::json).collect();
        }
        say(told.to_string())?;
        return Ok(Done::Code(0));
    }
    // Readers hold it where the writers' side was asked for, or the other way round.
    let other_side = entry
        .as_ref()
        .filter(|entry| !state.is_locked && !entry.holders.is_empty())
        .map(|entry| {
            format!(
                "{}: taken by the {} side",
                name.escape_debug(),
                entry.kind.text()
            )
        });
    let is_taken = state.is_locked || other_side.is_some();
    say(other_side.unwrap_or_else(|| state.line(name)))?;
    if let Some(entry) = entry.filter(|_| is_taken) {
        say(table(&entry))?;
        if let Some(clients) = clients {
            say(shown_clients(&clients))?;
        }
    }
    Ok(Done::Code(0))
}

/// Fails for data that are not a lock's, unless a kind is given.
fn check_is_lock(name: &str, given: Option<Kind>, entry: Option<&Entry>) -> Result<(), Failure> {
    match entry.filter(|entry| given.is_none() && entry.is_foreign()) {
        None => Ok(()),
        Some(entry) => Err(Failure {
            code: exit::FAILED,
            message: format!(
                "{} is {}: if it is a lock all the same, give its kind by --kind",
                name.escape_debug(),
                entry.kind.text()
            ),
        }),
    }
}

/// The kind of a lock: by default the kind that its data show. A queue outweighs a given kind with the same data, because the
/// release of that kind notifies no fair waiter.
fn kind_of(given: Option<Kind>, entry: Option<&Entry>) -> Kind {
    match (given, entry.map(|entry| &entry.kind)) {
        (None | Some(Kind::Reentrant | Kind::Fenced), Some(entry::Kind::Fair)) => Kind::Fair,
        (Some(given), _) => given,
        (None, Some(entry::Kind::Fenced)) => Kind::Fenced,
        (None, Some(entry::Kind::Read)) => Kind::Read,
        (None, Some(entry::Kind::Write)) => Kind::Write,
        (None, Some(entry::Kind::Simple)) => Kind::Simple,
        (None, _) => Kind::Reentrant,
    }
}

/// Reads the data of a lock that is to be freed; `None` if it is free, or if the user lacks a right.
async fn look_to_free(
    servers: &Servers,
    name: &str,
    given: Option<Kind>,
) -> Result<Option<Entry>, Failure> {
    match look(servers, name).await {
        Ok((_, entry)) => Ok(entry),
        // The kind is enough, and another master may be out of reach.
        Err(_) if given.is_some() => Ok(None),
        Err(failure) if failure.code == exit::UNAVAILABLE => Err(failure),
        Err(failure) => {
            complain(&format!(
                "the data of {} cannot be read, so it is freed as a reentrant lock unless --kind says otherwise: {}",
                name.escape_debug(),
                failure.message
            ));
            Ok(None)
        }
    }
}

pub async fn unlock(
    servers: &Servers,
    client: &LockClient,
    name: &str,
    given: Option<Kind>,
    yes: bool,
    json: bool,
) -> Result<Done, Failure> {
    let entry = look_to_free(servers, name, given).await?;
    check_is_lock(name, given, entry.as_ref())?;
    let mut kind = kind_of(given, entry.as_ref());
    let state = state(client, name, kind).await?;
    // A lock that is free now and acquired a moment later is not freed without a question.
    let freed = state.is_locked && {
        if !yes {
            ask(&state.line(name), entry.as_ref())?;
            // The answer takes time: owners may have acquired the lock or joined its queue.
            let present = look_to_free(servers, name, Some(kind)).await?;
            check_holders(name, entry.as_ref(), present.as_ref())?;
            check_is_lock(name, given, present.as_ref())?;
            kind = kind_of(given, present.as_ref());
        }
        with_lock!(client, kind, name, |lock| lock.force_unlock().await)?
    };
    match json {
        true => say(json!({ "name": name, "freed": freed }).to_string())?,
        false if freed => say(format!("{}: freed", name.escape_debug()))?,
        false => say(format!("{}: was not held", name.escape_debug()))?,
    }
    Ok(Done::Code(0))
}

/// Fails if an owner holds the lock that did not hold it when it was shown.
fn check_holders(
    name: &str,
    shown: Option<&Entry>,
    present: Option<&Entry>,
) -> Result<(), Failure> {
    let holders = |entry: Option<&Entry>| -> Vec<_> {
        let holders = entry.into_iter().flat_map(|entry| &entry.holders);
        holders.map(|holder| holder.owner.clone()).collect()
    };
    let shown = holders(shown);
    match holders(present).iter().all(|owner| shown.contains(owner)) {
        true => Ok(()),
        false => Err(Failure {
            code: exit::FAILED,
            message: format!(
                "another owner has acquired {} meanwhile, so it was not freed: see rlock show",
                name.escape_debug()
            ),
        }),
    }
}

/// Shows the holders and asks for confirmation on the terminal. Fails without a terminal.
fn ask(state: &str, entry: Option<&Entry>) -> Result<(), Failure> {
    if !stdin().is_terminal() {
        return Err(Failure::usage(format!(
            "{state}. Confirmation needs a terminal: give --yes to free the lock without it"
        )));
    }
    let holders = entry.map_or_else(String::new, |entry| table(entry) + "\n");
    let _ = write!(
        stderr(),
        "{state}\n{holders}Free it? Its holder may still be working. [y/N] "
    );
    let mut answer = String::new();
    let _ = stdin().lock().read_line(&mut answer);
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Failure {
            code: exit::FAILED,
            message: "the lock was not changed".to_owned(),
        }),
    }
}
