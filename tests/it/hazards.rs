//! Faults between a lock and its server: lost replies, cut connections, stopped servers and
//! processes, dropped and forgotten futures. Test names begin with the pitfalls that they cover
//! (docs/pitfalls.md).
//!
//! Each scenario is written once, for any kind of lock. A short scenario runs for every kind that
//! it applies to. A long one runs for a few kinds whose data differ (see the end of this file).

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
            connections: many_cuts_while_locks_are_taken refused_connections_are_retried_until_one_succeeds
                the_client_leaves_a_server_that_became_a_replica;
            drops: p_a3_futures_dropped_leave_nothing p_a2_a_hold_granted_to_a_timed_out_attempt_is_released;
            losses: p_a1_p_a5_five_percent_of_replies_are_lost five_percent_of_requests_are_lost
                requests_and_replies_are_lost_and_late p_a1_a_lost_acquire_counts_once p_a5_a_lost_unlock_is_no_loss
                p_a5_a_lost_unlock_of_a_leaked_hold_is_no_loss p_a5_an_unlock_sent_again_leaves_the_next_holder_alone;
            outages: a_server_that_starts_over_empty_is_noticed_at_once
                a_hold_is_lost_before_its_key_expires
                p_a11_a_short_attempt_ends_in_time_and_its_late_grant_is_released;
            permissions: p_fr7_refused_subscriptions_shift_no_replies p_a10_out_of_memory_holds_are_renewed_and_released;
            renewals: a_lost_verification_after_a_reconnection_is_repeated p_a4_a_late_release_spares_the_next_hold;
            starvation: an_owner_that_drops_and_locks_again_does_not_starve_another;
            starving: unpolled_futures_delay_no_other_task;
        }
    };
    // Kinds with re-entry.
    (@reentrant $subject:ident) => {
        hazards! { @tests $subject;
            drops: p_a2_a_dropped_inner_hold_is_released_and_the_outer_one_stays
                p_r8_the_release_of_an_unanswered_inner_hold_keeps_the_outer_lease;
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
            permissions: one_refused_channel_does_not_stop_messages_on_other_channels a_server_without_resp3_wakes_waiters_too;
            starving: an_unpolled_waiter_delays_other_waiters_for_one_poll_at_most;
            waking: p_w5_two_waiters_of_one_process_are_both_woken
                p_w3_a_notified_waiter_that_is_dropped_passes_the_notification_on
                p_w3_waiters_that_time_out_take_no_notification_from_a_live_one;
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
            renewals: p_r1_overwritten_locks_do_not_stop_other_renewals p_r1_lost_renewals_are_sent_again
                p_r2_a_renewal_that_races_a_release_restores_no_hold;
            starving: p_r9_after_a_blocked_runtime_the_loss_is_seen_first
                p_r9_run_stops_a_body_that_blocked_past_its_lease a_short_block_costs_no_hold;
            waking: p_w11_with_every_message_muted_waiters_poll p_w4_newcomers_do_not_delay_a_waiters_poll
                p_w9_five_hundred_names_take_one_connection
                p_f2_short_remaining_leases_cause_no_hot_loop;
            processes: p_r9_a_stopped_process_sees_its_loss_first p_r9_a_late_unlock_harms_no_successor
                a_killed_holder_is_followed_when_its_lease_ends;
        }
    };
    (@slow_reentrant $subject:ident) => {
        hazards! { @tests $subject;
            starving: an_unpolled_inner_lock_does_not_stop_the_outer_holds_renewal
                an_unpolled_inner_unlock_does_not_stop_the_outer_holds_renewal;
        }
    };
    // The longest scenarios, and those that do not depend on the kind.
    (@once $subject:ident) => {
        hazards! { @tests $subject;
            drops: p_a3_a_thousand_futures_dropped_leave_no_renewal;
            losses: p_a1_p_a5_five_percent_of_many_replies_are_lost five_percent_of_many_requests_are_lost;
            outages: a_server_stopped_for_longer_than_a_ping_costs_nothing p_t2_operations_wait_for_a_busy_server;
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
hazards!(spin: Spin, every reentrant);
hazards!(non_reentrant: NonReentrant, every listening one_channel announced patient);
hazards!(non_reentrant_fair: NonReentrantFair, every listening patient);
hazards!(simple: Simple, every listening one_channel announced slow);
