//! The fate of the connections of one purpose: their pauses, and what the log tells of them.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use super::{KnownServers, pause};
use crate::{
    error::{Cause, Error},
    gauges::Connections,
    redis::time_limits::{
        LONGEST_BRIEF_PAUSE, LONGEST_UNPROVEN_PAUSE, OUTAGE_LOGGED_EVERY, PROVEN_AFTER,
        STEADY_AFTER,
    },
    sync::lock,
};

/// A connection that answers this often is replaced at once, too. A lossy network breaks busy connections within a second.
const STEADY_ANSWERS: u32 = 4;
/// The most consecutive connections that are replaced at once although they were proved and not steady.
const MOST_BRIEF: u32 = 3;

/// Why the server does not answer; empty while it does.
#[derive(Clone, Default)]
pub(in crate::redis) struct Trouble {
    cause: Arc<Mutex<Option<Arc<Cause>>>>,
    refused_start: Arc<Mutex<Option<Error>>>,
}

impl Trouble {
    pub(in crate::redis) fn cause(&self) -> Option<Arc<Cause>> {
        lock(&self.cause).clone()
    }

    fn set(&self, cause: Option<Arc<Cause>>) {
        *lock(&self.cause) = cause;
    }

    /// The last error, if it is final and there has been no connection yet.
    pub(in crate::redis) fn refused_start(&self) -> Option<Error> {
        lock(&self.refused_start).clone()
    }
}

/// The fate of the connections of one purpose.
pub(in crate::redis) struct ConnectLog {
    purpose: &'static str,
    servers: Arc<KnownServers>,
    pub(in crate::redis) trouble: Trouble,
    /// The number of consecutive connections that ended before they were proved.
    short_lived: u32,
    /// The number of connections that were proved and not steady, since the last steady one.
    brief: u32,
    /// Since when there has been no proved connection.
    since: Option<Instant>,
    /// The reasons that were logged, and when.
    logged: Vec<(String, Instant)>,
    /// Why a connection ended whose successor is not known yet.
    broken: Option<String>,
    lost: u64,
    failed: u64,
    has_connected: bool,
    gauges: Connections,
}

impl ConnectLog {
    pub(in crate::redis) fn new(purpose: &'static str, servers: &Arc<KnownServers>) -> Self {
        Self {
            purpose,
            servers: servers.clone(),
            trouble: Trouble::default(),
            short_lived: 0,
            brief: 0,
            since: None,
            logged: Vec::new(),
            broken: None,
            lost: 0,
            failed: 0,
            has_connected: false,
            gauges: Connections::new(purpose),
        }
    }

    /// A connection has ended that `lasted` so long and gave so many `answers`. Returns how long to wait before the next one.
    pub(in crate::redis) fn lost(
        &mut self,
        server: &dyn fmt::Display,
        reason: &str,
        answers: u32,
        lasted: Duration,
    ) -> Duration {
        self.lost += 1;
        self.has_connected = true;
        self.gauges.record_loss();
        self.trouble.set(Some(Arc::new(Cause::connection(reason))));
        self.since.get_or_insert_with(Instant::now);
        self.broken = Some(reason.to_owned());
        tracing::debug!(%server, purpose = self.purpose, reason, "the connection to Redis broke; connecting again");
        if answers == 0 && lasted < PROVEN_AFTER {
            self.short_lived += 1;
            return pause(self.short_lived, LONGEST_UNPROVEN_PAUSE);
        }
        self.short_lived = 0;
        let is_steady = lasted >= STEADY_AFTER || answers >= STEADY_ANSWERS;
        self.brief = if is_steady { 0 } else { self.brief + 1 };
        match self.brief.checked_sub(MOST_BRIEF) {
            None | Some(0) => Duration::ZERO,
            Some(number) => pause(number, LONGEST_BRIEF_PAUSE),
        }
    }

    /// An attempt to connect failed.
    pub(in crate::redis) fn failed(&mut self, server: &dyn fmt::Display, error: &Error) {
        self.failed += 1;
        self.gauges.record_failure();
        self.trouble.set(Some(error.cause()));
        if !self.has_connected {
            let is_final = !error.is_unavailable();
            *lock(&self.trouble.refused_start) = is_final.then(|| error.clone());
        }
        // The failure tells more than the end of the connection before it, which a changed password may have caused.
        self.broken = None;
        self.tell("cannot connect to Redis", server, error);
    }

    /// There is a connection, which has proved nothing yet.
    pub(in crate::redis) fn connected(&mut self, server: &dyn fmt::Display) {
        self.has_connected = true;
        *lock(&self.trouble.refused_start) = None;
        if let Some(reason) = self.broken.take() {
            self.tell(
                "the connection to Redis broke and was replaced",
                server,
                reason,
            );
        }
    }

    fn tell(&mut self, what: &str, server: &dyn fmt::Display, reason: impl fmt::Display) {
        let now = Instant::now();
        self.since.get_or_insert(now);
        let reason = reason.to_string();
        self.logged
            .retain(|(_, at)| now < *at + OUTAGE_LOGGED_EVERY);
        let is_due = self.logged.iter().all(|(logged, _)| *logged != reason);
        let Self {
            purpose,
            lost,
            failed,
            ..
        } = self;
        if is_due && let Some(suppressed) = self.servers.lines.may_log_about(&reason) {
            tracing::warn!(%server, purpose, reason, lost, failed, suppressed, "{what}");
            self.logged.push((reason, now));
        } else {
            tracing::debug!(%server, purpose, reason, lost, failed, "{what}");
        }
    }

    /// The present connection is proved.
    pub(in crate::redis) fn is_proven(&mut self, server: &dyn fmt::Display) {
        self.trouble.set(None);
        let Some(since) = self.since.take() else {
            return;
        };
        self.gauges.record_recovery();
        let (after, lost, failed, purpose) =
            (since.elapsed(), self.lost, self.failed, self.purpose);
        if !std::mem::take(&mut self.logged).is_empty()
            && let Some(suppressed) = self.servers.lines.may_log()
        {
            tracing::info!(%server, purpose, ?after, lost, failed, suppressed, "connected to Redis again");
        }
        (self.lost, self.failed) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn connections_that_prove_nothing_are_made_ever_more_seldom() {
        let mut connect_log = ConnectLog::new("scripts", &KnownServers::new());
        let pauses: Vec<_> = (0..20)
            .map(|_| connect_log.lost(&"server", "closed", 0, Duration::ZERO))
            .collect();
        assert!(pauses[0] < Duration::from_millis(20));
        assert!(
            pauses[10..]
                .iter()
                .all(|pause| *pause >= LONGEST_UNPROVEN_PAUSE),
            "{pauses:?}"
        );
        assert!(connect_log.trouble.cause().is_some());
        connect_log.is_proven(&"server");
        assert!(connect_log.trouble.cause().is_none());
        let pause = connect_log.lost(&"server", "closed", 1, STEADY_AFTER);
        assert_eq!(pause, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn few_connections_that_prove_themselves_and_end_are_replaced_at_once() {
        let mut connect_log = ConnectLog::new("scripts", &KnownServers::new());
        let mut lost = |answers, lasted| {
            connect_log.is_proven(&"server");
            connect_log.lost(&"server", "closed", answers, lasted)
        };
        for steady in [(1, STEADY_AFTER), (STEADY_ANSWERS, Duration::ZERO)] {
            let brief = || lost(STEADY_ANSWERS - 1, Duration::ZERO);
            let pauses: Vec<_> = std::iter::repeat_with(brief).take(20).collect();
            let (at_once, later) = pauses.split_at(MOST_BRIEF as usize);
            assert!(at_once.iter().all(Duration::is_zero), "{pauses:?}");
            assert!(!later[0].is_zero(), "{pauses:?}");
            let longest = later.iter().max().unwrap();
            assert!((LONGEST_BRIEF_PAUSE..=LONGEST_BRIEF_PAUSE.mul_f64(1.5)).contains(longest));
            assert_eq!(lost(steady.0, steady.1), Duration::ZERO);
        }
    }
}
