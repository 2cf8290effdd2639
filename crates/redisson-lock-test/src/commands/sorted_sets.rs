//! Sorted sets.

use super::{
    super::{
        Failure, Outcome,
        command::{Command, DENY_OOM, WRITE},
        data::Data,
        number::{float_text, parse_float},
        sorted_set::{Member, SortedSet},
    },
    Frame, SYNTAX, number,
    score_ranges::{Scores, Selection},
    text_or_null, texts,
};

pub(crate) const COMMANDS: &[Command] = &[
    Command::data("zscore", 3, 0, zscore),
    Command::data("zcard", 2, 0, zcard),
    Command::data("zrank", 3, 0, zrank),
    Command::data("zcount", 4, 0, zcount),
    Command::data("zrange", -4, 0, |data, args, now| {
        range(data, args, now, false)
    }),
    Command::data("zrangebyscore", -4, 0, |data, args, now| {
        range(data, args, now, true)
    }),
    Command::data("zadd", -4, WRITE | DENY_OOM, zadd),
    Command::data("zincrby", 4, WRITE | DENY_OOM, zincrby),
    Command::data("zrem", -3, WRITE, zrem),
    Command::data("zremrangebyscore", 4, WRITE, zremrangebyscore),
];

fn read<'a>(data: &'a mut Data, key: &[u8], now: u64) -> Result<Option<&'a SortedSet>, Failure> {
    Ok(data.keys().read::<SortedSet>(key, now)?.map(|set| &*set))
}

fn zscore(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let score = read(data, args[0], now)?.and_then(|set| set.score(args[1]));
    Ok(text_or_null(score.map(float_text)))
}

fn zcard(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    Ok(number(read(data, args[0], now)?.map_or(0, SortedSet::len)))
}

fn zrank(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let rank = read(data, args[0], now)?.and_then(|set| set.rank(args[1]));
    Ok(rank.map_or(Frame::Null, number))
}

fn zcount(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let scores = Scores::read(args[1], args[2])?;
    let set = read(data, args[0], now)?;
    Ok(number(set.map_or(0, |set| scores.within(set).len())))
}

fn range(data: &mut Data, args: &[&[u8]], now: u64, by_score: bool) -> Outcome {
    let selection = Selection::read(&args[1..], by_score)?;
    let set = read(data, args[0], now)?;
    let members = set.map_or(&[][..], |set| set.slice(selection.within(set)));
    let mut members: Vec<&Member> = members.iter().collect();
    if selection.reversed {
        members.reverse();
    }
    let flat = members.into_iter().map(Member::flat);
    let parts = if selection.with_scores { 2 } else { 1 };
    Ok(texts(
        flat.flat_map(|member| member.into_iter().take(parts)),
    ))
}

/// The options of `ZADD`.
#[derive(Debug, Default, Clone, Copy)]
struct Options {
    if_absent: bool,
    if_present: bool,
    if_greater: bool,
    if_less: bool,
    count_changes: bool,
    increment: bool,
}

impl Options {
    /// Reads the options. Returns the remaining arguments.
    fn read<'a, 'b>(args: &'a [&'b [u8]]) -> Result<(Self, &'a [&'b [u8]]), Failure> {
        let mut read = Self::default();
        let mut rest = args;
        while let [word, behind @ ..] = rest {
            match &word.to_ascii_uppercase()[..] {
                b"NX" => read.if_absent = true,
                b"XX" => read.if_present = true,
                b"GT" => read.if_greater = true,
                b"LT" => read.if_less = true,
                b"CH" => read.count_changes = true,
                b"INCR" => read.increment = true,
                _ => break,
            }
            rest = behind;
        }
        if rest.is_empty() || !rest.len().is_multiple_of(2) {
            return Err(SYNTAX.into());
        }
        read.check(rest.len() / 2)?;
        Ok((read, rest))
    }

    fn check(self, pairs: usize) -> Result<(), Failure> {
        if self.if_absent && self.if_present {
            return Err("ERR XX and NX options at the same time are not compatible".into());
        }
        let compares = [self.if_greater, self.if_less, self.if_absent];
        if compares.into_iter().filter(|set| *set).count() > 1 {
            return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
        }
        if self.increment && pairs > 1 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        Ok(())
    }

    /// The new score of a member; `None` if it stays unchanged.
    fn score(self, present: Option<f64>, given: f64) -> Result<Option<f64>, Failure> {
        let Some(present) = present else {
            return Ok((!self.if_present).then_some(given));
        };
        if self.if_absent {
            return Ok(None);
        }
        let score = if self.increment {
            present + given
        } else {
            given
        };
        if score.is_nan() {
            return Err("ERR resulting score is not a number (NaN)".into());
        }
        let refused = self.if_greater && score <= present || self.if_less && score >= present;
        Ok((!refused).then_some(score))
    }
}

fn zadd(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let (options, pairs) = Options::read(&args[1..])?;
    let pairs = pairs.chunks_exact(2);
    let pairs: Vec<(f64, &[u8])> = pairs
        .map(|pair| Ok((parse_float(pair[0])?, pair[1])))
        .collect::<Result<_, Failure>>()?;
    add(data, args[0], &pairs, options, now)
}

fn zincrby(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let by = parse_float(args[1])?;
    let options = Options {
        increment: true,
        ..Options::default()
    };
    add(data, args[0], &[(by, args[2])], options, now)
}

fn add(data: &mut Data, key: &[u8], pairs: &[(f64, &[u8])], options: Options, now: u64) -> Outcome {
    let keys = data.keys();
    if options.if_present && keys.read::<SortedSet>(key, now)?.is_none() {
        return Ok(if options.increment {
            Frame::Null
        } else {
            number(0)
        });
    }
    let set = keys.make::<SortedSet>(key, now)?;
    let (mut added, mut changed, mut last) = (0, 0, None);
    for (given, name) in pairs {
        let present = set.score(name);
        last = options.score(present, *given)?;
        let Some(score) = last else { continue };
        if present.is_none() {
            added += 1;
            set.insert(name, score);
        } else if present != Some(score) {
            changed += 1;
            set.insert(name, score);
        }
    }
    Ok(if options.increment {
        text_or_null(last.map(float_text))
    } else if options.count_changes {
        number(added + changed)
    } else {
        number(added)
    })
}

fn zrem(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let names = args[1..].iter();
    let removed = data.keys().change(args[0], now, |set: &mut SortedSet| {
        names.filter(|name| set.remove(name)).count()
    });
    Ok(number(removed?))
}

fn zremrangebyscore(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let scores = Scores::read(args[1], args[2])?;
    let removed = data.keys().change(args[0], now, |set: &mut SortedSet| {
        set.remove_range(scores.within(set))
    });
    Ok(number(removed?))
}
