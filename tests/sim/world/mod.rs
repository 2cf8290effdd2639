//! Servers of a history, their random faults, and clients that behave like Redisson.

pub mod client_shutdowns;
pub mod cluster_faults;
pub mod model;
pub mod random_faults;
pub mod redisson_connections;
pub mod redisson_threads;
pub mod replica_faults;
pub mod servers;
