//! Semaphores and latches.

mod histories;
mod redisson;
mod renewed_permits;
mod waits;
