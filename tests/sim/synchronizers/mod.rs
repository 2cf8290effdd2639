//! Semaphores and latches.

mod doubts;
mod histories;
mod long_waits;
mod redisson;
mod renewed_permits;
mod waits;
