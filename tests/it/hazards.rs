//! Faults between a lock and its server: lost replies, cut connections, stopped servers and
//! processes, dropped and forgotten futures. Test names begin with the pitfalls that they cover
//! (docs/pitfalls.md).
//!
//! Each scenario is written once, for any kind of lock. A short scenario runs for every kind that
//! it applies to, a long one for four or five kinds whose data differ (see the end of this file).

mod connections;
mod drops;
mod losses;
mod outages;
mod permissions;
mod processes;
mod renewals;
pub mod stage;
mod starving;
mod waking;

use crate::starvation;

/// Runs scenarios for a kind.
macro_rules! hazards {
    ($kind:ident: $subject:ident, $($trait:ident)+) => {
        mod $kind {
            $(mod $trait { hazards! { @$trait $subject } })+
        }
    };
    // Short scenarios.
    (@every $subject:ident) => {
        hazards! { @tests $subject;
            connections: many_cuts_while_locks_are_taken refused_connections_are_tried_again_until_they_are_not
                a_server_that_became_a_replica_is_left;
            drops: p_a3_futures_dropped_leave_nothing p_a2_a_hold_granted_to_a_timed_out_attempt_is_released;
            losses: p_a1_p_a5_five_percent_of_replies_are_lost five_percent_of_requests_are_lost
                requests_and_replies_are_lost_and_late p_a1_a_lost_acquire_counts_once p_a5_a_lost_unlock_is_no_loss
                p_a5_a_lost_unlock_of_a_leaked_hold_is_no_loss p_a5_an_unlock_sent_again_leaves_the_next_holder_alone;
            outages: a_server_that_starts_over_empty_is_noticed_at_once
                a_hold_is_never_believed_in_once_its_key_has_expired
                p_a11_a_short_attempt_ends_in_time_and_its_late_grant_is_released;
            permissions: p_fr7_refused_subscriptions_mix_nothing_up p_a10_out_of_memory_holds_are_renewed_and_released;
            renewals: a_lost_look_after_a_reconnection_is_repeated p_a4_a_late_release_spares_the_next_hold;
            starvation: an_owner_that_drops_and_locks_again_lets_the_rest_in;
            starving: forgotten_futures_hold_no_other_task_up;
        }
    };
    // Kinds with re-entry.
    (@reentrant $subject:ident) => {
        hazards! { @tests $subject;
            drops: p_a2_a_dropped_inner_hold_is_given_back_and_the_outer_one_stays
                p_r8_an_inner_hold_given_back_in_doubt_leaves_the_outer_its_lease;
            losses: p_a1_p_a5_nested_holds_are_counted_once;
            starvation: an_unanswered_inner_release_ends_the_outer_hold_in_time;
        }
    };
    // Kinds whose waiters subscribe to the release.
    (@listening $subject:ident) => {
        hazards! { @tests $subject;
            connections: p_w4_both_connections_are_killed_while_waiting
                p_w4_the_scripts_connection_is_killed_while_waiting
                p_w4_the_subscriptions_connection_is_killed_while_waiting;
            drops: p_a3_dropped_waiters_leave_no_subscription;
            permissions: one_refused_channel_leaves_the_rest_their_messages a_server_without_resp3_wakes_waiters_too;
            starving: a_forgotten_waiter_holds_the_rest_up_for_a_poll_at_most;
            waking: p_w5_two_waiters_of_one_process_are_both_woken
                p_w3_a_woken_waiter_that_gives_up_passes_the_wake_up_on
                p_w3_a_patient_waiter_among_impatient_ones_gets_in;
        }
    };
    // Kinds that announce every release, with or without a waiter.
    (@announced $subject:ident) => {
        hazards! { @tests $subject;
            permissions: p_a9_a_user_without_channels_gets_an_error_and_takes_nothing;
        }
    };
    // Kinds whose waiters share one channel.
    (@one_channel $subject:ident) => {
        hazards! { @tests $subject;
            permissions: a_refused_channel_costs_a_connection_once;
        }
    };
    // Kinds whose waiters poll seldom, because a message is sure to reach them.
    (@patient $subject:ident) => {
        hazards! { @tests $subject;
            starvation: p_w9_a_hand_off_costs_a_few_attempts_however_many_tasks_wait;
            waking: p_a7_a_key_without_expiry_is_polled;
        }
    };
    // Long scenarios.
    (@slow $subject:ident) => {
        hazards! { @tests $subject;
            connections: p_t1_scripts_are_flushed_in_a_loop;
            drops: p_a3_a_thousand_futures_dropped_leave_nothing p_a3_tasks_aborted_at_any_time_leave_nothing;
            outages: a_server_stopped_for_less_than_a_lease_costs_nothing
                a_server_stopped_for_more_than_a_lease_costs_the_hold a_partition_ends_the_hold_before_the_server_does
                requests_that_arrive_after_a_stall_do_no_harm;
            permissions: p_r1_refused_renewals_are_tried_again;
            renewals: p_r1_bad_entries_cost_no_other_lock_a_renewal p_r1_lost_renewals_are_sent_again
                p_r2_a_renewal_that_races_a_release_revives_nothing;
            starving: p_r9_after_a_blocked_runtime_the_loss_is_seen_first
                p_r9_a_body_that_blocked_its_runtime_goes_no_further a_short_block_costs_no_hold;
            waking: p_w11_with_every_message_muted_waiters_poll p_w4_newcomers_do_not_put_off_a_waiters_poll
                p_w9_five_hundred_names_take_one_connection
                p_f2_leases_about_to_end_are_not_asked_for_in_a_hot_loop;
            processes: p_r9_a_stopped_process_sees_its_loss_first p_r9_a_late_unlock_harms_no_successor
                a_killed_holder_is_followed_when_its_lease_ends;
        }
    };
    (@slow_reentrant $subject:ident) => {
        hazards! { @tests $subject;
            starving: a_forgotten_inner_lock_leaves_the_outer_hold_its_renewal
                a_forgotten_inner_unlock_leaves_the_outer_hold_its_renewal;
        }
    };
    // The longest scenarios, and those that do not depend on the kind.
    (@once $subject:ident) => {
        hazards! { @tests $subject;
            drops: p_a3_a_thousand_futures_dropped_leave_no_renewal;
            losses: p_a1_p_a5_five_percent_of_many_replies_are_lost five_percent_of_many_requests_are_lost;
            outages: a_server_stopped_for_longer_than_a_ping_costs_nothing p_t2_a_busy_server_is_waited_for;
            processes: p_w9_a_hundred_waiters_in_four_processes_cost_few_scripts;
        }
    };
    (@tests $subject:ident; $($area:ident: $($test:ident)+;)+) => {
        $(mod $area {
            use crate::{contract::subjects::$subject, hazards::{$area as area, stage}};

            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let test = area::$test::<$subject>();
                tokio::time::timeout(stage::TEST_LIMIT, test).await.expect("the test ends");
            })+
        })+
    };
}

hazards!(reentrant: Reentrant, every reentrant listening one_channel announced patient slow slow_reentrant once);
hazards!(fair: Fair, every reentrant listening patient slow slow_reentrant);
hazards!(read: Read, every reentrant listening one_channel announced patient slow slow_reentrant);
hazards!(write: Write, every reentrant listening one_channel announced patient slow slow_reentrant);
hazards!(fenced: Fenced, every reentrant listening one_channel announced patient);
hazards!(spin: Spin, every reentrant announced);
hazards!(non_reentrant: NonReentrant, every listening one_channel announced patient);
hazards!(non_reentrant_fair: NonReentrantFair, every listening patient);
hazards!(simple: Simple, every listening one_channel announced slow);
