//! Limits the number of log lines. Pure.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The period of the limit.
const PERIOD: Duration = Duration::from_secs(60);

/// Allows some lines a minute, and counts the suppressed ones.
#[derive(Debug)]
pub(crate) struct RateLimit {
    most: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    began: Option<Instant>,
    logged: u32,
    suppressed: u64,
}

impl RateLimit {
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most,
            state: Mutex::default(),
        }
    }

    /// Returns the number of lines suppressed since the last one, if a line may be logged now.
    pub(crate) fn may_log(&self) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.began.is_none_or(|began| now >= began + PERIOD) {
            (state.began, state.logged) = (Some(now), 0);
        }
        if state.logged == self.most {
            state.suppressed += 1;
            return None;
        }
        state.logged += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_few_lines_a_minute_pass_and_the_rest_is_counted() {
        let limit = RateLimit::new(2);
        let logged: Vec<_> = (0..5).map(|_| limit.may_log()).collect();
        assert_eq!(logged, [Some(0), Some(0), None, None, None]);
        tokio::time::advance(PERIOD - Duration::from_millis(1)).await;
        assert_eq!(limit.may_log(), None);
        tokio::time::advance(Duration::from_millis(1)).await;
        let logged = [limit.may_log(), limit.may_log(), limit.may_log()];
        assert_eq!(logged, [Some(4), Some(0), None]);
    }
}
