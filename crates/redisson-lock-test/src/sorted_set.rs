//! The content of a sorted set.

use std::{collections::HashMap, ops::Range};

use bytes::Bytes;
use foldhash::fast::FixedState;

use super::number;

/// Members in the order of scores, then of names.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SortedSet {
    scores: HashMap<Bytes, f64, FixedState>,
    members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) score: f64,
    pub(crate) name: Bytes,
}

impl Member {
    /// The name and the score, as text.
    pub(crate) fn flat(&self) -> [Bytes; 2] {
        [self.name.clone(), number::float_text(self.score)]
    }
}

/// One end of a range of scores.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) score: f64,
    pub(crate) exclusive: bool,
}

impl SortedSet {
    pub(crate) fn score(&self, name: &[u8]) -> Option<f64> {
        self.scores.get(name).copied()
    }

    fn position(&self, score: f64, name: &[u8]) -> Result<usize, usize> {
        self.members.binary_search_by(|member| {
            // No score is NaN; zeros of both signs are equal.
            let by_score = member.score.partial_cmp(&score);
            let by_score = by_score.unwrap_or(std::cmp::Ordering::Equal);
            by_score.then_with(|| member.name[..].cmp(name))
        })
    }

    /// Sets the score of a member, new or old.
    pub(crate) fn insert(&mut self, name: &[u8], score: f64) {
        let name = match self.take(name) {
            Some(old) => old,
            None => Bytes::copy_from_slice(name),
        };
        let (Ok(position) | Err(position)) = self.position(score, &name);
        self.scores.insert(name.clone(), score);
        self.members.insert(position, Member { score, name });
    }

    fn take(&mut self, name: &[u8]) -> Option<Bytes> {
        let score = self.scores.remove(name)?;
        let position = self.position(score, name).ok()?;
        Some(self.members.remove(position).name)
    }

    pub(crate) fn remove(&mut self, name: &[u8]) -> bool {
        self.take(name).is_some()
    }

    pub(crate) fn rank(&self, name: &[u8]) -> Option<usize> {
        self.position(self.score(name)?, name).ok()
    }

    /// The positions of the members between two scores.
    pub(crate) fn between(&self, min: Bound, max: Bound) -> Range<usize> {
        let start = self.members.partition_point(|member| {
            member.score < min.score || min.exclusive && member.score == min.score
        });
        let end = self.members.partition_point(|member| {
            member.score < max.score || !max.exclusive && member.score == max.score
        });
        start..end.max(start)
    }

    pub(crate) fn remove_range(&mut self, range: Range<usize>) -> usize {
        let removed = self.members.drain(range);
        removed
            .map(|member| self.scores.remove(&member.name))
            .count()
    }

    pub(crate) fn slice(&self, range: Range<usize>) -> &[Member] {
        &self.members[range]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }
}
