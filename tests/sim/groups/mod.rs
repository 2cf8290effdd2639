//! Locks of several members: all of them, or a majority.

mod contention;
mod deadlines;
mod guards;
mod members;
mod quorums;
