//! The servers of a history, what disturbs them, and clients of another library.

pub mod client_shutdowns;
pub mod cluster_faults;
pub mod random_faults;
pub mod redisson_threads;
pub mod replica_faults;
pub mod servers;
