//! The integration tests: the contract that every kind of lock keeps, then one module per hazard.

mod bad_input;
mod contract;
mod hazards;
mod histories;
mod multi_lock;
mod red_lock;
mod scripts;
mod starvation;
