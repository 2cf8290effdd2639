//! Explores each small system. The times and the number of states stand in docs/testing.md.

use explorer::{game::Game, search::explore, systems};

/// More states than any small system has: a system that grows beyond them belongs to the middle ones.
const MOST: usize = 600_000;

fn is_clean<G: Game>(all: Vec<G>, name: &str) {
    let system = all.into_iter().find(|system| system.name() == name);
    let explored = explore(&system.expect("the system is listed"), MOST);
    if let Some(found) = explored.found {
        panic!(
            "{}: explorer {name} prints the way\n{:#?}",
            found.rule, found.events
        );
    }
    assert!(explored.is_complete, "more than {MOST} states");
    println!("{name}: {} states in {:?}", explored.states, explored.took);
}

macro_rules! systems {
    ($all:expr; $($test:ident: $name:literal,)*) => {
        $(
            #[test]
            fn $test() {
                $crate::is_clean($all, $name);
            }
        )*

        #[test]
        fn every_small_system_is_explored() {
            let names: Vec<_> = $all.iter().map(|system| system.name).collect();
            assert_eq!(names, [$($name),*]);
        }
    };
}

#[path = "small/latches.rs"]
mod latches;
#[path = "small/permits.rs"]
mod permits;

systems! {
    systems::small();
    nested: "nested",
    solo: "solo",
    failover_thrice: "failover-thrice",
    failover_tries: "failover-tries",
    failover_fixed: "failover-fixed",
    failover_local: "failover-local",
    nested_lanes: "nested-lanes",
    nested_batches: "nested-batches",
    tries_alone: "tries-alone",
    refused_nested: "refused-nested",
    put_off_nested: "put-off-nested",
    put_off_pair: "put-off-pair",
    pair_faults: "pair-faults",
    pair_break: "pair-break",
    pair_clocks: "pair-clocks",
    fixed: "fixed",
    fixed_outer: "fixed-outer",
    fixed_pair: "fixed-pair",
    fixed_local: "fixed-local",
    extend: "extend",
    extend_drops: "extend-drops",
    extend_inner: "extend-inner",
    extend_outer: "extend-outer",
    extend_twins: "extend-twins",
    extend_failover: "extend-failover",
    twins_nested: "twins-nested",
    twins_again: "twins-again",
    twins_fixed: "twins-fixed",
    twins_third: "twins-third",
    pair: "pair",
    close_pair: "close-pair",
    close_local: "close-local",
    close_nested: "close-nested",
    close_extend: "close-extend",
    apart: "apart",
    nested_slow: "nested-slow",
    elsewhere: "elsewhere",
    echo: "echo",
    fair_pair: "fair-pair",
    fair_local: "fair-local",
    fair_alone: "fair-alone",
    fair_twins: "fair-twins",
    fair_twins_drops: "fair-twins-drops",
    fair_passed_over: "fair-passed-over",
    fair_twins_tries: "fair-twins-tries",
    fair_nested: "fair-nested",
    fair_tries: "fair-tries",
    fair_force_alone: "fair-force-alone",
    fair_lanes: "fair-lanes",
    fair_refused: "fair-refused",
    fair_put_off: "fair-put-off",
    fair_close: "fair-close",
    fair_places: "fair-places",
    fair_elsewhere: "fair-elsewhere",
}
