//! The small systems that are explored.

use crate::{
    core::facts::Limits,
    event::Event,
    system::{Budget, Step, System, TICK},
};

/// The steps of a task: `L` lock, `F` lock with a lease of its own, `T` try, `U` unlock.
fn steps(text: &str) -> Vec<Step> {
    let step = |letter| match letter {
        'L' => Step::Lock,
        'F' => Step::LockFixed,
        'T' => Step::Try,
        'U' => Step::Unlock,
        _ => unreachable!("a step is one of L, F, T, U"),
    };
    text.chars().map(step).collect()
}

fn system(name: &'static str, tasks: [[&str; 2]; 2]) -> System {
    System {
        name,
        tasks: tasks.map(|[first, second]| [steps(first), steps(second), Vec::new()]),
        begins: &[],
        owners: [[0, 1, 2]; 2],
        limits: Limits {
            watched_lease: TICK * 3,
            drift_percent: 0,
            least_drift: TICK,
            poll: TICK * 2,
            window: TICK / 2,
            pick_up: TICK * 20,
            echo: TICK / 2,
            hands_off: true,
        },
        fixed_lease: TICK * 5,
        budget: Budget::default(),
        ticks: 0,
        clocks_lag: false,
        timers_lag: false,
        unordered: false,
        keeps_answers: false,
        batches: false,
        elsewhere: false,
    }
}

/// Faults by kind; two of all kinds together, unless `all` says otherwise.
fn with(system: System, ticks: u8, budget: Budget) -> System {
    let all = match budget.all {
        0 => 2,
        all => all,
    };
    System {
        ticks,
        budget: Budget { all, ..budget },
        ..system
    }
}

const NONE: Budget = Budget {
    breaks: 0,
    lost_messages: 0,
    dropped_futures: 0,
    dropped_guards: 0,
    forced: 0,
    refused: 0,
    failovers: 0,
    late_pick_ups: 0,
    all: 0,
};
const BREAK: Budget = Budget { breaks: 1, ..NONE };
const DROPS: Budget = Budget {
    dropped_futures: 1,
    dropped_guards: 1,
    late_pick_ups: 1,
    ..NONE
};
const BREAK_AND_DROPS: Budget = Budget { breaks: 1, ..DROPS };
const FORCED: Budget = Budget {
    forced: 1,
    lost_messages: 1,
    ..NONE
};
const FORCED_ONCE: Budget = Budget {
    forced: 1,
    all: 1,
    ..NONE
};
const REFUSED: Budget = Budget {
    refused: 1,
    breaks: 1,
    dropped_futures: 1,
    ..NONE
};
const FAILOVER: Budget = Budget {
    failovers: 1,
    all: 1,
    ..NONE
};

/// The clocks of clients, or their timers, are late.
fn late(system: System) -> System {
    System {
        clocks_lag: true,
        timers_lag: true,
        ..system
    }
}

/// The first two tasks of the first client are of one owner.
fn twins(system: System) -> System {
    System {
        owners: [[0, 0, 1], [0, 1, 2]],
        ..system
    }
}

/// The first client has a third task, of another owner.
fn third(mut system: System, text: &str) -> System {
    system.tasks[0][2] = steps(text);
    system
}

/// Requests of a client overtake each other.
fn unordered(system: System) -> System {
    System {
        unordered: true,
        ..system
    }
}

/// Operations wait for their batches.
fn batched(system: System) -> System {
    System {
        batches: true,
        ..system
    }
}

/// Answers that were read before a break reach the machine after it.
fn keeping(system: System) -> System {
    System {
        keeps_answers: true,
        ..system
    }
}

/// Messages come from another server than that of the lock.
fn elsewhere(system: System) -> System {
    System {
        elsewhere: true,
        ..system
    }
}

const ONE: [[&str; 2]; 2] = [["LU", ""], ["LU", ""]];
const LOCAL: [[&str; 2]; 2] = [["LU", "LU"], ["LU", ""]];
const ALONE: [[&str; 2]; 2] = [["LU", "LU"], ["", ""]];
const NESTED: [[&str; 2]; 2] = [["LLUU", "LU"], ["", ""]];
const REENTRY: [[&str; 2]; 2] = [["LLUU", ""], ["LU", ""]];

/// The second client has had the lock. The first one, which has waited for it, listens. It has released the lock while its second task
/// waits, and the answer is lost.
const RELEASED_IN_DOUBT: &[Event] = &[
    Event::Step(1, 0),
    Event::Run(1, 0),
    Event::Answer(1, 0),
    Event::Poll(1, 0),
    Event::Step(0, 0),
    Event::Run(0, 0),
    Event::Answer(0, 0),
    Event::Subscribe(0),
    Event::Stream(0),
    Event::Run(0, 0),
    Event::Answer(0, 0),
    Event::Step(1, 0),
    Event::Run(1, 0),
    Event::Answer(1, 0),
    Event::Poll(1, 0),
    Event::Stream(0),
    Event::Run(0, 0),
    Event::Answer(0, 0),
    Event::Poll(0, 0),
    Event::Tick { quiet: true },
    Event::Run(0, 0),
    Event::Answer(0, 0),
    Event::Step(0, 1),
    Event::Step(0, 0),
    Event::Run(0, 0),
    Event::Break(0),
];

/// What a test run can afford, in the order that finds errors soonest.
pub fn small() -> Vec<System> {
    let solo = [["LU", ""], ["", ""]];
    let again = [["LULU", "LU"], ["", ""]];
    let fixed = [["LFUU", ""], ["", ""]];
    let tries = [["LU", "TU"], ["LU", ""]];
    vec![
        with(system("nested", NESTED), 1, NONE),
        with(system("solo", solo), 3, BREAK),
        keeping(with(
            system("failover-thrice", [["LLLUUU", ""], ["", ""]]),
            0,
            Budget {
                dropped_futures: 1,
                ..FAILOVER
            },
        )),
        keeping(with(
            system("failover-tries", [["LU", "TU"], ["", ""]]),
            0,
            FAILOVER,
        )),
        keeping(with(system("failover-fixed", fixed), 2, FAILOVER)),
        keeping(with(system("failover-local", ALONE), 1, FAILOVER)),
        unordered(with(system("nested-lanes", NESTED), 0, BREAK_AND_DROPS)),
        batched(with(system("nested-batches", NESTED), 0, BREAK)),
        with(
            system("tries-alone", [["LU", "TU"], ["", ""]]),
            1,
            BREAK_AND_DROPS,
        ),
        with(system("refused-nested", NESTED), 0, REFUSED),
        with(
            system("pair-faults", ONE),
            0,
            Budget {
                breaks: 1,
                ..FORCED
            },
        ),
        with(system("pair-break", ONE), 1, BREAK),
        late(with(system("pair-clocks", ONE), 0, BREAK)),
        with(system("fixed", fixed), 2, BREAK_AND_DROPS),
        with(
            system("fixed-outer", [["FLUU", ""], ["", ""]]),
            2,
            BREAK_AND_DROPS,
        ),
        with(system("fixed-pair", [["LFUU", ""], ["LU", ""]]), 0, BREAK),
        with(system("fixed-local", [["FU", "LU"], ["", ""]]), 1, NONE),
        twins(with(system("twins-nested", NESTED), 0, BREAK_AND_DROPS)),
        twins(with(
            system("twins-again", again),
            0,
            Budget {
                forced: 1,
                ..BREAK_AND_DROPS
            },
        )),
        twins(with(
            system("twins-fixed", [["LU", "FU"], ["", ""]]),
            1,
            BREAK_AND_DROPS,
        )),
        third(twins(with(system("twins-third", ALONE), 0, NONE)), "LU"),
        with(system("pair", ONE), 3, NONE),
        with(system("local", LOCAL), 1, NONE),
        with(system("local-again", again), 1, BREAK_AND_DROPS),
        with(system("reentry-force", REENTRY), 1, FORCED),
        late(with(system("local-clocks", LOCAL), 0, NONE)),
        with(system("local-break", LOCAL), 0, BREAK),
        // A request is under way for longer than a lease.
        with(system("nested-slow", [["LLUU", ""], ["", ""]]), 5, NONE),
        // A waiter hears of no message although the lock is lost.
        keeping(elsewhere(with(system("elsewhere", ONE), 0, FAILOVER))),
        // A caller that tries gets in before a waiter of its client, and loses the lock.
        with(system("tries-force", tries), 0, FORCED_ONCE),
        // The lock is forced open while an acquire is under way.
        with(system("local-force-once", LOCAL), 0, FORCED_ONCE),
        // The message of another client arrives in place of that of a repeated release.
        System {
            begins: RELEASED_IN_DOUBT,
            ..with(
                system("echo", [["LU", "LU"], ["LULU", ""]]),
                0,
                Budget { all: 1, ..BREAK },
            )
        },
    ]
}

/// What takes minutes.
pub fn large() -> Vec<System> {
    let two = [["LU", "LU"], ["LU", "LU"]];
    let tries = [["LU", "TU"], ["LU", ""]];
    let dropped_future = Budget {
        dropped_futures: 1,
        ..NONE
    };
    vec![
        with(system("local-drops", LOCAL), 0, DROPS),
        with(system("local-force", LOCAL), 0, FORCED),
        with(
            system("local-nested", [["LLUU", "LU"], ["LU", ""]]),
            0,
            DROPS,
        ),
        batched(with(system("local-batches", LOCAL), 0, BREAK)),
        with(system("reentry", REENTRY), 0, BREAK_AND_DROPS),
        with(
            system("again", [["LULU", ""], ["LU", ""]]),
            0,
            BREAK_AND_DROPS,
        ),
        with(system("tries", tries), 0, Budget { forced: 1, ..DROPS }),
        with(
            system("tries-break", tries),
            0,
            Budget {
                dropped_guards: 1,
                ..BREAK
            },
        ),
        with(system("refused", LOCAL), 0, REFUSED),
        twins(with(
            system("twins", LOCAL),
            0,
            Budget {
                breaks: 1,
                ..dropped_future
            },
        )),
        keeping(with(system("failover-nested", REENTRY), 0, FAILOVER)),
        keeping(with(system("failover-late", ONE), 1, FAILOVER)),
        with(system("failover", ONE), 2, FAILOVER),
        keeping(with(
            system("failover-break", ONE),
            0,
            Budget {
                breaks: 1,
                all: 2,
                ..FAILOVER
            },
        )),
        with(system("four", two), 1, NONE),
        with(
            system("four-break", two),
            0,
            Budget {
                breaks: 1,
                ..dropped_future
            },
        ),
    ]
}
