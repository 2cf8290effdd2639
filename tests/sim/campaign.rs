//! Many histories, on all cores.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{history::Plan, shrink};

pub struct Campaign {
    pub first: u64,
    pub histories: u64,
}

/// What a campaign came to.
pub struct Report {
    kinds: BTreeMap<String, u64>,
    entered: usize,
    histories: u64,
    first: u64,
    took: Duration,
}

impl Campaign {
    /// Plays all; panics with the first that breaks a rule, made as small as it gets.
    pub fn run(&self) -> Report {
        let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let kinds = Mutex::new(BTreeMap::new());
        let broken = Mutex::new(None);
        let entered = AtomicU64::new(0);
        let began = Instant::now();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let work = || {
            while !failed.load(Relaxed) {
                let index = next.fetch_add(1, Relaxed);
                if index >= self.histories {
                    return;
                }
                let plan = Plan::whole(self.first + index);
                match plan.play(false) {
                    Ok(kept) => {
                        let kind = format!("{}, {}", plan.subject().name, plan.profile().0);
                        let mut kinds = kinds.lock().unwrap_or_else(PoisonError::into_inner);
                        *kinds.entry(kind).or_default() += 1;
                        entered.fetch_add(kept.tally.entered as u64, Relaxed);
                    }
                    Err(_) => {
                        failed.store(true, Relaxed);
                        let mut broken = broken.lock().unwrap_or_else(PoisonError::into_inner);
                        broken.get_or_insert(plan);
                    }
                }
            }
        };
        thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(work);
            }
        });
        if let Some(plan) = broken.into_inner().unwrap_or_else(PoisonError::into_inner) {
            panic!("{}", shrink::told(plan));
        }
        Report {
            kinds: kinds.into_inner().unwrap_or_else(PoisonError::into_inner),
            entered: entered.into_inner() as usize,
            histories: self.histories,
            first: self.first,
            took: began.elapsed(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, histories) in &self.kinds {
            writeln!(f, "{histories:>8}  {kind}")?;
        }
        let last = self.first + self.histories.saturating_sub(1);
        let rate = self.histories as f64 / self.took.as_secs_f64();
        write!(
            f,
            "{} histories, seeds {} to {last}, {} acquisitions, 0 violations, {:.1} s, {rate:.0} a second",
            self.histories,
            self.first,
            self.entered,
            self.took.as_secs_f64()
        )
    }
}
