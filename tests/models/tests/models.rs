//! Runs the models.

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
    use models::uses_of_slots;

    #[test]
    fn key_has_one_live_slot_and_none_after_the_last_use() {
        uses_of_slots::entered_by_two_threads();
    }

    #[test]
    fn slot_entered_while_its_last_uses_end_is_kept_or_new() {
        uses_of_slots::entered_while_the_last_uses_end();
    }

    #[test]
    fn cloned_use_keeps_a_slot_that_is_entered() {
        uses_of_slots::cloned_while_entered();
    }
}
