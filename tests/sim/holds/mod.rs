//! Leases, renewals, losses, releases and queries of holds.

mod lost_locks;
pub mod nested_leases;
mod queries;
mod renewals;
mod shortened_leases;
mod shutdowns;
mod since;
