//! The contract that every kind of lock keeps, written once. A new kind is a
//! [`Subject`](subjects::Subject) and one line (see the end).

mod bed;
mod exclusion;
mod fixed_lease;
mod force;
mod foreign;
mod ground;
mod guards;
mod leaks;
mod limits;
mod listening;
mod modes;
mod once;
mod polling;
mod queries;
mod reentry;
mod running;
mod sharing;
mod shutdown;
pub mod subjects;
mod told;
mod types;
mod waiting;
mod watchdog;

use subjects::Subject;

/// Runs the contract for a kind: the tests of every kind, and those of each trait.
macro_rules! contract {
    ($kind:ident: $subject:ident, $($trait:ident)+) => {
        mod $kind {
            contract! { @every $subject }
            $(mod $trait { contract! { @$trait $subject } })+
        }
    };
    (@every $subject:ident) => {
        contract! { @tests $subject;
            exclusion: tasks_exclude_each_other clients_exclude_each_other owners_of_one_task_exclude_each_other
                scopes_in_one_join_exclude_each_other a_spawned_task_is_another_owner handles_on_one_name_are_one_lock
                names_are_locks_of_their_own;
            waiting: a_release_wakes_a_waiter_of_another_client a_release_wakes_a_waiter_of_the_same_client
                releases_wake_every_waiter a_dropped_guard_wakes_a_waiter a_waiter_acquires_the_lock_when_a_lease_expires
                a_wait_leaves_nothing;
            limits: try_lock_on_a_held_lock_returns_none_at_once a_wait_ends_at_its_limit_and_not_before
                a_wait_of_zero_does_not_wait a_wait_longer_than_the_clock_waits a_wait_at_the_end_of_the_clock_waits
                a_release_at_about_the_limit_grants_a_hold_or_leaves_none a_holders_short_lease_does_not_end_a_wait;
            fixed_lease: a_fixed_lease_runs_out_and_its_holder_knows_first a_lock_with_a_fixed_lease_is_not_renewed
                the_end_of_a_fixed_lease_cancels_the_token_and_completes_the_future a_late_unlock_harms_no_successor
                validity_ends_before_the_servers_lease a_lease_is_no_longer_than_asked_for;
            watchdog: a_hold_outlives_many_leases a_hold_at_rest_is_renewed_in_time
                a_released_hold_is_not_renewed many_holds_are_renewed_side_by_side;
            force: force_unlock_frees_the_lock_and_says_whether_it_was_held
                force_unlock_reports_the_loss_to_holders_of_its_client_at_once
                holders_of_other_clients_learn_of_a_force_unlock_at_their_renewal force_unlock_wakes_a_waiter
                a_forced_out_holder_harms_no_successor a_lock_whose_key_was_overwritten_is_lost;
            foreign: data_of_another_kind_is_refused_and_left_alone foreign_data_that_replaced_a_held_lock_is_left_alone
                a_waiter_gets_an_error_when_foreign_data_replaces_the_lock every_other_kind_is_excluded_or_refused
                another_clients_data_of_this_kind_is_a_lock no_data_of_this_kind_is_refused;
            queries: a_free_lock a_held_lock a_foreign_lock_without_expiry queries_leave_nothing
                a_lost_hold_counts_as_none prefixes_show_in_keys_alone;
            told: every_question_about_a_hold_that_is_gone_ends_it another_owners_question_ends_it_too
                a_check_of_a_hold_tells_whether_it_is_there a_question_ends_no_hold_that_is_there;
            guards: unlock_needs_a_hold_of_the_same_owner unlock_does_not_release_a_hold_with_a_guard another_task_may_unlock_a_guard
                a_dropped_guard_is_released a_guard_may_be_dropped_in_another_task
                a_guard_may_be_dropped_outside_of_any_runtime a_dropped_unlock_completes
                a_cancelled_token_harms_nothing;
            leaks: a_leaked_hold_is_unlocked_by_its_owner a_leaked_hold_goes_on_and_is_renewed
                another_task_cannot_unlock_a_leaked_hold another_task_can_unlock_a_leaked_hold_as_the_same_owner
                a_leaked_lease_runs_out a_leaked_hold_that_was_forced_out_is_lost;
            running: the_result_comes_back_and_the_lock_is_free a_lost_hold_stops_the_body
                a_body_that_ends_unprotected_is_an_error a_dropped_run_releases a_panic_inside_releases
                the_future_of_run_can_be_spawned run_excludes_other_owners;
            shutdown: dropped_guards_are_released_and_live_ones_reported every_operation_is_closed_afterwards
                waiters_end_with_an_error_when_the_client_closes shutdown_closes_all_connections
                shutdown_may_be_called_again
                clones_end_together_and_other_clients_go_on the_last_clone_releases_and_disconnects
                locks_and_guards_keep_the_client_going a_client_without_its_runtime_answers;
            types: every_public_type_is_debug_and_send futures_are_send
                the_future_of_a_wait_is_small nothing_shows_a_password;
        }
    };
    // Kinds with re-entry.
    (@reentrant $subject:ident) => {
        contract! { @tests $subject;
            exclusion: the_branches_of_a_join_share_their_owner a_spawned_task_in_a_scope_is_its_owner;
            reentry: counts_are_exact_here_and_on_the_server every_acquire_method_is_reentrant
                guards_may_end_in_any_order no_other_owner_enters_before_the_last_guard_ends
                a_tenth_hold_is_counted_like_the_first;
            waiting: the_end_of_a_nested_hold_wakes_no_waiter;
            modes: a_short_lease_inside_shortens_nothing a_short_lease_inside_a_longer_one_shortens_nothing
                a_long_lease_inside_ends_with_its_hold a_watched_hold_goes_on_after_a_lease_inside
                a_lease_runs_out_after_a_watched_hold_inside watched_lease_watched lease_watched_lease
                the_outer_hold_may_end_first;
            force: every_nested_hold_is_lost an_acquisition_after_a_force_unlock_is_not_a_second_hold;
            guards: a_dropped_inner_guard_leaves_the_outer_one dropped_unlocks_complete_in_order;
            leaks: unlock_releases_leaked_holds_and_no_guards;
            running: the_body_enters_again;
            shutdown: nested_and_leaked_holds_are_counted;
        }
    };
    // Kinds whose holder is refused a second hold.
    (@once $subject:ident) => {
        contract! { @tests $subject;
            once: every_acquire_method_is_refused_to_the_holder a_refusal_costs_the_hold_nothing
                the_branches_of_a_join_are_one_owner_and_the_second_is_refused a_hold_that_ended_is_no_obstacle
                an_owner_acquires_again_after_every_kind_of_end;
        }
    };
    // Kinds whose waiters subscribe to the release.
    (@listening $subject:ident) => {
        contract! { @tests $subject;
            listening: waiters_share_a_connection_and_leave_it;
        }
    };
    // Kinds whose waiters poll.
    (@polling $subject:ident) => {
        contract! { @tests $subject;
            polling: a_poll_finds_a_silent_release no_client_listens a_release_is_announced_to_waiters_of_another_kind;
        }
    };
    // Kinds with several holders at once.
    (@shared $subject:ident) => {
        contract! { @tests $subject;
            sharing: many_owners_hold_a_shared_lock_at_once a_rival_enters_after_the_last_holder
                a_rival_excludes_all_holders_of_a_shared_lock;
        }
    };
    (@tests $subject:ident; $($area:ident: $($test:ident)+;)+) => {
        $(mod $area {
            use crate::contract::{$area as area, bed, subjects::$subject};

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let test = area::$test::<$subject>();
                tokio::time::timeout(bed::TEST_LIMIT, test).await.expect("the test ends");
            })+
        })+
    };
}

contract!(reentrant: Reentrant, reentrant listening);
contract!(fair: Fair, reentrant listening);
contract!(read: Read, reentrant listening shared);
contract!(write: Write, reentrant listening);
contract!(fenced: Fenced, reentrant listening);
contract!(spin: Spin, reentrant polling);
contract!(non_reentrant: NonReentrant, once listening);
contract!(non_reentrant_fair: NonReentrantFair, once listening);
contract!(simple: Simple, once listening);
