//! The decision whether a failed request is sent again. Pure, except for the pause.
//!
//! Every loop of the engine that sends a request until it is answered asks here what an error
//! means:
//!
//! - The client is closed, or the server refuses the request: it is not sent again.
//! - The server answers a transient error, as in a failover: it has executed nothing, and the
//!   request is sent again after a pause.
//! - The connection broke: the server may have executed the request or not. It is sent again at
//!   once, and its sender is *in doubt* from then on. A sender that gives up in doubt has to undo
//!   the request.
//!
//! Each loop decides by itself how long it goes on, and what it does in doubt.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::CallError;
use crate::{
    error::{Cause, Error},
    timers,
    wire::Refusal,
};

/// Pause before a request is sent again after a transient error.
pub(super) const TRANSIENT_PAUSE: Duration = Duration::from_millis(50);

/// The sendings of one request.
#[derive(Debug, Default)]
pub(super) struct Retry {
    in_doubt_since: Option<Instant>,
}

/// The request must be sent again, for this reason.
pub(super) struct Again {
    pub(super) reason: Arc<str>,
    was_refused: bool,
}

impl Retry {
    /// Whether a sending was not answered, and may have been executed.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.in_doubt_since.is_some()
    }

    /// The time before the first sending that may have been executed.
    pub(super) fn in_doubt_since(&self) -> Option<Instant> {
        self.in_doubt_since
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
                Ok(Again {
                    reason,
                    was_refused: false,
                })
            }
            CallError::Refused(Refusal::Transient { message }) => Ok(Again {
                reason: message.into(),
                was_refused: true,
            }),
            CallError::Refused(refusal) => Err(refusal_error(name, refusal)),
            CallError::Closed => Err(Error::Closed),
        }
    }
}

impl Again {
    /// The error of a caller that does not send it again.
    pub(super) fn into_error(self) -> Error {
        let cause = self
            .was_refused
            .then(|| Arc::new(Cause::server(&*self.reason)));
        Error::unavailable_by(&*self.reason, cause)
    }

    /// The server's message, if it was a transient error.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.was_refused.then_some(&*self.reason)
    }

    /// Pauses after a transient error.
    pub(super) async fn pause(&self) {
        if self.was_refused {
            timers::sleep(TRANSIENT_PAUSE).await;
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
        Refusal::Failed { message } => Error::Redis { message },
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
        assert_eq!(
            (again.refusal(), retry.is_in_doubt()),
            (Some("LOADING"), false)
        );
        again.pause().await;
        assert_eq!(began.elapsed(), TRANSIENT_PAUSE);
        let unanswered = |sent| CallError::Unanswered {
            reason: "reset".into(),
            sent,
        };
        let again = retry.again(&name, unanswered(began)).unwrap();
        again.pause().await;
        assert_eq!((again.refusal(), retry.is_in_doubt()), (None, true));
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
}
