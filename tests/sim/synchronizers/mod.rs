//! Semaphores and latches.

mod histories;
mod renewed_permits;
mod waits;
