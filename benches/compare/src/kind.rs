//! The kinds of lock that are measured.

use std::str::FromStr;

/// The kinds of lock that have the same name in Redisson.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Reentrant,
    Fair,
    Read,
    Write,
    Fenced,
}

impl Kind {
    pub const ALL: [Self; 5] = [
        Self::Reentrant,
        Self::Fair,
        Self::Read,
        Self::Write,
        Self::Fenced,
    ];

    pub fn text(self) -> &'static str {
        match self {
            Self::Reentrant => "reentrant",
            Self::Fair => "fair",
            Self::Read => "read",
            Self::Write => "write",
            Self::Fenced => "fenced",
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut all = Self::ALL.into_iter();
        all.find(|kind| kind.text() == text).ok_or(())
    }
}
