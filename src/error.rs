//! Errors and their causes.

use std::{
    any::Any,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

/// Why a hold was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The validity ended: the lease was fixed, or no renewal succeeded in time. The holder learns of it before the server lets
    /// another owner in.
    Expired,
    /// The server no longer has the hold: the lock was forced open, its key was deleted, or the server lost its data.
    Gone,
    /// The client was shut down. Nothing renews the hold: it ends with its lease, or at once if
    /// [`shutdown_and_release`](crate::LockClient::shutdown_and_release) ended the client.
    Closed,
    /// The runtime that created the client has ended. Nothing renews the hold: it ends with its lease.
    RuntimeEnded,
}

impl LostReason {
    /// Whether the client has ended, and not the hold.
    pub(crate) fn is_end_of_client(self) -> bool {
        matches!(self, LostReason::Closed | LostReason::RuntimeEnded)
    }
}

impl std::fmt::Display for LostReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LostReason::Expired => "its lease ran out",
            LostReason::Gone => "it is no longer on the server",
            LostReason::Closed => "its client was shut down",
            LostReason::RuntimeEnded => "the runtime of its client has ended",
        })
    }
}

/// The reason while there is no connection, whatever the caller waited for. The cause has the words of the network.
pub(crate) const NO_CONNECTION: &str = "there is no connection";
/// The reason while there is a connection and no answer.
pub(crate) const NO_ANSWER: &str = "no answer came in time";

/// Why Redis is [unavailable](Error::Unavailable), as far as the client knows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// There is no connection, or the last one broke.
    #[error("{reason}")]
    #[non_exhaustive]
    Connection {
        /// The error of the connection.
        reason: String,
    },
    /// The server cannot serve now: `LOADING`, `BUSY`, `CLUSTERDOWN`, too many clients.
    #[error("the server answers {message:?}")]
    #[non_exhaustive]
    Server {
        /// The server's own words.
        message: String,
    },
    /// The server refuses this client: most likely its user, password or rights have changed.
    #[error("{reason}")]
    #[non_exhaustive]
    Refused {
        /// What the server refuses, and what to do about it.
        reason: String,
    },
}

impl Cause {
    pub(crate) fn connection(reason: impl Into<String>) -> Self {
        Cause::Connection {
            reason: reason.into(),
        }
    }

    pub(crate) fn server(message: impl Into<String>) -> Self {
        Cause::Server {
            message: message.into(),
        }
    }
}

/// Why an operation on a lock failed.
///
/// A lock that another owner holds is not an error: [`try_lock`](crate::Lock::try_lock) and
/// [`try_lock_for`](crate::Lock::try_lock_for) return `None`.
///
/// An error's text has the deciding words: [`Error::Unavailable`] ends with those of its [`source`](std::error::Error::source), so a
/// log that prints the text alone says why Redis did not answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The client was shut down.
    #[error("the lock client was shut down: connect a new one")]
    Closed,

    /// The runtime that created the client has ended. A client in a static serves one runtime, unless it was built with
    /// [`own_runtime(true)`](crate::LockClientBuilder::own_runtime); each `#[tokio::test]` has a runtime of its own.
    #[error(
        "the runtime that created the lock client has ended: connect a new client on this runtime, or build it with `own_runtime(true)`"
    )]
    RuntimeEnded,

    /// The hold was gone before its release. Another owner may have held the lock since.
    #[error("the hold on `{name}` was lost: {reason}")]
    #[non_exhaustive]
    Lost {
        /// The lock.
        name: Arc<str>,
        /// How the hold ended.
        reason: LostReason,
        /// The result of the body of a `run`: see [`Error::take_result`].
        result: Option<Unprotected>,
    },

    /// The owner has no hold without a guard on the lock. A guard releases its hold itself.
    #[error(
        "this owner has no hold without a guard on `{name}`: unlock through the guard, or as the owner that called \
         `leak`"
    )]
    #[non_exhaustive]
    NotHeld {
        /// The lock.
        name: Arc<str>,
    },

    /// The owner holds the lock already, and the lock is not reentrant (non-reentrant, simple). The client returns it without a
    /// request. The branches of one `join!` are one owner.
    #[error("this owner holds `{name}` already, and the lock is not reentrant")]
    #[non_exhaustive]
    AlreadyHeld {
        /// The lock.
        name: Arc<str>,
    },

    /// The owner has a read hold and asks to write: it would wait for itself, as in Redisson. Release the read hold first, and
    /// expect another owner to write in between.
    #[error(
        "this owner has a read hold on `{name}` and would wait for itself: release it before you acquire the write \
         lock"
    )]
    #[non_exhaustive]
    WouldDeadlock {
        /// The lock.
        name: Arc<str>,
    },

    /// The owner has reached the largest number of holds: 1,000 on the read side of a read-write lock.
    #[error("this owner has {most} holds on `{name}`, the maximum: release one first")]
    #[non_exhaustive]
    TooManyHolds {
        /// The lock.
        name: Arc<str>,
        /// The largest number of holds.
        most: u32,
    },

    /// The key of the lock holds something else: a value of another type, or another kind of lock.
    #[error(
        "`{name}` is used for something else ({found}): use another name, or the kind that created the lock"
    )]
    #[non_exhaustive]
    WrongKind {
        /// The lock.
        name: Arc<str>,
        /// What the key holds.
        found: String,
    },

    /// Redis did not answer in time, or it answered only that it cannot serve yet (`LOADING`, `BUSY` and the like). After an
    /// acquisition the caller holds nothing; the client releases a late grant as soon as it can reach Redis. A release continues
    /// in the background, unless Redis refused until the lease was over. The text names the server, where it is known.
    #[error("Redis could not be reached: {reason}{}", because(reason, cause.as_deref()))]
    #[non_exhaustive]
    Unavailable {
        /// What the client waited for, or the error of the connection, without the cause.
        reason: String,
        /// Why there was no answer, as far as the client knows.
        #[source]
        cause: Option<Arc<Cause>>,
    },

    /// The lock was free, but too few replicas acknowledged the acquisition in time ([`Durability`](crate::Durability)). The client
    /// has released the hold.
    #[error(
        "`{name}` was released again: {acknowledged} of {wanted} required replicas acknowledged the acquisition in \
         time: {}",
        to_replicate(*wanted, *connected)
    )]
    #[non_exhaustive]
    Replication {
        /// The lock.
        name: Arc<str>,
        /// How many replicas acknowledged.
        acknowledged: u32,
        /// How many replicas were needed.
        wanted: u32,
        /// How many replicas were connected to the master, if it tells (`ROLE`).
        connected: Option<u32>,
    },

    /// A lock cannot have this name.
    #[error("{name:?} cannot be the name of a lock: {reason}")]
    #[non_exhaustive]
    InvalidName {
        /// The name, shortened if it is long.
        name: String,
        /// What is wrong with it.
        reason: &'static str,
    },

    /// A setting, lease, URL, login, certificate or argument is invalid, or the call came from outside a tokio runtime.
    #[error("{reason}")]
    #[non_exhaustive]
    Config {
        /// What is wrong and what to do about it.
        reason: String,
    },

    /// The server refused a command.
    #[error("Redis refused: {message}")]
    #[non_exhaustive]
    Redis {
        /// The server's own words.
        message: String,
    },
}

impl Error {
    pub(crate) fn config(reason: impl Into<String>) -> Self {
        Error::Config {
            reason: reason.into(),
        }
    }

    /// Returns whether this is [`Error::Lost`]: another owner may have held the lock since.
    pub fn is_lost(&self) -> bool {
        matches!(self, Error::Lost { .. })
    }

    /// Returns whether this is [`Error::Unavailable`]: the server could not be reached, or could not serve yet, in time.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable { .. })
    }

    /// Returns whether the same call may succeed later without a change of program, set-up or data: the server could not be
    /// reached, or too few replicas acknowledged. A busy lock is no error: `try_lock` returns `None`.
    ///
    /// A release, a count or a change of permits continues after [`Error::Unavailable`]: a second call would execute it twice.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    ///
    /// let lock = client.reentrant_lock("order:42");
    /// let guard = loop {
    ///     match lock.lock().await {
    ///         Err(error) if error.is_retryable() => tokio::time::sleep(Duration::from_secs(1)).await,
    ///         result => break result?,
    ///     }
    /// };
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_retryable(&self) -> bool {
        self.is_unavailable() || matches!(self, Error::Replication { .. })
    }

    /// Takes the result of the body of a `run` out of an [`Error::Lost`], if the body had run to its end. The lock may have been
    /// lost at any time before that end. Returns `None` if `T` is not the type of the result, and at a second call.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let payment: Result<u64, _> = client.reentrant_lock("order:42").run(async |_guard| 4711).await;
    /// if let Err(lost) = payment {
    ///     if let Some(payment) = lost.take_result::<u64>() {
    ///         eprintln!("payment {payment} was made without the lock");
    ///     }
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn take_result<T: 'static>(&self) -> Option<T> {
        let Error::Lost {
            result: Some(result),
            ..
        } = self
        else {
            return None;
        };
        let mut result = result.0.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = result.take_if(|result| result.is::<T>())?;
        taken.downcast().ok().map(|result| *result)
    }

    /// Adds the result of the body of a `run`.
    pub(crate) fn with_result(self, done: impl Send + 'static) -> Self {
        match self {
            Error::Lost { name, reason, .. } => Error::Lost {
                name,
                reason,
                result: Some(Unprotected(Arc::new(Mutex::new(Some(Box::new(done)))))),
            },
            other => other,
        }
    }

    /// The same, with what follows from it for the caller.
    pub(crate) fn with_note(self, note: &str) -> Self {
        match self {
            Error::Unavailable { reason, cause } => Error::Unavailable {
                reason: format!("{reason}; {note}"),
                cause,
            },
            other => other,
        }
    }

    pub(crate) fn unavailable(reason: impl Into<String>) -> Self {
        Error::Unavailable {
            reason: reason.into(),
            cause: None,
        }
    }

    /// [`Error::Unavailable`] for `reason`, with the cause if the client knows it.
    pub(crate) fn unavailable_by(reason: impl Into<String>, cause: Option<Arc<Cause>>) -> Self {
        let reason = reason.into();
        Error::Unavailable { reason, cause }
    }

    /// The cause for which a client that got this error cannot connect.
    pub(crate) fn cause(&self) -> Arc<Cause> {
        match self {
            Error::Unavailable {
                cause: Some(cause), ..
            } => cause.clone(),
            Error::Unavailable { reason, .. } => Arc::new(Cause::connection(reason)),
            Error::Redis { message } => Arc::new(Cause::server(message)),
            other => Arc::new(Cause::Refused {
                reason: other.to_string(),
            }),
        }
    }
}

/// The cause behind a `reason` that does not contain its words.
fn because(reason: &str, cause: Option<&Cause>) -> String {
    let cause = cause.map(ToString::to_string).unwrap_or_default();
    match cause.is_empty() || reason.contains(&cause) {
        true => String::new(),
        false => format!(": {cause}"),
    }
}

/// What to do where fewer than `wanted` replicas acknowledge.
fn to_replicate(wanted: u32, connected: Option<u32>) -> String {
    match connected {
        Some(connected) if connected < wanted => format!(
            "{connected} are connected to the master: connect the missing ones, or require fewer by `Durability`"
        ),
        _ => "find the replica that is connected and does not acknowledge by its growing `lag` in the master's \
              `INFO replication`, and restart or disconnect it (a stopped machine, or a tool that reads the stream); for \
              replicas that are slow, raise `replica_wait`; with `wait_for_disk`, give each `appendonly yes`; to do without \
              replicas, use `Durability::Local`"
            .to_owned(),
    }
}

/// What the body of a `run` came to while the lock was lost; [`Error::take_result`] takes it. It equals only itself.
#[derive(Clone)]
pub struct Unprotected(Arc<Mutex<Option<Box<dyn Any + Send>>>>);

impl PartialEq for Unprotected {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Unprotected {}

impl fmt::Debug for Unprotected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unprotected").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn text_and_source_of_an_unavailable_server_say_each_thing_once() {
        let cause = Arc::new(Cause::server("LOADING the dataset"));
        let error = Error::unavailable_by("no answer within 3s", Some(cause.clone()));
        let text = "Redis could not be reached: no answer within 3s";
        let source = "the server answers \"LOADING the dataset\"";
        assert_eq!(error.to_string(), format!("{text}: {source}"));
        assert_eq!(error.source().map(ToString::to_string), Some(source.into()));
        let known = Error::unavailable_by(format!("no: {source}"), Some(cause.clone()));
        assert_eq!(known.to_string().matches(source).count(), 1);
        let unexplained = Error::unavailable("no answer within 3s");
        assert_eq!(unexplained.to_string(), text);
        assert!(unexplained.source().is_none());
    }

    #[test]
    fn error_predicates_classify_errors_for_the_caller() {
        let lost = Error::Lost {
            name: "a".into(),
            reason: LostReason::Gone,
            result: None,
        };
        let replication = Error::Replication {
            name: "a".into(),
            acknowledged: 0,
            wanted: 1,
            connected: None,
        };
        let seen = |error: &Error| {
            [
                error.is_lost(),
                error.is_unavailable(),
                error.is_retryable(),
            ]
        };
        assert_eq!(seen(&lost), [true, false, false]);
        assert_eq!(seen(&Error::unavailable("no answer")), [false, true, true]);
        assert_eq!(seen(&replication), [false, false, true]);
        for other in [
            Error::Closed,
            Error::config("bad"),
            Error::NotHeld { name: "a".into() },
        ] {
            assert_eq!(seen(&other), [false; 3], "{other:?}");
        }
    }
}
