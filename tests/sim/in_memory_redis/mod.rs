//! The server in memory itself.

#[cfg(unix)]
mod differential;
mod test_kit;
