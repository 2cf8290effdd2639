//! Futures that are dropped early, and futures that must complete in time.

use std::time::Duration;

use redisson_lock::Error;
use tokio::time::{sleep, timeout};

use super::{handle::Boxed, log::Trouble};

/// The time limit of every call. Without disturbances the poll interval is longer, so a lost wake-up exceeds this limit.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// When a future is dropped.
#[derive(Clone, Copy)]
pub enum Early {
    Polls(u32),
    Time(Duration),
}

/// Awaits `future`. Returns `None` if it was dropped early, and an error if it exceeded [`PATIENCE`].
pub async fn until<T>(early: Option<Early>, future: Boxed<'_, T>) -> Option<Result<T, Trouble>> {
    let dropped = async {
        match early {
            Some(Early::Polls(polls)) => {
                for _ in 0..polls {
                    tokio::task::yield_now().await;
                }
            }
            Some(Early::Time(time)) => sleep(time).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        done = timeout(PATIENCE, future) => Some(done.map_err(|_| Trouble::Hung)),
        () = dropped => None,
    }
}

pub async fn patiently<T>(future: Boxed<'_, Result<T, Error>>) -> Result<T, Trouble> {
    match timeout(PATIENCE, future).await {
        Ok(done) => done.map_err(Trouble::from),
        Err(_) => Err(Trouble::Hung),
    }
}
