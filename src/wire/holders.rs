//! The holders of a lock, and the waiters in its queue.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use uuid::Uuid;

use crate::{owner, since::Since};

use super::{
    LockSpec, Refusal, Reply, Request,
    reply::{Detail, Outcome},
    script::{Script, script},
};

/// The largest number of holders in an answer.
pub(crate) const MOST_LISTED: usize = 1000;

static HOLDERS: Script = script!(keys = 1, "holders");
static SIMPLE_HOLDERS: Script = script!(keys = 1, "simple_holders");
static FAIR_WAITERS: Script = script!(keys = 2, "clock", "fair_waiters");

/// An owner that holds a lock, from [`Lock::holders`](crate::Lock::holders): a task of this or another client, or a Java
/// thread.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner as the server shows it: `<client id>:<number>`, where the number is a thread's in Java. For a [simple
    /// lock](crate::SimpleLock) it is the value of the key, which other libraries choose freely.
    pub owner: Arc<str>,
    /// The number of its holds.
    pub holds: u32,
    /// Whether this is the write side of a [`ReadWriteLock`](crate::ReadWriteLock).
    pub writes: bool,
    /// How long the holds last unless they are renewed; `None` without expiry. Zero for a reader whose lease has ended: the
    /// server keeps its entry until the last reader releases.
    pub remaining_lease: Option<Duration>,
    /// Since when it holds the lock: exact for owners of this client, a bound for those of other clients of this crate, not known for
    /// Java.
    pub since: Since,
    /// The [name](crate::Config::client_name) of its client, if that is a client of this crate, is connected to the lock's server,
    /// and this user may ask for it (`+client|list`).
    pub client_name: Option<Arc<str>>,
}

impl Holder {
    /// The [id](crate::LockClient::id) of the holder's client, if the owner has Redisson's form. `CLIENT LIST` shows it behind
    /// the [name](crate::Config::client_name) of each connection of a client of this crate.
    pub fn client_id(&self) -> Option<Uuid> {
        client_id(&self.owner)
    }

    /// Whether its client is of this crate.
    pub(crate) fn is_of_this_crate(&self) -> bool {
        let number = self.owner.split_once(':').map(|(_, number)| number);
        number.is_some_and(owner::is_of_this_crate)
    }
}

/// `<owner> (orders-7@web-1), 2 holds, held for at most 61.0 s, 29.4 s left`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.owner)?;
        if let Some(name) = &self.client_name {
            write!(f, " ({name})")?;
        }
        if self.writes {
            f.write_str(", writes")?;
        }
        if self.holds != 1 {
            write!(f, ", {} holds", self.holds)?;
        }
        if self.since != Since::Unknown {
            write!(f, ", {}", self.since)?;
        }
        match self.remaining_lease {
            Some(left) => write!(f, ", {:.1} s left", left.as_secs_f64()),
            None => f.write_str(", without expiry"),
        }
    }
}

/// An owner in the queue of a lock, from [`Lock::waiters`](crate::Lock::waiters).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The owner as the server shows it: `<client id>:<number>`, where the number is a thread's in Java.
    pub owner: Arc<str>,
    /// How long it keeps its place without a further attempt; `None` if the server does not know. Waiters of this crate
    /// refresh their places at every [`Config::max_poll_interval`](crate::Config::max_poll_interval), those of Java never.
    pub place_kept: Option<Duration>,
}

impl Waiter {
    /// The [id](crate::LockClient::id) of the waiter's client, if the owner has Redisson's form.
    pub fn client_id(&self) -> Option<Uuid> {
        client_id(&self.owner)
    }
}

fn client_id(owner: &str) -> Option<Uuid> {
    Uuid::try_parse(owner.split_once(':')?.0).ok()
}

/// Ask for the holders of a lock whose key is a hash. `base` is the prefix of its readers' markers.
pub(super) fn of_hash(spec: &LockSpec, base: Option<&Bytes>) -> Request {
    Request {
        script: &HOLDERS,
        parts: vec![spec.key.clone(), base.cloned().unwrap_or_default()],
    }
}

/// Ask for the holder of a simple lock.
pub(super) fn of_string(spec: &LockSpec) -> Request {
    Request {
        script: &SIMPLE_HOLDERS,
        parts: vec![spec.key.clone(), Bytes::new()],
    }
}

/// Ask for the queue of a fair lock.
pub(super) fn in_queue(queue: &Bytes, places: &Bytes) -> Request {
    Request {
        script: &FAIR_WAITERS,
        parts: vec![queue.clone(), places.clone(), Bytes::new()],
    }
}

/// Reads the answer that lists holders.
pub(crate) fn holders(reply: Reply) -> Result<Vec<Holder>, Refusal> {
    lines(reply, |line| {
        let mut words = line.splitn(3, ' ');
        let (left, holds, owner) = (words.next()?, words.next()?, words.next()?);
        let (owner, writes) = match owner.strip_suffix(":write") {
            Some(owner) => (owner, true),
            None => (owner, false),
        };
        Some(Holder {
            since: Since::of_owner(owner),
            client_name: None,
            owner: owner.into(),
            holds: holds.parse().ok()?,
            writes,
            // A reader without live markers has -2.
            remaining_lease: if left == "-2" {
                Some(Duration::ZERO)
            } else {
                millis(left)
            },
        })
    })
}

/// Reads the answer that lists waiters.
pub(crate) fn waiters(reply: Reply) -> Result<Vec<Waiter>, Refusal> {
    lines(reply, |line| {
        let (left, owner) = line.split_once(' ')?;
        Some(Waiter {
            owner: owner.into(),
            place_kept: millis(left),
        })
    })
}

/// Leaves out malformed lines: they are another program's data.
fn lines<T>(reply: Reply, read: impl Fn(&str) -> Option<T>) -> Result<Vec<T>, Refusal> {
    match reply.outcome()? {
        Outcome::Done(Detail::Text(text)) => Ok(text.lines().filter_map(read).collect()),
        other => Err(Refusal::Failed {
            message: format!("the script that lists owners returned {other:?}"),
        }),
    }
}

fn millis(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Reply {
        Reply {
            status: 0,
            detail: Detail::Text(text.into()),
        }
    }

    #[test]
    fn lines_of_other_programs_are_left_out() {
        let found = holders(told(
            "20 1 a:1\n-1 2 b c:2:write\nx\n\n5 -3 d\n5 99999999999 e\n-2 1 f",
        ));
        let found = found.unwrap();
        let owners: Vec<_> = found.iter().map(|holder| &*holder.owner).collect();
        assert_eq!(owners, ["a:1", "b c:2", "f"]);
        assert_eq!(found[0].remaining_lease, Some(Duration::from_millis(20)));
        assert!(found[1].writes && found[1].remaining_lease.is_none());
        assert_eq!(found[2].remaining_lease, Some(Duration::ZERO));

        let found = waiters(told("7 a\n-1 b c\nd")).unwrap();
        let places: Vec<_> = found.iter().map(|waiter| waiter.place_kept).collect();
        assert_eq!(places, [Some(Duration::from_millis(7)), None]);
        assert!(holders(told("")).unwrap().is_empty());
    }

    #[test]
    fn holders_are_shown_in_a_line() {
        let mut holder = Holder {
            owner: "57339a48-91c1-4d3a-9f5d-1d0a4f6f7ab1:42".into(),
            holds: 1,
            writes: false,
            remaining_lease: Some(Duration::from_millis(29_400)),
            since: Since::Unknown,
            client_name: None,
        };
        assert_eq!(
            holder.to_string(),
            "57339a48-91c1-4d3a-9f5d-1d0a4f6f7ab1:42, 29.4 s left"
        );
        assert!(holder.client_id().is_some());
        (holder.holds, holder.writes, holder.remaining_lease) = (2, true, None);
        holder.since = Since::NotBefore(std::time::SystemTime::now());
        holder.client_name = Some("orders-7@web-1".into());
        holder.owner = "worker".into();
        assert_eq!(
            holder.to_string(),
            "worker (orders-7@web-1), writes, 2 holds, held for at most 0.0 s, without expiry"
        );
        assert!(holder.client_id().is_none());
    }
}
