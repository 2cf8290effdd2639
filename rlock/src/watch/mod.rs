//! `watch`: shows acquisitions and releases as they happen.

mod changes;
mod screen;

use std::{
    collections::BTreeMap,
    io::{IsTerminal, stdout},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redisson_lock::probe::Probe;
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use crate::{
    Done, Failure,
    entry::{Entry, Holder},
    exit,
    fleet::Fleet,
    out::{complain, say},
    servers::Servers,
    signals::Signals,
};
use changes::{Change, changes, found};

/// Scans the locks repeatedly. Keeps its connections until a scan fails or the masters change.
struct Watcher {
    probe: Probe,
    pattern: String,
    fleet: Option<Fleet>,
    /// The names of the clients that hold locks, by their ids. A client without a name has none here either.
    clients: BTreeMap<String, Option<String>>,
}

/// The locks at one time.
struct Look {
    began: Instant,
    locks: Result<Vec<Entry>, Failure>,
}

impl Watcher {
    async fn look(&mut self) -> Look {
        Look {
            began: Instant::now(),
            locks: self.find().await,
        }
    }

    async fn find(&mut self) -> Result<Vec<Entry>, Failure> {
        let mut kept = self.fleet.take();
        if let Some(fleet) = &mut kept
            && !fleet.is_current().await?
        {
            kept = None;
        }
        let mut fleet = match kept {
            Some(fleet) => fleet,
            None => Fleet::connect(&self.probe).await?,
        };
        let mut locks = fleet.find(&self.pattern).await?.locks;
        self.name_clients(&mut fleet, &mut locks).await;
        self.fleet = Some(fleet);
        Ok(locks)
    }

    /// Adds the names of the holders' clients. Asks for them only when a client is new among the holders: the list of connections
    /// may be long.
    async fn name_clients(&mut self, fleet: &mut Fleet, locks: &mut [Entry]) {
        // No list of connections tells which of them is a Java owner's.
        let is_new = |holder: &mut Holder| {
            holder.owner.is_rust && !self.clients.contains_key(holder.owner.client())
        };
        if holders(locks).any(is_new) {
            fleet.name_clients(locks).await;
            let named = holders(locks)
                .map(|holder| (holder.owner.client().to_owned(), holder.client.clone()));
            self.clients = named.collect();
        }
        for holder in holders(locks) {
            let known = self.clients.get(holder.owner.client());
            holder.client = known.cloned().flatten();
        }
    }

    /// Scans in a background task, so that a silent server delays neither keys nor signals.
    fn looks(mut self, every: Duration) -> mpsc::Receiver<Look> {
        let (sender, looks) = mpsc::channel(1);
        tokio::spawn(async move {
            let mut ticks = interval(every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks.tick().await;
            loop {
                ticks.tick().await;
                if sender.send(self.look().await).await.is_err() {
                    return;
                }
            }
        });
        looks
    }
}

fn holders(locks: &mut [Entry]) -> impl Iterator<Item = &mut Holder> {
    locks.iter_mut().flat_map(|lock| &mut lock.holders)
}

pub async fn watch(
    servers: &Servers,
    pattern: &str,
    every: Duration,
    json: bool,
) -> Result<Done, Failure> {
    if every < Duration::from_millis(10) {
        return Err(Failure::usage("--every must be at least 10ms"));
    }
    let mut watcher = Watcher {
        probe: servers.probe()?,
        pattern: pattern.to_owned(),
        fleet: None,
        clients: BTreeMap::new(),
    };
    let mut signals = Signals::new()?;
    // A failure of the first scan is permanent, for example a wrong URL. Later failures may pass.
    let first = tokio::select! {
        first = watcher.look() => first,
        code = signals.ending() => return Ok(Done::Code(code)),
    };
    let (began, first) = (first.began, first.locks?);
    let pattern = watcher.pattern.clone();
    let looks = watcher.looks(every);
    match stdout().is_terminal() && !json {
        true => screen::show(pattern, first, looks, &mut signals).await,
        false => lines(began, first, looks, json, &mut signals).await,
    }
}

async fn lines(
    mut looked: Instant,
    mut before: Vec<Entry>,
    mut looks: mpsc::Receiver<Look>,
    json: bool,
    signals: &mut Signals,
) -> Result<Done, Failure> {
    tell(&found(&before), json)?;
    let mut is_away = false;
    loop {
        let look = tokio::select! {
            look = looks.recv() => look,
            code = signals.ending() => return Ok(Done::Code(code)),
        };
        let Some(Look { began, locks }) = look else {
            return Ok(Done::Code(0));
        };
        match locks {
            Ok(after) => {
                if std::mem::take(&mut is_away) {
                    complain("the server answers again");
                }
                tell(&changes(&before, &after, began - looked), json)?;
                (before, looked) = (after, began);
            }
            Err(failure) if failure.code == exit::UNAVAILABLE => {
                if !std::mem::replace(&mut is_away, true) {
                    complain(&failure.message);
                }
            }
            Err(failure) => return Err(failure),
        }
    }
}

fn tell(changes: &[Change], json: bool) -> Result<(), Failure> {
    let at = SystemTime::now().duration_since(UNIX_EPOCH);
    let at = at.unwrap_or_default();
    for change in changes {
        say(match json {
            true => change.json(at).to_string(),
            false => change.line(at),
        })?;
    }
    Ok(())
}
