//! Checks of the runtime that a client is used on, and yields to its tasks.

#[cfg(feature = "blocking")]
use std::{cell::Cell, future::poll_fn, task::Poll};
use std::{net::Ipv4Addr, panic::catch_unwind, time::Duration};

use tokio::{net::TcpListener, runtime::Handle};

use crate::error::Error;

#[cfg(not(feature = "blocking"))]
pub(super) use tokio::task::yield_now;

#[cfg(feature = "blocking")]
thread_local! {
    static POLLS_HERE: Cell<bool> = const { Cell::new(false) };
}

/// A mark of a thread that polls futures itself, outside of a scheduler. Its drop restores the
/// mark before.
#[cfg(feature = "blocking")]
pub(crate) struct PollsHere(bool);

#[cfg(feature = "blocking")]
impl PollsHere {
    pub(crate) fn new() -> Self {
        Self(POLLS_HERE.replace(true))
    }
}

#[cfg(feature = "blocking")]
impl Drop for PollsHere {
    fn drop(&mut self) {
        POLLS_HERE.set(self.0);
    }
}

/// Yields to ready tasks. On a thread that polls futures itself, tokio's function would leave the
/// wake-up to a scheduler that waits for this thread.
#[cfg(feature = "blocking")]
pub(super) async fn yield_now() {
    if !POLLS_HERE.get() {
        return tokio::task::yield_now().await;
    }
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

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
