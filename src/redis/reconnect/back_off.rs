//! The turns to connect to one server: its pauses grow while it is down, and all purposes share them.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

use super::pause;
use crate::{
    redis::{
        connect_error::ConnectErrorKind,
        time_limits::{LONGEST_AWAITED_PAUSE, LONGEST_CONNECT_PAUSE},
    },
    sync::lock,
};

/// The pauses between attempts to connect to one server.
#[derive(Default)]
pub(in crate::redis) struct BackOff {
    state: Mutex<InVain>,
    reached: Notify,
}

/// The attempts since the server was last reached.
#[derive(Default)]
struct InVain {
    number: u32,
    /// When the next attempt may begin.
    next: Option<Instant>,
    /// When it may begin if a caller waits; `None` if the last attempt reached the server, which is spared then.
    next_if_awaited: Option<Instant>,
}

impl BackOff {
    /// Completes when an attempt may begin, which is sooner while any of the `callers` waits. The attempt counts as failed until the
    /// server is [`reached`](Self::reached).
    pub(in crate::redis) async fn turn(&self, callers: &Callers) -> Turn<'_> {
        loop {
            let (reached, came) = (self.reached.notified(), callers.came.notified());
            let Err(next) = self.take_turn(callers.any()) else {
                return Turn(self);
            };
            tokio::select! {
                () = sleep_until(next) => {}
                // A success of another purpose shows that the server is reachable.
                () = reached => {}
                // The pause becomes shorter.
                () = came => {}
            }
        }
    }

    /// Takes a turn back: other purposes need not wait for it.
    fn not_made(&self) {
        let mut state = lock(&self.state);
        state.number = state.number.saturating_sub(1);
        let again = Instant::now() + pause(state.number, LONGEST_CONNECT_PAUSE);
        state.next = state.next.map(|next| next.min(again));
    }

    /// As [`turn`](Self::turn), but does not wait.
    pub(in crate::redis) fn has_turn(&self) -> bool {
        self.take_turn(false).is_ok()
    }

    fn take_turn(&self, is_awaited: bool) -> Result<(), Instant> {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let sooner = state.next_if_awaited.filter(|_| is_awaited);
        match sooner.or(state.next) {
            Some(next) if now < next => Err(next),
            _ => {
                state.next = Some(now + pause(state.number, LONGEST_CONNECT_PAUSE));
                state.next_if_awaited = None;
                state.number += 1;
                Ok(())
            }
        }
    }

    /// The attempt under way has reached no server. The next one may begin sooner if a caller waits.
    fn reached_nothing(&self) {
        let mut state = lock(&self.state);
        let sooner = Instant::now() + pause(state.number, LONGEST_AWAITED_PAUSE);
        state.next_if_awaited = state.next.map(|next| next.min(sooner));
    }

    /// The server has accepted one of this client's connections.
    pub(in crate::redis) fn reached(&self) {
        *lock(&self.state) = InVain::default();
        self.reached.notify_waiters();
    }
}

/// A turn to connect. A drop takes it back: the attempt was given up, or did not reach the server.
#[must_use]
pub(in crate::redis) struct Turn<'a>(&'a BackOff);

impl Turn<'_> {
    /// The server was asked, unless the attempt `failed` before that.
    pub(in crate::redis) fn end(self, failed: Option<ConnectErrorKind>) {
        if failed == Some(ConnectErrorKind::Network) {
            self.0.reached_nothing();
        }
        std::mem::forget(self);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.not_made();
    }
}

/// The callers that wait for a connection.
#[derive(Default)]
pub(in crate::redis) struct Callers {
    waiting: AtomicUsize,
    came: Notify,
}

impl Callers {
    /// Counts a caller until the drop of what it returns.
    pub(in crate::redis) fn wait(&self) -> WaitingCaller<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.came.notify_waiters();
        WaitingCaller(self)
    }

    fn any(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// A caller that waits for a connection.
#[must_use]
pub(in crate::redis) struct WaitingCaller<'a>(&'a Callers);

impl Drop for WaitingCaller<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::redis::{reconnect::pause_after, time_limits::FIRST_CONNECT_PAUSE};

    #[tokio::test(start_paused = true)]
    async fn attempts_become_rare_and_all_purposes_share_them() {
        let server = Arc::new(BackOff::default());
        let began = Instant::now();
        let mut times = Vec::new();
        for _ in 0..2 {
            let server = server.clone();
            times.push(tokio::spawn(async move {
                let mut times = Vec::new();
                while began.elapsed() < Duration::from_secs(60) {
                    server.turn(&Callers::default()).await.end(None);
                    times.push(began.elapsed());
                }
                times
            }));
        }
        let mut all = Vec::new();
        for times in times {
            all.extend(times.await.unwrap());
        }
        all.sort();
        assert!(all.len() > 40, "{all:?}");
        let mut later = all[10..].windows(2);
        assert!(
            later.all(|pair| pair[1] - pair[0] >= LONGEST_CONNECT_PAUSE),
            "{all:?}"
        );
        assert!(all[9] < Duration::from_secs(5), "{all:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_reached_is_open_to_all_at_once() {
        let server = Arc::new(BackOff::default());
        for _ in 0..20 {
            server.turn(&Callers::default()).await.end(None);
        }
        assert!(!server.has_turn());
        let waits = tokio::spawn({
            let server = server.clone();
            async move {
                server.turn(&Callers::default()).await.end(None);
                Instant::now()
            }
        });
        tokio::task::yield_now().await;
        let now = Instant::now();
        server.reached();
        assert_eq!(waits.await.unwrap(), now);
    }

    /// A caller that comes during a long pause, and each that waits, has the server tried soon after it is back.
    #[tokio::test(start_paused = true)]
    async fn a_waiting_caller_shortens_the_pauses_unless_the_server_was_reached() {
        use ConnectErrorKind::{Closed, Network, NoAnswer};
        let longest = LONGEST_AWAITED_PAUSE * 3 / 2;
        for (failed, is_shortened) in [
            (Some(Network), true),
            (Some(Closed), false),
            (Some(NoAnswer), false),
            (None, false),
        ] {
            let (server, callers) = (BackOff::default(), Callers::default());
            for _ in 0..20 {
                server.turn(&callers).await.end(failed);
            }
            let began = Instant::now();
            let waits = async {
                tokio::time::sleep(longest).await;
                let waiting = callers.wait();
                let came = Instant::now();
                tokio::time::sleep(Duration::from_secs(10)).await;
                drop(waiting);
                came
            };
            let tries = async {
                let mut times = Vec::new();
                while began.elapsed() < Duration::from_secs(10) {
                    server.turn(&callers).await.end(failed);
                    times.push(Instant::now());
                }
                times
            };
            let (came, times) = tokio::join!(waits, tries);
            assert_eq!(times[0] == came, is_shortened, "{failed:?}");
            let is_soon = times.windows(2).all(|pair| pair[1] - pair[0] <= longest);
            assert_eq!(is_soon, is_shortened, "{failed:?}");
            let began = Instant::now();
            server.turn(&callers).await.end(failed);
            server.turn(&callers).await.end(failed);
            assert!(
                began.elapsed() >= LONGEST_CONNECT_PAUSE,
                "no caller waits any more"
            );
        }
    }

    /// A provider of credentials that fails for one connection delays no other connection to the same server.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_that_does_not_reach_the_server_delays_no_other_purpose() {
        let server = BackOff::default();
        for _ in 0..20 {
            drop(server.turn(&Callers::default()).await);
        }
        let began = Instant::now();
        server.turn(&Callers::default()).await.end(None);
        assert!(began.elapsed() <= FIRST_CONNECT_PAUSE * 2);
        assert_eq!(pause_after(0), Duration::ZERO);
        assert!(pause_after(20) >= LONGEST_CONNECT_PAUSE);
    }
}
