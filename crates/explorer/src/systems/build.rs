//! How a small system is described.

use crate::{
    core::facts::Limits,
    event::Event,
    system::{Budget, Step, System, TICK},
};

/// The steps of a task: `L` lock, `F` lock with a lease of its own, `T` try, `U` unlock, `E` extend.
pub(super) fn steps(text: &str) -> Vec<Step> {
    let step = |letter| match letter {
        'L' => Step::Lock,
        'F' => Step::LockFixed,
        'T' => Step::Try,
        'U' => Step::Unlock,
        'E' => Step::Extend,
        _ => unreachable!("a step is one of L, F, T, U, E"),
    };
    text.chars().map(step).collect()
}

pub(super) fn system(name: &'static str, tasks: [[&str; 2]; 2]) -> System {
    System {
        name,
        tasks: tasks.map(|[first, second]| [steps(first), steps(second), Vec::new()]),
        begins: Vec::new(),
        owners: [[0, 1, 2]; 2],
        limits: Limits {
            watched_lease: TICK * 3,
            drift_percent: 0,
            least_drift: TICK,
            poll: TICK * 2,
            window: TICK / 2,
            pick_up: TICK * 20,
            echo: TICK / 2,
            retry: TICK,
            hands_off: true,
            is_fair: false,
        },
        fixed_lease: TICK * 5,
        place: 6,
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
pub(super) fn with(system: System, ticks: u8, budget: Budget) -> System {
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

pub(super) const NONE: Budget = Budget {
    breaks: 0,
    lost_messages: 0,
    dropped_futures: 0,
    dropped_guards: 0,
    forced: 0,
    refused: 0,
    put_off: 0,
    failovers: 0,
    closes: 0,
    late_pick_ups: 0,
    all: 0,
};
pub(super) const BREAK: Budget = Budget { breaks: 1, ..NONE };
pub(super) const DROPS: Budget = Budget {
    dropped_futures: 1,
    dropped_guards: 1,
    late_pick_ups: 1,
    ..NONE
};
pub(super) const BREAK_AND_DROPS: Budget = Budget { breaks: 1, ..DROPS };
pub(super) const FORCED: Budget = Budget {
    forced: 1,
    lost_messages: 1,
    ..NONE
};
pub(super) const FORCED_ONCE: Budget = Budget {
    forced: 1,
    all: 1,
    ..NONE
};
pub(super) const REFUSED: Budget = Budget {
    refused: 1,
    breaks: 1,
    dropped_futures: 1,
    ..NONE
};
pub(super) const PUT_OFF: Budget = Budget {
    put_off: 1,
    dropped_futures: 1,
    ..NONE
};
pub(super) const CLOSED: Budget = Budget {
    closes: 1,
    all: 1,
    ..NONE
};
pub(super) const FAILOVER: Budget = Budget {
    failovers: 1,
    all: 1,
    ..NONE
};

/// The clocks of clients, or their timers, are late.
pub(super) fn late(system: System) -> System {
    System {
        clocks_lag: true,
        timers_lag: true,
        ..system
    }
}

/// The first two tasks of the first client are of one owner.
pub(super) fn twins(system: System) -> System {
    System {
        owners: [[0, 0, 1], [0, 1, 2]],
        ..system
    }
}

/// The first client has a third task, of another owner.
pub(super) fn third(mut system: System, text: &str) -> System {
    system.tasks[0][2] = steps(text);
    system
}

/// Requests of a client overtake each other.
pub(super) fn unordered(system: System) -> System {
    System {
        unordered: true,
        ..system
    }
}

/// Operations wait for their batches.
pub(super) fn batched(system: System) -> System {
    System {
        batches: true,
        ..system
    }
}

/// Answers that were read before a break reach the machine after it.
pub(super) fn keeping(system: System) -> System {
    System {
        keeps_answers: true,
        ..system
    }
}

/// Messages come from another server than that of the lock.
pub(super) fn elsewhere(system: System) -> System {
    System {
        elsewhere: true,
        ..system
    }
}

pub(super) const ONE: [[&str; 2]; 2] = [["LU", ""], ["LU", ""]];
pub(super) const LOCAL: [[&str; 2]; 2] = [["LU", "LU"], ["LU", ""]];
pub(super) const ALONE: [[&str; 2]; 2] = [["LU", "LU"], ["", ""]];
pub(super) const NESTED: [[&str; 2]; 2] = [["LLUU", "LU"], ["", ""]];
pub(super) const EXTENDED: [[&str; 2]; 2] = [["LEU", "LU"], ["", ""]];
pub(super) const REENTRY: [[&str; 2]; 2] = [["LLUU", ""], ["LU", ""]];

/// The server keeps the queue.
pub(super) fn fair(mut system: System) -> System {
    system.limits.is_fair = true;
    system
}

/// No task hands the lock off in memory.
pub(super) fn apart(mut system: System) -> System {
    system.limits.hands_off = false;
    system
}

/// A waiter loses its place if it asks too late once.
pub(super) fn short_places(mut system: System) -> System {
    system.limits.poll = TICK;
    system.place = 2;
    system
}

/// A task of a client asks, and is answered.
fn asks(client: u8, task: u8) -> Vec<Event> {
    [vec![Event::Step(client, task)], answered(client)].concat()
}

/// The next request of a client is executed and answered.
fn answered(client: u8) -> Vec<Event> {
    vec![Event::Run(client, 0), Event::Answer(client, 0)]
}

/// A task asks, and has the lock or the answer to its release.
fn is_done(client: u8, task: u8) -> Vec<Event> {
    [asks(client, task), vec![Event::Poll(client, task)]].concat()
}

/// A task asks for a lock that another one has: its client listens, and asks once more.
fn waits(client: u8, task: u8) -> Vec<Event> {
    let listens = vec![Event::Subscribe(client), Event::Stream(client)];
    [asks(client, task), listens, answered(client)].concat()
}

fn time_passes() -> Vec<Event> {
    vec![Event::Tick { quiet: true }]
}

/// The second client has had the lock. The first one, which has waited for it, listens. It has released the lock while its second task
/// waits, and the answer is lost.
pub(super) fn released_in_doubt() -> Vec<Event> {
    [
        is_done(1, 0),
        waits(0, 0),
        is_done(1, 0),
        vec![Event::Stream(0)],
        answered(0),
        vec![Event::Poll(0, 0)],
        time_passes(),
        answered(0),
        vec![Event::Step(0, 1), Event::Step(0, 0)],
        vec![Event::Run(0, 0), Event::Break(0)],
    ]
    .concat()
}

/// The second client has a fair lock. Two tasks of one owner of the first client wait for it, then another one of the second.
pub(super) fn queued() -> Vec<Event> {
    [
        is_done(1, 0),
        asks(0, 0),
        vec![Event::Step(0, 1)],
        asks(1, 1),
    ]
    .concat()
}

/// The second client has had a fair lock. The head of the queue has not heard of it. The next waiter has found the lock free, and told the
/// head in vain. A third one waits behind them, and the place of the head has ended.
pub(super) fn passed_over() -> Vec<Event> {
    let is_not_heard = || vec![Event::Run(1, 0), Event::LoseMessage(0), Event::Answer(1, 0)];
    [
        is_done(1, 0),
        // The head.
        waits(0, 0),
        time_passes(),
        answered(1),
        // The next waiter.
        waits(1, 1),
        time_passes(),
        answered(0),
        answered(1),
        // The third one.
        waits(0, 1),
        // The release.
        vec![Event::Step(1, 0)],
        is_not_heard(),
        vec![Event::Poll(1, 0)],
        time_passes(),
        is_not_heard(),
        time_passes(),
    ]
    .concat()
}
