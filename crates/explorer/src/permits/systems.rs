//! The small systems of permits that are explored.

use super::{Step, System};
use crate::{
    core::permits::facts::Limits,
    system::{Budget, TICK},
};

/// The steps of a task: a digit acquires so many permits, `t` tries one, `E` ends a guard, `L` leaves its permits taken, `R` releases
/// one of those.
fn steps(text: &str) -> Vec<Step> {
    let step = |letter: char| match letter {
        't' => Step::Try(1),
        'E' => Step::End,
        'L' => Step::Leak,
        'R' => Step::Release,
        _ => Step::Acquire(letter.to_digit(10).expect("a number of permits")),
    };
    text.chars().map(step).collect()
}

fn system(name: &'static str, permits: u8, tasks: [[&str; 3]; 2]) -> System {
    System {
        name,
        permits,
        tasks: tasks.map(|tasks| tasks.map(steps)),
        limits: Limits {
            poll: TICK * 3,
            window: TICK / 2,
            pick_up: TICK * 20,
            pause: TICK,
            longest_doubt: TICK * 5,
            hands_off: true,
        },
        budget: Budget::default(),
        ticks: 0,
        unordered: false,
        keeps_answers: false,
        batches: false,
        elsewhere: false,
    }
}

/// Faults by kind; one of all kinds together, unless `all` says otherwise.
fn with(system: System, ticks: u8, budget: Budget) -> System {
    let all = match budget.all {
        0 => 1,
        all => all,
    };
    System {
        ticks,
        budget: Budget { all, ..budget },
        ..system
    }
}

fn breaks() -> Budget {
    Budget {
        breaks: 1,
        lost_messages: 1,
        ..Budget::default()
    }
}

fn drops() -> Budget {
    Budget {
        dropped_futures: 1,
        dropped_guards: 1,
        late_pick_ups: 1,
        ..Budget::default()
    }
}

fn breaks_and_drops() -> Budget {
    Budget {
        breaks: 1,
        lost_messages: 1,
        ..drops()
    }
}

fn failovers() -> Budget {
    Budget {
        failovers: 1,
        dropped_futures: 1,
        ..Budget::default()
    }
}

fn refusals() -> Budget {
    Budget {
        refused: 1,
        breaks: 1,
        dropped_futures: 1,
        all: 2,
        ..Budget::default()
    }
}

const PAIR: [[&str; 3]; 2] = [["1E", "", ""], ["1E", "", ""]];
const ALONE: [[&str; 3]; 2] = [["1E", "1E", ""], ["", "", ""]];
const LOCAL: [[&str; 3]; 2] = [["1E", "1E", ""], ["1E", "", ""]];
const MANY: [[&str; 3]; 2] = [["2E", "1E", ""], ["1E", "", ""]];

/// What a test run can afford, in the order that finds errors soonest.
pub fn small() -> Vec<System> {
    let gives_up = |system: System| System {
        limits: Limits {
            longest_doubt: TICK * 2,
            ..system.limits.clone()
        },
        ..system
    };
    let hands_nothing_off = |system: System| System {
        limits: Limits {
            hands_off: false,
            ..system.limits.clone()
        },
        ..system
    };
    vec![
        with(system("permits-pair", 1, PAIR), 1, breaks()),
        with(system("permits-alone", 1, ALONE), 1, breaks_and_drops()),
        with(system("permits-many", 2, MANY), 0, Budget::default()),
        with(
            system("permits-many-alone", 2, [["2E", "1E", "1E"], ["", "", ""]]),
            0,
            Budget::default(),
        ),
        with(system("permits-local", 1, LOCAL), 0, Budget::default()),
        with(
            system("permits-tries", 1, [["1E", "tE", ""], ["", "", ""]]),
            0,
            breaks_and_drops(),
        ),
        with(system("permits-refused", 1, ALONE), 0, refusals()),
        with(system("permits-failover", 1, PAIR), 0, failovers()),
        System {
            keeps_answers: true,
            ..with(system("permits-failover-kept", 1, ALONE), 0, failovers())
        },
        System {
            elsewhere: true,
            ..with(system("permits-elsewhere", 1, ALONE), 0, failovers())
        },
        // The server may forget an attempt while its client repeats it.
        gives_up(with(
            system("permits-given-up", 1, [["1E", "", ""], ["", "", ""]]),
            5,
            Budget {
                breaks: 2,
                refused: 1,
                all: 3,
                ..Budget::default()
            },
        )),
        System {
            unordered: true,
            ..with(system("permits-lanes", 1, ALONE), 0, breaks_and_drops())
        },
        System {
            batches: true,
            ..with(system("permits-batches", 1, ALONE), 0, breaks_and_drops())
        },
        System {
            batches: true,
            ..with(
                system("permits-batches-doubt", 1, [["1E", "", ""], ["", "", ""]]),
                0,
                Budget {
                    all: 2,
                    ..breaks_and_drops()
                },
            )
        },
        hands_nothing_off(with(system("permits-apart", 1, ALONE), 0, drops())),
        // Permits are left taken, and released by their number.
        with(
            system("permits-left", 1, [["1LR", "", ""], ["1E", "", ""]]),
            0,
            breaks(),
        ),
        // A waiter for many, and tasks that come and go.
        with(
            system("permits-few-first", 2, [["2E", "", ""], ["1E1E", "", ""]]),
            0,
            Budget {
                dropped_futures: 1,
                all: 1,
                ..Budget::default()
            },
        ),
        // A waiter for few behind one for many.
        with(
            system(
                "permits-behind-many",
                2,
                [["2E", "1E", "11EE"], ["", "", ""]],
            ),
            0,
            Budget::default(),
        ),
    ]
}

/// What takes minutes.
pub fn large() -> Vec<System> {
    let twice = |system: System| System {
        budget: Budget {
            all: 2,
            ..system.budget
        },
        ..system
    };
    vec![
        with(system("permits-many-breaks", 2, MANY), 0, breaks()),
        with(
            system("permits-local-breaks", 1, LOCAL),
            0,
            breaks_and_drops(),
        ),
        with(system("permits-local-refused", 1, LOCAL), 0, refusals()),
        twice(with(
            system("permits-pair-twice", 1, PAIR),
            1,
            breaks_and_drops(),
        )),
        twice(with(
            system("permits-alone-twice", 1, ALONE),
            1,
            breaks_and_drops(),
        )),
        with(
            system("permits-local-clients", 1, [["1E", "1E", ""]; 2]),
            0,
            breaks_and_drops(),
        ),
        with(
            system("permits-many-clients", 3, [["2E", "1E", ""]; 2]),
            0,
            breaks_and_drops(),
        ),
        with(
            system("permits-three", 2, [["2E", "1E", "1E"], ["1E", "", ""]]),
            0,
            breaks_and_drops(),
        ),
        System {
            keeps_answers: true,
            ..with(system("permits-failover-local", 1, LOCAL), 1, failovers())
        },
    ]
}
