//! The integration tests: the contract that every kind of lock keeps, then one module per hazard.

mod bad_input;
mod contract;
mod hazards;
mod scripts;
mod starvation;
