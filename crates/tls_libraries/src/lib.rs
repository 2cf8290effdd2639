//! Has tests alone: `tests/beside_others.rs`.
