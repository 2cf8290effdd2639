//! Holds: their leases, renewals, losses and releases, and what queries say of them.

mod lost_locks;
pub mod nested_leases;
mod queries;
mod renewals;
mod shortened_leases;
mod shutdowns;
