//! Plays many histories, on all cores.

mod determinism;
pub mod history;
mod queue_recorder;
pub mod refusals;
mod regressions;
mod server_rules;
pub mod shrink;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    io::{self, Write},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use history::Plan;
#[cfg(unix)]
use testbed::cpu_time;

use crate::world::servers::Kind;

/// The pause between two looks at the running histories.
const LOOKS_EVERY: Duration = Duration::from_millis(100);
/// The most CPU time of this process while a history is played, which takes well under a second. Real time would count other
/// programs on a busy machine.
const MOST_CPU_TIME: Duration = Duration::from_secs(40);

pub struct Campaign {
    pub first: u64,
    pub histories: u64,
    /// The world of all histories, or that of their seeds.
    pub world: Option<Kind>,
    /// Whether the campaign shrinks a history that breaks a rule before it prints it.
    pub shrinks: bool,
}

/// The counts of a campaign that kept the rules.
pub struct Report {
    kinds: BTreeMap<String, u64>,
    entered: u64,
    calls: u64,
    commands: u64,
    histories: u64,
    first: u64,
    threads: usize,
    took: Duration,
}

impl Campaign {
    /// Plays all histories. Panics with the first one that breaks a rule.
    pub fn run(&self) -> Report {
        let (next, failed) = (AtomicU64::new(0), AtomicBool::new(false));
        let kinds = Mutex::new(BTreeMap::new());
        let broken: Mutex<Option<(u64, Plan, String)>> = Mutex::new(None);
        let [entered, calls, commands] = [const { AtomicU64::new(0) }; 3];
        let began = Instant::now();
        let threads = thread::available_parallelism().map_or(1, usize::from);
        let (playing, over) = (Mutex::new(HashMap::new()), AtomicBool::new(false));
        let now_playing = || playing.lock().unwrap_or_else(PoisonError::into_inner);
        let work = || {
            while !failed.load(Relaxed) {
                let index = next.fetch_add(1, Relaxed);
                if index >= self.histories {
                    return;
                }
                let plan = Plan::of(self.first + index, self.world);
                now_playing().insert(plan.seed, cpu_time());
                let played = plan.play(false);
                now_playing().remove(&plan.seed);
                match played {
                    Ok(kept) => {
                        let kind = plan.conditions();
                        let mut kinds = kinds.lock().unwrap_or_else(PoisonError::into_inner);
                        *kinds.entry(kind).or_default() += 1;
                        entered.fetch_add(kept.tally.entered as u64, Relaxed);
                        calls.fetch_add(kept.tally.calls as u64, Relaxed);
                        commands.fetch_add(kept.commands, Relaxed);
                    }
                    Err(failure) => {
                        failed.store(true, Relaxed);
                        let mut broken = broken.lock().unwrap_or_else(PoisonError::into_inner);
                        let earlier = broken.as_ref().is_some_and(|(other, ..)| *other < index);
                        if !earlier {
                            *broken = Some((index, plan, failure.rule));
                        }
                    }
                }
            }
        };
        // A history in which time stands still cannot be cancelled, so the process exits.
        let watch = || {
            while !over.load(Relaxed) {
                thread::sleep(LOOKS_EVERY);
                for (seed, from) in now_playing().iter() {
                    if cpu_time() - *from > MOST_CPU_TIME {
                        let number = seed - self.first + 1;
                        let plan = Plan::of(*seed, self.world);
                        // `println!` would write into libtest's buffer, which is lost with the process.
                        let mut out = io::stdout();
                        let command = plan.command();
                        let _ =
                            writeln!(out, "\n{command}\nBROKEN\t{seed}\t{number}\t{plan}: no end");
                        std::process::exit(1);
                    }
                }
            }
        };
        thread::scope(|scope| {
            let watching = scope.spawn(watch);
            let working: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let ended = working.into_iter().map(|worker| worker.join());
            let ended: Vec<_> = ended.collect();
            over.store(true, Relaxed);
            let _ = watching.join();
            assert!(ended.iter().all(Result::is_ok), "a thread failed");
        });
        let broken = broken.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some((index, plan, rule)) = broken {
            let report = match self.shrinks {
                true => shrink::report(plan.clone()),
                false => format!("{plan}: {rule}\n{}", plan.command()),
            };
            // Parsed by tools/simulate-mutants.sh: the seed, the number of histories played, and the rule.
            let rule = rule.lines().next().unwrap_or_default();
            println!("{report}");
            panic!("\nBROKEN\t{}\t{}\t{plan}: {rule}", plan.seed, index + 1);
        }
        Report {
            kinds: kinds.into_inner().unwrap_or_else(PoisonError::into_inner),
            entered: entered.into_inner(),
            calls: calls.into_inner(),
            commands: commands.into_inner(),
            histories: self.histories,
            first: self.first,
            threads,
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
            "{} histories, seeds {} to {last}, {} acquisitions, 0 violations, {:.1} s, {rate:.0} a second on {} threads; \
             {} calls and {} commands each",
            self.histories,
            self.first,
            self.entered,
            self.took.as_secs_f64(),
            self.threads,
            self.calls / self.histories.max(1),
            self.commands / self.histories.max(1),
        )
    }
}

/// The time since the first call, because Windows tells no CPU time without unsafe code.
#[cfg(not(unix))]
fn cpu_time() -> Duration {
    static FIRST: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    FIRST.elapsed()
}
