//! Since when an owner holds a lock.

use std::{
    fmt,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use uuid::Uuid;

use crate::owner;

/// Since when a [`Holder`](crate::Holder) holds its lock, as far as anything tells.
///
/// The data of a lock have no time. Redisson's format has no room for one, and a key of its own would cost each acquisition a
/// command. The lease tells no age: it begins again with each renewal. A connection tells none either: holds outlive connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Since {
    /// The time of the first hold. The holder is an owner of this client, which knows it.
    At(Instant),
    /// Not before this time, by the clock of the holder's host: then its client was made. The [id](crate::LockClient::id) of a client
    /// of this crate has that time.
    NotBefore(SystemTime),
    /// Not known: a client of Java, or one with an id of another sort.
    Unknown,
}

impl Since {
    /// Reads what the text of an owner tells.
    pub(crate) fn of_owner(text: &str) -> Self {
        let read = || {
            let (client, number) = text.split_once(':')?;
            if !owner::is_of_this_crate(number) {
                return None;
            }
            let id = Uuid::try_parse(client).ok()?;
            // Other versions count time in other ways.
            let made = id.get_timestamp().filter(|_| id.get_version_num() == 7)?;
            let (seconds, nanos) = made.to_unix();
            UNIX_EPOCH.checked_add(Duration::new(seconds, nanos))
        };
        read().map_or(Self::Unknown, Self::NotBefore)
    }

    /// Returns the longest time for which the lock can have been held by now: exact for [`At`](Self::At), an upper bound for
    /// [`NotBefore`](Self::NotBefore), as far as the clocks of both hosts agree. `None` if nothing is known.
    pub fn at_most(&self) -> Option<Duration> {
        match self {
            // Tokio's clock, which a test may have paused.
            Self::At(at) => Some(tokio::time::Instant::from_std(*at).elapsed()),
            Self::NotBefore(made) => Some(made.elapsed().unwrap_or_default()),
            Self::Unknown => None,
        }
    }
}

/// `held for 12.3 s`, `held for at most 12.3 s`; nothing if nothing is known.
impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(longest) = self.at_most() else {
            return Ok(());
        };
        let bound = match self {
            Self::At(_) => "",
            _ => "at most ",
        };
        write!(f, "held for {bound}{:.1} s", longest.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_of_this_crate_has_a_time() {
        let made = "019c0a5e-8f00-7a52-9a55-0d8f6c1b2a3d";
        let own = "4611686018427387907";
        let at = UNIX_EPOCH + Duration::from_millis(0x019c_0a5e_8f00);
        assert_eq!(
            Since::of_owner(&format!("{made}:{own}")),
            Since::NotBefore(at)
        );
        for other in [
            // A thread of Java, whatever the id looks like.
            format!("{made}:47"),
            format!("0f8c7a52-5b1e-4f6e-9a55-0d8f6c1b2a3d:{own}"),
            // Version 1 has a time of another sort.
            format!("0f8c7a52-5b1e-1f6e-9a55-0d8f6c1b2a3d:{own}"),
            format!("{made}:"),
            format!("{made}:-{own}"),
            format!("{made}:{own}:write"),
            "worker".into(),
            String::new(),
        ] {
            assert_eq!(Since::of_owner(&other), Since::Unknown, "{other}");
        }
        // The last time that an id can have.
        let last = format!("ffffffff-ffff-7fff-bfff-ffffffffffff:{own}");
        assert_eq!(Since::of_owner(&last).at_most(), Some(Duration::ZERO));
    }

    #[test]
    fn a_bound_says_that_it_is_one() {
        let ago = SystemTime::now() - Duration::from_secs(90);
        let told = Since::NotBefore(ago).to_string();
        assert!(told.starts_with("held for at most 90."), "{told}");
        let told = Since::At(Instant::now()).to_string();
        assert_eq!(told, "held for 0.0 s");
        assert_eq!(Since::Unknown.to_string(), "");
    }
}
