//! The server in memory itself.

mod differential;
mod test_kit;
