//! The ranges of sorted sets in commands.

use std::ops::Range;

use super::{
    super::{
        Failure,
        number::{float, parse_integer},
        sorted_set::{Bound, SortedSet},
    },
    SYNTAX, index_range,
};

/// Two scores; a `(` before a score excludes it.
#[derive(Debug)]
pub(super) struct Scores {
    min: Bound,
    max: Bound,
}

impl Scores {
    pub(super) fn read(min: &[u8], max: &[u8]) -> Result<Self, Failure> {
        match (bound(min), bound(max)) {
            (Some(min), Some(max)) => Ok(Self { min, max }),
            _ => Err("ERR min or max is not a float".into()),
        }
    }

    pub(super) fn within(&self, set: &SortedSet) -> Range<usize> {
        set.between(self.min, self.max)
    }
}

fn bound(text: &[u8]) -> Option<Bound> {
    let inner = text.strip_prefix(b"(");
    Some(Bound {
        score: float(inner.unwrap_or(text))?,
        exclusive: inner.is_some(),
    })
}

/// The selection of `ZRANGE` and `ZRANGEBYSCORE`.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) with_scores: bool,
    pub(super) reversed: bool,
    limit: Option<(i64, i64)>,
    ends: Ends,
}

#[derive(Debug)]
enum Ends {
    Indices(i64, i64),
    Scores(Scores),
}

impl Selection {
    /// Reads the two ends and the options. `ZRANGEBYSCORE` has no `BYSCORE`, and no reverse order.
    pub(super) fn read(args: &[&[u8]], mut by_score: bool) -> Result<Self, Failure> {
        let (only_scores, mut reversed, mut with_scores, mut limit) =
            (by_score, false, false, None);
        let mut words = args[2..].iter();
        while let Some(word) = words.next() {
            match &word.to_ascii_uppercase()[..] {
                b"WITHSCORES" => with_scores = true,
                b"BYSCORE" if !only_scores => by_score = true,
                b"REV" if !only_scores => reversed = true,
                b"LIMIT" => match (words.next(), words.next()) {
                    (Some(offset), Some(count)) => {
                        limit = Some((parse_integer(offset)?, parse_integer(count)?));
                    }
                    _ => return Err(SYNTAX.into()),
                },
                b"BYLEX" if !only_scores => {
                    return Err("ERR ZRANGE BYLEX is not part of the in-memory Redis".into());
                }
                _ => return Err(SYNTAX.into()),
            }
        }
        if limit.is_some() && !by_score {
            return Err("ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX".into());
        }
        let ends = Self::ends(args, by_score, reversed)?;
        Ok(Self {
            with_scores,
            reversed,
            limit,
            ends,
        })
    }

    fn ends(args: &[&[u8]], by_score: bool, reversed: bool) -> Result<Ends, Failure> {
        Ok(match (by_score, reversed) {
            (false, _) => Ends::Indices(parse_integer(args[0])?, parse_integer(args[1])?),
            (true, false) => Ends::Scores(Scores::read(args[0], args[1])?),
            (true, true) => Ends::Scores(Scores::read(args[1], args[0])?),
        })
    }

    /// The selected positions, in ascending order of scores.
    pub(super) fn within(&self, set: &SortedSet) -> Range<usize> {
        match &self.ends {
            Ends::Scores(scores) => self.limited(scores.within(set)),
            Ends::Indices(start, stop) => {
                let range = index_range(*start, *stop, set.len());
                if self.reversed {
                    set.len() - range.end..set.len() - range.start
                } else {
                    range
                }
            }
        }
    }

    fn limited(&self, range: Range<usize>) -> Range<usize> {
        let Some((offset, count)) = self.limit else {
            return range;
        };
        let Ok(offset) = usize::try_from(offset) else {
            return 0..0;
        };
        let len = range.len().saturating_sub(offset);
        let count = usize::try_from(count).map_or(len, |count| count.min(len));
        if self.reversed {
            let end = range.end.saturating_sub(offset).max(range.start);
            end - count..end
        } else {
            let start = range.start.saturating_add(offset).min(range.end);
            start..start + count
        }
    }
}
