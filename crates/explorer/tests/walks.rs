//! Goes some of the random ways of `make explore-walks`. Their number and length stand in docs/testing.md.

use explorer::walk::walk;

/// Four parts, for four processors.
const COUNT: u64 = 2_500;

fn are_clean(part: u64) {
    let first = 1 + part * COUNT;
    let mut steps = 0;
    for seed in first..first + COUNT {
        let walked = walk(seed);
        steps += walked.steps;
        if let Some(found) = walked.found {
            panic!("{}: walks {seed} prints the way", found.rule);
        }
    }
    // A walk of this size that ends at once shows nothing.
    assert!(steps > 100 * COUNT as usize, "{steps} steps");
}

#[test]
fn first_part() {
    are_clean(0);
}

#[test]
fn second_part() {
    are_clean(1);
}

#[test]
fn third_part() {
    are_clean(2);
}

#[test]
fn fourth_part() {
    are_clean(3);
}
