//! A running Java Redisson and this crate on one server, in both directions, for every version and kind of lock in the
//! tables below. Needs `tools/build-peer.sh`; `INTEROP=skip` leaves everything out.

mod conformance;
mod holding;
mod kinds;
mod outliving;
mod rust_peer;
mod stage;
mod waking;

/// Every test, for one kind of lock and one version of Redisson.
macro_rules! suite {
    ($kind:ident, $redisson:literal: $($module:ident::$test:ident)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let kind = &crate::kinds::$kind;
                if let Some(case) = crate::stage::Case::unless_skipped($redisson, kind) {
                    crate::$module::$test(case).await;
                }
            }
        )*
    };
}

/// The suite against each version of Redisson.
macro_rules! against_redisson {
    ($($module:ident: $kind:ident;)*) => { $(
        mod $module {
            mod redisson_4_7_0 { against_redisson!($kind, "4.7.0"); }
            mod redisson_3_27_0 { against_redisson!($kind, "3.27.0"); }
        }
    )* };
    ($kind:ident, $redisson:literal) => {
        suite! { $kind, $redisson:
            holding::excludes
            holding::a_wait_has_its_limit
            holding::counts_and_leases_are_seen_equal
            holding::owners_look_like_redissons
            holding::a_forced_unlock_frees_and_wakes
            holding::a_rust_holder_hears_that_java_forced_it_out
            holding::a_counter_that_only_the_lock_protects
            waking::an_unlock_wakes_a_waiter
            waking::every_unlock_lets_one_in
            waking::a_dropped_guard_wakes_java
            outliving::a_lease_that_runs_out_lets_the_next_in
            outliving::the_watchdog_outlives_the_lease
            outliving::a_crash_is_taken_over_after_the_lease
            conformance::every_step_leaves_the_same_data
        }
    };
}

against_redisson! {
    reentrant: REENTRANT;
}

/// Not a test: the process of a Rust service, when the tests start this binary as one.
#[test]
fn rust_peer_process() {
    stage::serve_if_asked();
}
