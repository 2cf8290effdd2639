//! Timers of operations that may move to another runtime.
//!
//! An operation begins on its caller's runtime. If it is dropped there, it continues on the client's
//! ([`engine::detach`](crate::engine)). The runtime that it leaves may end, and tokio panics where a
//! timer of an ended runtime is polled. These timers therefore begin anew on the runtime that polls
//! them.

use std::{future::poll_fn, pin::pin, time::Duration};

use tokio::{
    runtime::{Handle, Id},
    task::unconstrained,
    time::{self, Instant},
};

/// The time of a [`timeout`] has passed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

/// As [`tokio::time::sleep`].
pub(crate) async fn sleep(time: Duration) {
    sleep_until(Instant::now() + time).await;
}

/// As [`tokio::time::sleep_until`].
pub(crate) async fn sleep_until(until: Instant) {
    let mut runtime = present_runtime();
    let mut timer = pin!(time::sleep_until(until));
    poll_fn(|context| {
        let present = present_runtime();
        if present.is_some() && present != runtime {
            timer.set(time::sleep_until(until));
            runtime = present;
        }
        timer.as_mut().poll(context)
    })
    .await;
}

/// As [`tokio::time::timeout`].
pub(crate) async fn timeout<T>(
    time: Duration,
    future: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    timeout_at(Instant::now() + time, future).await
}

/// As [`tokio::time::timeout_at`].
pub(crate) async fn timeout_at<T>(
    until: Instant,
    future: impl Future<Output = T>,
) -> Result<T, Elapsed> {
    tokio::select! {
        biased;
        done = future => Ok(done),
        // A future that uses up its task's budget must not put off the timeout.
        () = unconstrained(sleep_until(until)) => Err(Elapsed),
    }
}

fn present_runtime() -> Option<Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    const TIME: Duration = Duration::from_millis(20);

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_timer_outlives_the_runtime_on_which_it_began() {
        let began = Instant::now();
        let mut sleeping = Box::pin(sleep(TIME));
        let mut limited = Box::pin(timeout(TIME, std::future::pending::<()>()));
        // This runtime has ended by the next statement.
        runtime().block_on(async {
            assert!(poll!(&mut sleeping).is_pending());
            assert!(poll!(&mut limited).is_pending());
        });
        let elapsed = runtime().block_on(async {
            sleeping.await;
            limited.await
        });
        assert_eq!(elapsed, Err(Elapsed));
        assert!(began.elapsed() >= TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_at_the_time_of_its_timeout_counts() {
        let began = Instant::now();
        assert_eq!(timeout(TIME, sleep(TIME)).await, Ok(()));
        assert_eq!(began.elapsed(), TIME);
    }
}
