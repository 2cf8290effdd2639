//! Log lines about waits at semaphores and latches: waits that last, and waits that nothing may end.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    super::Engine,
    held::HeldHere,
    remaining::{InAll, Remaining},
    waiters::{LongWait, Wanted},
};
use crate::{
    error::Error,
    hash::{HashMap, HashSet},
    sync::{Mutex, lock},
    wire::{permit, reply::Detail, semaphore, sync_spec::SyncSpec},
};

/// The most semaphores that the client remembers as named in the log: their names come from callers.
const MOST_NAMED: usize = 1_000;

/// The semaphores whose waiters may wait for ever, and that the log has named.
#[derive(Default)]
pub(super) struct NamedOnce(Mutex<HashSet<Arc<str>>>);

impl NamedOnce {
    fn insert(&self, name: &Arc<str>) -> bool {
        let mut names = lock(&self.0);
        names.len() < MOST_NAMED && names.insert(name.clone())
    }
}

impl Engine {
    /// Completes when a task waits at a semaphore or a latch.
    pub(in super::super) async fn awaited_synchronizers(&self) {
        let synchronizers = &self.synchronizers;
        if synchronizers.waiters().is_empty() {
            synchronizers.begun.notified().await;
        }
    }

    /// The longest wait at each semaphore and latch that has lasted for `least`.
    pub(in super::super) fn long_waits_at_synchronizers(&self, least: Duration) -> Vec<LongWait> {
        let waiters = self.synchronizers.waiters();
        waiters.long_waits(least, Instant::now())
    }

    /// Logs, once for each semaphore, that it has no permits for a waiter, however long that waits.
    pub(super) fn warn_of_missing_permits(&self, spec: &SyncSpec, wanted: Wanted, rest: Remaining) {
        let (name, wanted, named) = (&spec.name, wanted.permits(), &self.synchronizers.named);
        match rest.in_all {
            InAll::NoSemaphore if named.insert(name) => tracing::warn!(
                %name, wanted,
                "a task waits for permits of a semaphore that was never given any: call try_set_permits"
            ),
            InAll::Permits(permits) if permits < wanted && named.insert(name) => tracing::warn!(
                %name, wanted, permits,
                "a task waits for more permits than the semaphore has: call set_permits, also if a plain semaphore had this name"
            ),
            _ => {}
        }
    }

    /// Logs that permits may never be released: guards of this client have them, or, once for each
    /// semaphore, nothing is heard of them.
    pub(in super::super) fn warn_of_stuck_permits(&self, waits: &[&LongWait], longest: Duration) {
        let waits = waits.iter().filter(|wait| wait.wanted.permits() > 0);
        let mut here: HashMap<_, _> = waits
            .clone()
            .map(|wait| (&*wait.spec.name, HeldHere::default()))
            .collect();
        if here.is_empty() {
            return;
        }
        self.synchronizers.held.suspect(&mut here, longest);
        for wait in waits {
            self.warn_of_stuck_wait(wait, &here[&*wait.spec.name], longest);
        }
    }

    fn warn_of_stuck_wait(&self, wait: &LongWait, here: &HeldHere, longest: Duration) {
        let (name, wanted) = (&wait.spec.name, wait.wanted.permits());
        let is_silent = wait
            .last_release
            .is_some_and(|last| last.elapsed() >= longest);
        if here.suspected > 0 {
            if let Some(suppressed) = self.log_limits.deadlocks.may_log() {
                tracing::warn!(
                    %name, wanted, held = here.suspected, suppressed,
                    "a task has waited for {longest:?} for permits while guards of this client hold some; if their holders wait \
                     for that task, or are that task, none goes on (the time is Config::deadlock_warning)"
                );
            }
        } else if here.permits == 0 && is_silent && self.synchronizers.named.insert(name) {
            tracing::warn!(
                %name, wanted,
                "a task has waited for {longest:?} for permits, and no process has released any: those of a killed process stay \
                 acquired until add_permits replaces them; permit_expirable_semaphore takes them back (the time is \
                 Config::deadlock_warning)"
            );
        }
    }

    /// Logs a wait that lasts, with what the server has at the name.
    pub(in super::super) async fn log_slow_wait_at(
        self: &Arc<Self>,
        LongWait {
            spec,
            wanted,
            since,
            ..
        }: &LongWait,
        suppressed: u64,
    ) {
        let (name, waited) = (&spec.name, since.elapsed());
        let found = match wanted {
            Wanted::Ids(_) => self.run_query(spec, permit::count(spec)).await,
            _ => self.run_query(spec, semaphore::inspect(spec)).await,
        };
        let found = shown(found);
        match wanted {
            Wanted::Opening { .. } => tracing::warn!(
                name: "latch.waiting", %name, ?waited, count = found, suppressed, "a task waits for a latch to open"
            ),
            _ => tracing::warn!(
                name: "semaphore.waiting", %name, wanted = wanted.permits(), ?waited, permits = found, suppressed,
                "a task waits for permits"
            ),
        }
    }
}

/// The server's answer, for a log line.
fn shown(found: Result<Option<Detail>, Error>) -> String {
    match found {
        Ok(Some(Detail::Numbers(numbers))) => match numbers[..] {
            [1, left, acquired] => format!("{left} available, {acquired} acquired"),
            _ => "none".into(),
        },
        Ok(Some(Detail::Number(number))) => number.to_string(),
        Ok(Some(Detail::Text(number))) => number,
        Ok(_) => "none".into(),
        Err(error) => format!("not known: {error}"),
    }
}
