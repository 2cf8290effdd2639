//! Checks of the runtime that a client is used on.

use std::{net::Ipv4Addr, panic::catch_unwind, time::Duration};

use tokio::{net::TcpListener, runtime::Handle};

use crate::error::Error;

/// Returns an error outside of a tokio runtime.
pub(super) fn check() -> Result<(), Error> {
    Handle::try_current().map(drop).map_err(|_| {
        Error::config(
            "locks need a tokio runtime, and this was called outside of one (`Runtime::enter` makes one the present one)",
        )
    })
}

/// Returns an error if the runtime has no timers, or no I/O although `connections` need it. tokio
/// reports either by a panic only, which the program's panic hook shows as well.
pub(super) fn check_drivers(connections: bool) -> Result<(), Error> {
    check()?;
    if catch_unwind(|| drop(tokio::time::sleep(Duration::ZERO))).is_err() {
        return Err(lacks("enable_time"));
    }
    // A listener to which no client connects. Without a socket, the check is left out: connecting
    // will fail and say so.
    let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok();
    let socket = socket.filter(|socket| connections && socket.set_nonblocking(true).is_ok());
    if let Some(socket) = socket
        && catch_unwind(|| drop(TcpListener::from_std(socket))).is_err()
    {
        return Err(lacks("enable_io"));
    }
    Ok(())
}

fn lacks(driver: &str) -> Error {
    Error::config(format!(
        "the tokio runtime lacks a part that locks need: build it with `{driver}`, or `enable_all`"
    ))
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    fn said_on(runtime: std::io::Result<Runtime>) -> String {
        let _entered = runtime.as_ref().unwrap().enter();
        check_drivers(true).unwrap_err().to_string()
    }

    #[test]
    fn a_runtime_that_lacks_something_is_refused_by_the_name_of_what_it_lacks() {
        let current = Builder::new_current_thread;
        assert!(check().unwrap_err().to_string().contains("a tokio runtime"));
        assert!(said_on(current().build()).contains("enable_time"));
        assert!(said_on(current().enable_time().build()).contains("enable_io"));
        assert!(
            current()
                .enable_all()
                .build()
                .unwrap()
                .block_on(async { check_drivers(true) })
                .is_ok()
        );
    }
}
