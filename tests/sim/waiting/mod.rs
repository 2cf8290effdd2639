//! Waiters of locks, and their wake-ups.

mod fair_queues;
mod hand_offs;
mod lent_fields;
mod long_holds;
mod long_waits;
mod same_owner;
mod wake_ups;
