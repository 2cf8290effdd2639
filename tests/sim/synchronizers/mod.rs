//! Semaphores and latches.

mod doubts;
mod histories;
mod redisson;
mod renewed_permits;
mod waits;
