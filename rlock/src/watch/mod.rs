//! `watch`: locks as they are taken and released.

mod changes;
mod screen;

use std::{
    io::{IsTerminal, stdout},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use redisson_lock::probe::Probe;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    Done, Failure,
    entry::Entry,
    exit,
    fleet::Fleet,
    out::{complain, say},
    signals::{self, Heard, Signals},
};
use changes::{Change, changes};

/// Looks again and again, over connections that it keeps as long as they last.
struct Watcher {
    probe: Probe,
    pattern: String,
    fleet: Option<Fleet>,
}

impl Watcher {
    async fn look(&mut self) -> Result<Vec<Entry>, Failure> {
        let mut fleet = match self.fleet.take() {
            Some(fleet) => fleet,
            None => Fleet::connect(&self.probe).await?,
        };
        let found = fleet.find(&self.pattern).await?;
        self.fleet = Some(fleet);
        Ok(found.locks)
    }
}

pub async fn watch(url: &str, pattern: &str, every: Duration, json: bool) -> Result<Done, Failure> {
    if every < Duration::from_millis(10) {
        return Err(Failure::usage("--every can be 10ms at least"));
    }
    let mut watcher = Watcher {
        probe: Probe::of_url(url)?,
        pattern: pattern.to_owned(),
        fleet: None,
    };
    let mut signals = Signals::new()?;
    // What is wrong from the beginning does not pass.
    let first = watcher.look().await?;
    match stdout().is_terminal() && !json {
        true => screen::show(watcher, first, every, &mut signals).await,
        false => lines(watcher, first, every, json, &mut signals).await,
    }
}

async fn lines(
    mut watcher: Watcher,
    first: Vec<Entry>,
    every: Duration,
    json: bool,
    signals: &mut Signals,
) -> Result<Done, Failure> {
    tell(&changes(&[], &first, Duration::ZERO), json)?;
    let (mut before, mut looked) = (first, Instant::now());
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut is_away = false;
    loop {
        tokio::select! {
            heard = signals.next() => if let Heard::Signal(signal) = heard {
                return Ok(Done::Code(signals::code(signal.as_raw())));
            },
            _ = ticks.tick() => {}
        }
        let began = Instant::now();
        match watcher.look().await {
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
