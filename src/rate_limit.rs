//! Limits the number of log lines. Pure.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// The period of the limit.
const PERIOD: Duration = Duration::from_secs(60);
/// The reasons that a period remembers. Their texts come from peers, which may send a new one each time.
const MOST_REASONS: usize = 8;

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
    /// The reasons of the period.
    reasons: Vec<Box<str>>,
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
        self.admit(None)
    }

    /// The same for a line with a `reason`. The first line of each reason may be logged beyond the limit.
    pub(crate) fn may_log_about(&self, reason: impl fmt::Display) -> Option<u64> {
        self.admit(Some(reason.to_string().into()))
    }

    fn admit(&self, reason: Option<Box<str>>) -> Option<u64> {
        let now = Instant::now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.began.is_none_or(|began| now >= began + PERIOD) {
            (state.began, state.logged) = (Some(now), 0);
            state.reasons.clear();
        }
        let is_new = reason.is_some_and(|reason| state.remember(reason));
        if state.logged >= self.most && !is_new {
            state.suppressed += 1;
            return None;
        }
        state.logged += 1;
        Some(std::mem::take(&mut state.suppressed))
    }
}

impl State {
    /// Returns whether `reason` is new.
    fn remember(&mut self, reason: Box<str>) -> bool {
        let is_new = self.reasons.len() < MOST_REASONS && !self.reasons.contains(&reason);
        if is_new {
            self.reasons.push(reason);
        }
        is_new
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

    #[tokio::test(start_paused = true)]
    async fn a_new_reason_passes_at_once_and_many_do_not() {
        let limit = RateLimit::new(1);
        let about = |reason: &str| limit.may_log_about(reason);
        assert_eq!(
            [about("a"), about("a"), about("b"), about("b")],
            [Some(0), None, Some(1), None]
        );
        let passed = (0..100).filter(|number| about(&number.to_string()).is_some());
        assert_eq!(passed.count(), MOST_REASONS - 2);
        tokio::time::advance(PERIOD).await;
        assert!(about("a").is_some());
        assert_eq!(about("a"), None);
    }
}
