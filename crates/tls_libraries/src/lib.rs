//! Has tests alone: `tests/`.
