//! The decision whether a failed request is sent again. Pure, except for the pause.
//!
//! Every loop of the engine that sends a request until it is answered asks here what an error
//! means:
//!
//! - The client is closed, or the server refuses the request: it is not sent again.
//! - The server answers a transient error, as in a failover: it has executed nothing, and the
//!   request is sent again after a pause.
//! - The server refuses a release, in any words but those of the script itself: it is sent again after a pause. A forgotten
//!   release would keep the lock until its lease ends.
//! - The connection broke: the server may have executed the request or not. It is sent again at
//!   once, and its sender is *in doubt* from then on. A sender that gives up in doubt has to undo
//!   the request.
//!
//! Each loop decides by itself how long it goes on, and what it does in doubt.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    CallError, Engine,
    time_limits::{LONGEST_RETRY_PAUSE, TRANSIENT_PAUSE},
};
use crate::{
    durability::Durability,
    error::{Cause, Error},
    timers,
    wire::Refusal,
};

/// The pause that follows `pause`, where pauses grow.
pub(super) fn longer_pause(pause: Duration) -> Duration {
    (pause * 3 / 2).min(LONGEST_RETRY_PAUSE)
}

/// What to set where a provider refuses scripts by their text, such as Tair and ApsaraDB.
const SCRIPT_CHECK: &str =
    " (the provider checks the text of scripts: set its parameter script_check_enable to 0)";

/// The sendings of one request.
#[derive(Debug, Default)]
pub(super) struct Retry {
    in_doubt_since: Option<Instant>,
    is_release: bool,
    /// The next pause that grows; `None` before the first one.
    growing: Option<Duration>,
}

/// The request must be sent again, for this reason.
#[derive(Debug)]
pub(super) enum Again {
    Unanswered(Arc<str>),
    Refused { refusal: Refusal, pause: Duration },
}

impl Retry {
    /// For a release: no refusal of the server is final. Data of another kind has nothing to release.
    pub(super) fn of_release() -> Self {
        Self {
            is_release: true,
            ..Self::default()
        }
    }

    fn may_pass(&self, refusal: &Refusal) -> bool {
        match refusal {
            Refusal::WrongKind { .. } => false,
            Refusal::Transient { .. } => true,
            Refusal::Failed { message } => self.is_release && !Refusal::is_of_script(message),
        }
    }

    /// A failover takes moments. A quota, a limit or a full disk takes longer, and a provider counts the requests.
    fn next_pause(&mut self, refusal: &Refusal) -> Duration {
        if !self.is_release && refusal.is_of_failover() {
            return TRANSIENT_PAUSE;
        }
        let pause = self.growing.unwrap_or(TRANSIENT_PAUSE);
        self.growing = Some(longer_pause(pause));
        pause
    }

    /// Whether a sending was not answered, and may have been executed.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt_since.is_some()
    }

    /// The time before the first sending that may have been executed.
    pub(super) fn in_doubt_since(&self) -> Option<Instant> {
        self.in_doubt_since
    }

    /// Whether the server has refused a sending of a release.
    pub(super) fn was_refused(&self) -> bool {
        self.is_release && self.growing.is_some()
    }

    /// Ends the doubt: the answer to a later sending has shown what became of the earlier ones.
    pub(super) fn settle(&mut self) {
        self.in_doubt_since = None;
    }

    /// Decides about a failed sending of a request about `name`, a lock or a synchronizer.
    pub(super) fn again(&mut self, name: &Arc<str>, error: CallError) -> Result<Again, Error> {
        match error {
            CallError::Unanswered { reason, sent } => {
                self.in_doubt_since.get_or_insert(sent);
                Ok(Again::Unanswered(reason))
            }
            CallError::Refused(refusal) if self.may_pass(&refusal) => {
                let pause = self.next_pause(&refusal);
                Ok(Again::Refused { refusal, pause })
            }
            CallError::Refused(refusal) => Err(refusal_error(name, refusal)),
            CallError::Closed => Err(Error::Closed),
        }
    }
}

impl Again {
    /// The error of a caller whose time ends while the server refuses.
    pub(super) fn refused_error(&self, name: &Arc<str>) -> Option<Error> {
        let refusal = self.refusal()?.clone();
        Some(refusal_error(name, refusal))
    }

    pub(super) fn reason(&self) -> &str {
        match self {
            Again::Unanswered(reason) => reason,
            Again::Refused { refusal, .. } => refusal.message(),
        }
    }

    /// The refusal, if the server has answered.
    pub(super) fn refusal(&self) -> Option<&Refusal> {
        match self {
            Again::Unanswered(_) => None,
            Again::Refused { refusal, .. } => Some(refusal),
        }
    }

    /// Whether a log should show it: the words name no passing state, or that state has lasted for
    /// some seconds.
    fn is_to_be_logged(&self) -> bool {
        match self {
            Again::Unanswered(_) => false,
            Again::Refused { refusal, pause } => {
                !matches!(refusal, Refusal::Transient { .. }) || *pause >= LONGEST_RETRY_PAUSE
            }
        }
    }

    /// Pauses after a refusal.
    pub(super) async fn pause(&self) {
        if let Again::Refused { pause, .. } = self {
            timers::sleep(*pause).await;
        }
    }
}

impl Engine {
    /// The error of a caller that does not send the request about `name` again.
    pub(super) fn last_error(&self, key: &Bytes, name: &Arc<str>, again: Again) -> Error {
        match again {
            Again::Unanswered(reason) => self.batcher.unavailable(key, Durability::Local, &*reason),
            Again::Refused { refusal, .. } => refusal_error(name, refusal),
        }
    }

    /// Logs a release that the server refuses, unless that may be a moment of a failover.
    pub(super) fn log_repeated_release(&self, name: &str, again: &Again) {
        if !again.is_to_be_logged() {
            return;
        }
        let refusal = again.reason();
        match self.log_limits.failed_releases.may_log_about(refusal) {
            Some(suppressed) => {
                tracing::warn!(%name, refusal, suppressed, "the server refuses a release: the client repeats it")
            }
            None => {
                tracing::debug!(%name, refusal, "the server refuses a release: the client repeats it")
            }
        }
    }
}

/// The caller's error for a refusal.
pub(super) fn refusal_error(name: &Arc<str>, refusal: Refusal) -> Error {
    match refusal {
        Refusal::WrongKind { found } => Error::WrongKind {
            name: name.clone(),
            found,
        },
        // The retries have used up the caller's time.
        Refusal::Transient { message } => {
            let cause = Cause::server(&*message);
            Error::unavailable_by(message, Some(Arc::new(cause)))
        }
        Refusal::Failed { message } => Error::Redis {
            message: match message.to_lowercase().contains("bad lua script") {
                true => format!("{message}{SCRIPT_CHECK}"),
                false => message,
            },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn broken_connection_leaves_doubt_and_a_passing_refusal_none() {
        let (name, began) = ("a".into(), Instant::now());
        let mut retry = Retry::default();
        let loading = Refusal::Transient {
            message: "LOADING".into(),
        };
        let again = retry.again(&name, CallError::Refused(loading)).unwrap();
        assert!(again.refusal().is_some() && !retry.is_in_doubt());
        assert_eq!(again.reason(), "LOADING");
        again.pause().await;
        assert_eq!(began.elapsed(), TRANSIENT_PAUSE);
        let unanswered = |sent| CallError::Unanswered {
            reason: "reset".into(),
            sent,
        };
        let again = retry.again(&name, unanswered(began)).unwrap();
        again.pause().await;
        assert!(again.refusal().is_none() && retry.is_in_doubt());
        assert_eq!(began.elapsed(), TRANSIENT_PAUSE, "it is sent again at once");
        let _ = retry.again(&name, unanswered(Instant::now())).unwrap();
        assert_eq!(
            retry.in_doubt_since(),
            Some(began),
            "the first sending counts"
        );
        retry.settle();
        assert!(!retry.is_in_doubt());
    }

    #[test]
    fn refusal_and_a_closed_client_are_final() {
        let name = "a".into();
        let mut retry = Retry::default();
        assert_eq!(
            retry.again(&name, CallError::Closed).err(),
            Some(Error::Closed)
        );
        let found = || "string".to_owned();
        let other = Refusal::WrongKind { found: found() };
        let error = retry.again(&name, CallError::Refused(other)).err();
        let wrong = Error::WrongKind {
            name: name.clone(),
            found: found(),
        };
        assert_eq!(error, Some(wrong));
        assert!(!retry.is_in_doubt());
    }

    #[test]
    fn script_refused_by_its_text_names_the_parameter() {
        for words in [
            "ERR bad lua script for redis cluster, all the keys ..",
            "-ERR Bad Lua Script",
        ] {
            let message = words.to_owned();
            let error = refusal_error(&"a".into(), Refusal::Failed { message }).to_string();
            assert!(
                error.contains(words) && error.contains("script_check_enable"),
                "{error}"
            );
        }
    }

    #[test]
    fn refused_release_is_repeated_with_growing_pauses() {
        let name = "a".into();
        let mut retry = Retry::of_release();
        let mut pauses = Vec::new();
        for words in [
            "NOPERM no right",
            "OOM full",
            "ERR max requests limit exceeded",
        ]
        .repeat(4)
        {
            let message = words.to_owned();
            let refused = CallError::Refused(Refusal::Failed { message });
            let again = retry.again(&name, refused).expect("no refusal is final");
            assert_eq!(again.reason(), words);
            let Again::Refused { pause, .. } = again else {
                panic!("{again:?}");
            };
            pauses.push(pause.as_millis());
        }
        let growing = [50, 75, 112, 168, 253, 379, 569, 854, 1_281, 1_922];
        assert_eq!(pauses, [&growing[..], &[2_000; 2]].concat());
        assert_eq!(
            retry.again(&name, CallError::Closed).err(),
            Some(Error::Closed)
        );
        assert!(!retry.is_in_doubt());
    }
}
