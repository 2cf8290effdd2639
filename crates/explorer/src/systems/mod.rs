//! The small systems that are explored.

mod build;

use build::*;

use crate::system::{Budget, System};

/// A system without tasks and faults.
pub(crate) fn plain(name: &'static str) -> System {
    system(name, [["", ""], ["", ""]])
}

/// What a test run can afford, in the order that finds errors soonest.
pub fn small() -> Vec<System> {
    let mut all = small_plain();
    all.extend(small_fair());
    all
}

fn small_plain() -> Vec<System> {
    let solo = [["LU", ""], ["", ""]];
    let again = [["LULU", "LU"], ["", ""]];
    let fixed = [["LFUU", ""], ["", ""]];
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
        // The server refuses requests for a passing reason.
        with(system("put-off-nested", NESTED), 1, PUT_OFF),
        with(
            system("put-off-pair", ONE),
            0,
            Budget {
                put_off: 2,
                breaks: 1,
                ..NONE
            },
        ),
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
        // A hold is extended, and ends inside another one, or passes on.
        with(system("extend", EXTENDED), 1, NONE),
        with(system("extend-drops", EXTENDED), 0, BREAK_AND_DROPS),
        with(system("extend-inner", [["LLEUU", "LU"], ["", ""]]), 1, NONE),
        with(system("extend-outer", [["LELUU", ""], ["", ""]]), 1, NONE),
        twins(with(
            system("extend-twins", [["LEU", "LEU"], ["", ""]]),
            0,
            BREAK_AND_DROPS,
        )),
        keeping(with(
            system("extend-failover", [["LEU", ""], ["", ""]]),
            1,
            FAILOVER,
        )),
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
        // A client is shut down: callers wait, ask, enter again, and extend their holds.
        with(system("close-pair", ONE), 1, CLOSED),
        with(system("close-local", ALONE), 1, CLOSED),
        twins(with(
            system("close-nested", NESTED),
            0,
            Budget {
                breaks: 1,
                all: 2,
                ..CLOSED
            },
        )),
        with(
            system("close-extend", EXTENDED),
            0,
            Budget {
                put_off: 1,
                late_pick_ups: 1,
                all: 2,
                ..CLOSED
            },
        ),
        // No task hands the lock to another one in memory, nor does a caller that has gone.
        apart(with(system("apart", ALONE), 0, DROPS)),
        // A request is under way for longer than a lease.
        with(system("nested-slow", [["LLUU", ""], ["", ""]]), 5, NONE),
        // A waiter hears of no message although the lock is lost.
        keeping(elsewhere(with(system("elsewhere", ONE), 0, FAILOVER))),
        // The message of another client arrives in place of that of a repeated release.
        System {
            begins: released_in_doubt(),
            ..with(
                system("echo", [["LU", "LU"], ["LULU", ""]]),
                0,
                Budget { all: 1, ..BREAK },
            )
        },
    ]
}

/// The same for fair locks.
fn small_fair() -> Vec<System> {
    let tries = [["LU", "TU"], ["LU", ""]];
    let lost_message = Budget {
        lost_messages: 1,
        all: 1,
        ..NONE
    };
    let refused = Budget {
        refused: 1,
        all: 1,
        ..NONE
    };
    vec![
        // Callers leave, and the connection breaks, while they have places.
        fair(with(system("fair-pair", ONE), 0, BREAK_AND_DROPS)),
        // Two clients, and two owners of one of them, take their turns.
        fair(with(system("fair-local", LOCAL), 0, NONE)),
        // Two owners of one client ask beside each other.
        fair(with(system("fair-alone", ALONE), 0, BREAK_AND_DROPS)),
        // Two tasks of one owner have one place.
        fair(twins(with(system("fair-twins", LOCAL), 0, NONE))),
        // A task leaves while another one of its owner waits.
        fair(twins(with(
            system("fair-twins-drops", ALONE),
            0,
            BREAK_AND_DROPS,
        ))),
        // The head of the queue loses its place, and asks in time to have it again.
        System {
            begins: passed_over(),
            ..fair(with(
                system("fair-passed-over", [["LU", "LU"], ["LU", "LU"]]),
                0,
                Budget {
                    lost_messages: 2,
                    ..NONE
                },
            ))
        },
        // A task that tries gets the lock while another one of its owner waits.
        fair(twins(with(
            system("fair-twins-tries", tries),
            0,
            lost_message,
        ))),
        // An owner enters again beside a waiter.
        fair(with(system("fair-nested", NESTED), 0, BREAK)),
        // A caller that tries takes no place.
        fair(with(system("fair-tries", tries), 0, NONE)),
        // The lock is forced open beside a waiter of the same client.
        fair(with(system("fair-force-alone", ALONE), 0, FORCED)),
        // The answer to a grant that was forced open arrives after the next grant.
        unordered(fair(with(system("fair-lanes", ALONE), 0, FORCED_ONCE))),
        // A place is not left, because the server refuses it.
        fair(with(system("fair-refused", ALONE), 0, refused)),
        // The server puts off what the owner of a place asks for, or that it leaves.
        fair(with(system("fair-put-off", ONE), 0, PUT_OFF)),
        // A client is shut down, and leaves its places.
        fair(with(system("fair-close", ALONE), 0, CLOSED)),
        // A place ends while its waiter asks, or is out of touch.
        short_places(fair(with(system("fair-places", ONE), 1, BREAK))),
        // The same, while the waiters still listen.
        fair(keeping(elsewhere(with(
            system("fair-elsewhere", ONE),
            0,
            FAILOVER,
        )))),
    ]
}

/// What takes seconds each, in the order that finds errors soonest.
pub fn middle() -> Vec<System> {
    let again = [["LULU", "LU"], ["", ""]];
    let tries = [["LU", "TU"], ["LU", ""]];
    let dropped_future = Budget {
        dropped_futures: 1,
        all: 1,
        ..NONE
    };
    vec![
        with(
            system("extend-fixed", [["FEU", ""], ["LU", ""]]),
            1,
            PUT_OFF,
        ),
        with(system("local", LOCAL), 1, NONE),
        with(system("local-again", again), 1, BREAK_AND_DROPS),
        with(system("reentry-force", REENTRY), 1, FORCED),
        late(with(system("local-clocks", LOCAL), 0, NONE)),
        with(system("local-break", LOCAL), 0, BREAK),
        // A caller that tries gets in before a waiter of its client, and loses the lock.
        with(system("tries-force", tries), 0, FORCED_ONCE),
        // The lock is forced open while an acquire is under way.
        with(system("local-force-once", LOCAL), 0, FORCED_ONCE),
        // A task leaves when its turn comes, and another one of its owner takes it, which has a lease of its own.
        System {
            begins: queued(),
            ..fair(twins(with(
                system("fair-twins-turn", [["LU", "FU"], ["LU", "LU"]]),
                0,
                dropped_future,
            )))
        },
        // A lease ends while a waiter asks.
        fair(with(system("fair-slow", ONE), 3, NONE)),
        // A failover loses places, or brings them back.
        fair(keeping(with(system("fair-failover", ONE), 0, FAILOVER))),
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
        fair(with(system("fair-four", two), 0, NONE)),
        fair(with(system("fair-force", LOCAL), 0, FORCED_ONCE)),
        fair(with(
            system("fair-break", LOCAL),
            0,
            Budget { all: 1, ..BREAK },
        )),
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
