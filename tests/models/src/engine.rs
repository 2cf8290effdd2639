//! The engine's files that have to do with the models, and the models, which see what those share among themselves.

#[path = "../../../src/engine/agenda.rs"]
mod agenda;
#[path = "../../../src/engine/alarm.rs"]
mod alarm;
#[path = "../../../src/engine/uses.rs"]
mod uses;

#[path = "sleep.rs"]
pub mod sleep;
#[path = "uses_of_slots.rs"]
pub mod uses_of_slots;
