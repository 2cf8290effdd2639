//! Runs the models.

mod local_queue {
    use models::local_queue;

    #[test]
    fn tasks_of_a_client_enter_one_at_a_time_and_all_of_them() {
        local_queue::three_tasks();
    }

    #[test]
    fn hand_off_to_a_task_that_leaves_goes_to_the_next() {
        local_queue::passed_to_a_waiter_that_leaves();
    }

    #[test]
    fn successor_that_leaves_while_it_is_checked_stays_away() {
        local_queue::checked_while_the_successor_leaves();
    }

    #[test]
    fn task_that_comes_while_the_asker_leaves_asks() {
        local_queue::asker_goes_while_another_comes();
    }

    #[test]
    fn release_hands_the_lock_off_to_a_present_waiter() {
        local_queue::passed_on();
    }
}

mod sleep {
    use models::sleep;

    #[test]
    fn hold_added_while_the_watchdog_goes_to_sleep_is_seen() {
        sleep::added_to_none();
    }

    #[test]
    fn watchdog_does_not_sleep_past_a_hold_that_is_due_earlier() {
        sleep::added_before_another();
    }

    #[test]
    fn holds_added_by_two_threads_are_seen() {
        sleep::added_by_two_threads();
    }

    #[test]
    fn hold_moved_to_an_earlier_time_is_seen() {
        sleep::moved_to_an_earlier_time();
    }

    #[test]
    fn later_of_two_moves_of_a_hold_counts() {
        sleep::moved_by_two_threads();
    }
}

mod uses {
    use models::uses_of_entries;

    #[test]
    fn key_has_one_live_entry_and_none_after_the_last_use() {
        uses_of_entries::entered_by_two_threads();
    }

    #[test]
    fn entry_entered_while_its_last_uses_end_is_kept_or_new() {
        uses_of_entries::entered_while_the_last_uses_end();
    }

    #[test]
    fn cloned_use_keeps_an_entry_that_is_entered() {
        uses_of_entries::cloned_while_entered();
    }
}

mod waits {
    use models::waits;

    #[test]
    fn release_before_a_waiter_sleeps_is_not_lost() {
        waits::released_before_the_sleep();
    }

    #[test]
    fn waiter_that_leaves_passes_its_wake_up_on() {
        waits::waiter_leaves_while_it_is_notified();
    }

    #[test]
    fn waiter_that_leaves_during_its_attempt_passes_its_wake_up_on() {
        waits::waiter_leaves_during_its_attempt();
    }

    #[test]
    fn each_message_wakes_one_waiter() {
        waits::two_messages();
    }

    #[test]
    fn message_wakes_one_waiter_while_another_leaves() {
        waits::message_while_a_waiter_leaves();
    }

    #[test]
    fn echo_wakes_no_waiter_and_the_message_after_it_one() {
        waits::release_and_its_echo();
    }

    #[test]
    fn poll_that_becomes_earlier_is_not_slept_past() {
        waits::polled_earlier();
    }

    #[test]
    fn grant_that_is_lost_while_it_is_recorded_ends_the_subscription() {
        waits::grant_is_lost_while_it_is_recorded();
    }

    #[test]
    fn grant_that_is_lost_while_its_waiter_leaves_ends_the_subscription() {
        waits::grant_is_lost_while_its_waiter_leaves();
    }

    #[test]
    fn subscription_lasts_while_any_waiter_does() {
        waits::last_goes_while_another_joins();
    }
}
