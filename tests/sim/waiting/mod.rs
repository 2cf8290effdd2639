//! Tasks that wait for a lock, and what wakes them.

mod fair_queues;
mod hand_offs;
mod long_waits;
mod same_owner;
mod wake_ups;
