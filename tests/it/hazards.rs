//! What goes wrong between a lock and its server, on purpose: lost replies, cut connections, stopped servers and
//! processes, dropped and forgotten futures. The names of the tests carry the pitfalls that they stand for.

mod connections;
mod drops;
mod losses;
mod outages;
mod permissions;
mod processes;
mod renewals;
pub mod stage;
mod starving;
mod waking;
