//! Checks of the runtime that a client is used on, and yields to its tasks.

#[cfg(feature = "blocking")]
use std::{
    cell::RefCell,
    future::poll_fn,
    task::{Poll, Waker},
};
use std::{net::Ipv4Addr, panic::catch_unwind, time::Duration};

use tokio::{net::TcpListener, runtime::Handle};

use crate::error::Error;

#[cfg(not(feature = "blocking"))]
pub(super) use tokio::task::yield_now;

#[cfg(feature = "blocking")]
thread_local! {
    /// The tasks that have yielded on a thread that polls futures itself, outside of a scheduler; `None` on any other.
    static YIELDED: RefCell<Option<Vec<Waker>>> = const { RefCell::new(None) };
}

/// A mark of a thread that polls futures itself. Its drop restores the mark before. A thread that ends has none.
#[cfg(feature = "blocking")]
pub(crate) struct PollsHere(Option<Vec<Waker>>);

#[cfg(feature = "blocking")]
impl PollsHere {
    pub(crate) fn new() -> Self {
        Self(exchange_yielded(Some(Vec::new())))
    }

    /// Wakes what has yielded in a poll, at its end, as tokio does: a set of futures counts those that wake themselves, and ends its
    /// poll after a few.
    pub(crate) fn wake_yielded(&self) {
        let yielded = exchange_yielded(Some(Vec::new())).unwrap_or_default();
        yielded.into_iter().for_each(Waker::wake);
    }
}

#[cfg(feature = "blocking")]
impl Drop for PollsHere {
    fn drop(&mut self) {
        exchange_yielded(self.0.take());
    }
}

#[cfg(feature = "blocking")]
fn exchange_yielded(yielded: Option<Vec<Waker>>) -> Option<Vec<Waker>> {
    let exchange = |place: &RefCell<_>| place.replace(yielded);
    YIELDED.try_with(exchange).ok().flatten()
}

/// Yields to ready tasks. On a thread that polls futures itself, tokio's function would leave the
/// wake-up to a scheduler that waits for this thread.
#[cfg(feature = "blocking")]
pub(super) async fn yield_now() {
    let polls_here = || YIELDED.try_with(|yielded| yielded.borrow().is_some());
    if !polls_here().unwrap_or(false) {
        return tokio::task::yield_now().await;
    }
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        YIELDED.with_borrow_mut(|yielded| {
            let yielded = yielded.get_or_insert_default();
            yielded.push(context.waker().clone());
        });
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

    #[cfg(feature = "blocking")]
    #[test]
    fn what_yields_in_one_poll_goes_on_in_one_poll() {
        use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
        let polls = PollsHere::new();
        let mut yielding: FuturesUnordered<_> = (0..8).map(|_| yield_now()).collect();
        let mut poll = || std::iter::from_fn(|| yielding.next().now_or_never()?).count();
        assert_eq!(poll(), 0);
        polls.wake_yielded();
        assert_eq!(poll(), 8);
    }

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
