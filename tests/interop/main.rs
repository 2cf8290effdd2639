//! Java services with Redisson and this crate on one server, in both directions, for each version
//! and kind in the tables below. Without `tools/build-peer.sh` the tests fail. `make interop-all`
//! replaces the older version by further ones.

mod channels;
mod conformance;
mod failover;
mod fair;
mod fenced;
mod from_redisson;
mod ground;
mod holding;
mod incident;
mod jobs;
mod kinds;
mod multi;
mod outliving;
mod random;
mod read_write;
mod resharding;
mod rust_peer;
mod stage;
mod steps;
mod stores;
mod synchronizers;
mod turns;
mod waking;
mod worker;
mod yaml;

/// Tests against one version of Redisson, or of one kind of lock against it.
macro_rules! suite {
    ($version:ident: $($module:ident::$test:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let version = crate::stage::Version::$version().that_is_built();
            crate::$module::$test(version).await;
        }
    )* };
    ($version:ident, $kind:ident: $($module:ident::$test:ident)*) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            let version = crate::stage::Version::$version().that_is_built();
            let kind = &crate::kinds::$kind;
            crate::$module::$test(crate::stage::Case { version, kind }).await;
        }
    )* };
}

/// The tests of every kind.
macro_rules! every_lock {
    ($version:ident, $kind:ident) => {
        suite! { $version, $kind:
            holding::excludes
            holding::a_wait_has_its_limit
            holding::counts_and_leases_are_seen_equal
            holding::owners_look_like_redissons
            holding::a_forced_unlock_frees_and_wakes
            waking::an_unlock_wakes_a_waiter
            waking::every_unlock_wakes_one_waiter
            waking::a_dropped_guard_wakes_java
        }
    };
}

/// The tests of every exclusive kind.
macro_rules! exclusive_lock {
    ($version:ident, $kind:ident) => {
        suite! { $version, $kind: holding::a_counter_that_only_the_lock_protects }
    };
}

macro_rules! same_steps {
    ($version:ident, $kind:ident) => {
        suite! { $version, $kind: conformance::every_step_leaves_the_same_data }
    };
}

macro_rules! queue {
    ($version:ident, $kind:ident) => {
        suite! { $version, $kind:
            fair::all_waiters_enter_in_order
            fair::a_waiter_that_leaves_changes_no_other_place
            fair::a_slow_head_is_not_overtaken
            fair::a_long_hold_leaves_all_waiters_in_order
            fair::a_dead_rust_waiter_is_passed_over
            fair::a_dead_java_waiter_is_passed_over
        }
    };
}

/// Long tests, which run for all kinds at once.
macro_rules! all_kinds {
    ($version:ident) => {
        suite! { $version:
            holding::a_rust_holder_learns_that_java_forced_it_out
            jobs::a_lock_that_a_job_keeps_is_held_for_java_until_its_expiry
            outliving::a_waiter_acquires_the_lock_after_an_expired_lease
            outliving::the_watchdog_outlives_the_lease
            outliving::a_dead_java_holder_is_followed_after_the_lease
            outliving::a_dead_rust_holder_is_followed_after_the_lease
        }
    };
}

macro_rules! read_write_lock {
    ($version:ident) => {
        suite! { $version:
            read_write::readers_share_and_writers_do_not
            read_write::a_counter_that_is_read_and_written
            read_write::a_writers_release_wakes_all_waiting_readers
            read_write::a_downgrade_lets_readers_in
            read_write::a_dead_java_reader_frees_the_writer
            read_write::a_dead_rust_reader_frees_the_writer
            read_write::a_gate_lets_a_writer_in_beside_overlapping_readers
        }
    };
}

macro_rules! tokens {
    ($version:ident) => {
        suite! { $version:
            fenced::tokens_rise_over_alternate_holders
            fenced::tokens_rise_over_waiters
            turns::java_has_its_share_beside_a_crowd
            turns::java_and_rust_have_their_shares
        }
    };
}

macro_rules! synchronizer {
    ($version:ident) => {
        suite! { $version:
            synchronizers::permits_are_shared
            synchronizers::each_wakes_the_other_at_a_semaphore
            synchronizers::java_has_its_turns_beside_a_crowd
            synchronizers::permits_with_an_end_are_shared
            synchronizers::a_latch_opens_for_both
        }
    };
}

/// Redisson 3.27.0 releases part of a list, and does not wake a waiter for several permits.
macro_rules! permit_lists {
    ($version:ident) => {
        suite! { $version: synchronizers::lists_of_permits_are_shared }
    };
}

macro_rules! multi_lock {
    ($version:ident) => {
        suite! { $version:
            multi::one_member_in_common_excludes
            multi::members_of_any_kind
            multi::opposite_orders_do_not_deadlock
            multi::an_unlock_wakes_a_waiting_group
            multi::a_dead_java_holder_is_followed
            multi::a_dead_rust_holder_is_followed
        }
    };
}

macro_rules! spin_lock {
    ($version:ident) => {
        suite! { $version: waking::a_spin_lock_wakes_plain_waiters }
    };
}

macro_rules! red_lock {
    ($version:ident) => {
        suite! { $version: multi::a_majority_is_enough }
    };
}

macro_rules! sets {
    ($version:ident $kind:ident: $($set:ident)+) => { $($set! { $version, $kind })+ };
    ($version:ident: $($set:ident)+) => { $($set! { $version })+ };
}

macro_rules! against_the_newest {
    ($($module:ident { $($sets:tt)+ })*) => { $(
        mod $module {
            mod redisson_4_7_0 { sets! { newest $($sets)+ } }
        }
    )* };
}

macro_rules! against_all {
    ($($module:ident { $($sets:tt)+ })*) => { $(
        mod $module {
            mod redisson_4_7_0 { sets! { newest $($sets)+ } }
            mod older_redisson { sets! { older $($sets)+ } }
        }
    )* };
}

against_all! {
    reentrant_lock { REENTRANT: every_lock exclusive_lock same_steps }
    fair_lock { FAIR: every_lock exclusive_lock same_steps queue }
    read_lock { READ: every_lock }
    write_lock { WRITE: every_lock exclusive_lock same_steps }
    fenced_lock { FENCED: every_lock exclusive_lock same_steps }
    leases { : all_kinds }
    read_write_locks { : read_write_lock }
    fencing { : tokens }
    multi_lock { MULTI: same_steps }
    multi_locks { : multi_lock }
    semaphores_and_latches { : synchronizer }
}

against_the_newest! {
    spin_lock { SPIN: every_lock exclusive_lock same_steps }
    non_reentrant_lock { NON_REENTRANT: every_lock exclusive_lock same_steps }
    non_reentrant_fair_lock { NON_REENTRANT_FAIR: every_lock exclusive_lock same_steps queue }
    spin_locks { : spin_lock }
    red_locks { : red_lock }
    lists_of_permits { : permit_lists }
}

mod topologies;

/// Runs itself again as the Rust service, as all other tests do.
#[test]
fn rust_service_locks_and_unlocks() {
    stage::serve_if_asked();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be built");
    runtime.block_on(stage::rust_service_locks_and_unlocks());
}
