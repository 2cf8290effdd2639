//! Networks with faults, recorded log lines, and helpers that tests share.

pub mod log_lines;
pub mod lossy_network;
pub mod network;
