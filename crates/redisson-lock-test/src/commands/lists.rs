//! Lists.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    super::{
        Failure, Outcome,
        command::{Command, DENY_OOM, WRITE},
        data::Data,
        number::{integer, parse_integer},
    },
    Frame, SYNTAX, index_range, number, text_or_null, texts,
};

type List = VecDeque<Bytes>;

pub(crate) const COMMANDS: &[Command] = &[
    Command::data("llen", 2, 0, llen),
    Command::data("lindex", 3, 0, lindex),
    Command::data("lrange", 4, 0, lrange),
    Command::data("lpos", -3, 0, lpos),
    Command::data("lpush", -3, WRITE | DENY_OOM, |data, args, now| {
        push(data, args, now, List::push_front)
    }),
    Command::data("rpush", -3, WRITE | DENY_OOM, |data, args, now| {
        push(data, args, now, List::push_back)
    }),
    Command::data("lpop", -2, WRITE, |data, args, now| {
        pop(data, args, now, List::pop_front, "lpop")
    }),
    Command::data("rpop", -2, WRITE, |data, args, now| {
        pop(data, args, now, List::pop_back, "rpop")
    }),
    Command::data("lrem", 4, WRITE, lrem),
];

fn read<'a>(data: &'a mut Data, key: &[u8], now: u64) -> Result<Option<&'a List>, Failure> {
    Ok(data.keys().read::<List>(key, now)?.map(|list| &*list))
}

fn llen(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    Ok(number(read(data, args[0], now)?.map_or(0, List::len)))
}

fn lindex(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let Some(list) = read(data, args[0], now)? else {
        return Ok(Frame::Null);
    };
    let index = parse_integer(args[1])?;
    let range = index_range(index, index, list.len());
    let beyond = index >= 0 && range.is_empty();
    Ok(text_or_null(
        list.range(range).next().filter(|_| !beyond).cloned(),
    ))
}

fn lrange(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let (start, stop) = (parse_integer(args[1])?, parse_integer(args[2])?);
    let Some(list) = read(data, args[0], now)? else {
        return Ok(Frame::List(Vec::new()));
    };
    let range = index_range(start, stop, list.len());
    Ok(texts(list.range(range).cloned()))
}

/// The options of `LPOS`.
#[derive(Debug)]
struct Search {
    rank: i64,
    count: Option<usize>,
    most_compared: usize,
}

impl Search {
    fn read(options: &[&[u8]]) -> Result<Self, Failure> {
        let mut read = Self {
            rank: 1,
            count: None,
            most_compared: usize::MAX,
        };
        for option in options.chunks(2) {
            let given = option.get(1).copied();
            match (&option[0].to_ascii_uppercase()[..], given) {
                (b"RANK", Some(given)) => read.rank = Self::rank(given)?,
                (b"COUNT", Some(given)) => {
                    read.count = Some(Self::natural(given, "ERR COUNT can't be negative")?);
                }
                (b"MAXLEN", Some(given)) => {
                    read.most_compared = Self::natural(given, "ERR MAXLEN can't be negative")?;
                }
                _ => return Err(SYNTAX.into()),
            }
        }
        Ok(read)
    }

    fn rank(given: &[u8]) -> Result<i64, Failure> {
        match parse_integer(given)? {
            0 => Err("ERR RANK can't be zero: use 1 to start from the first match, 2 from the second \
                ... or use negative to start from the end of the list"
                .into()),
            i64::MIN => Err("ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807".into()),
            rank => Ok(rank),
        }
    }

    /// Zero means all.
    fn natural(given: &[u8], refusal: &'static str) -> Result<usize, Failure> {
        match integer(given).map(usize::try_from) {
            Some(Ok(0)) => Ok(usize::MAX),
            Some(Ok(number)) => Ok(number),
            _ => Err(refusal.into()),
        }
    }

    fn positions(&self, list: &List, element: &[u8]) -> Vec<i64> {
        let count = self.count.unwrap_or(1);
        let skipped = usize::try_from(self.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        let all: Box<dyn Iterator<Item = (usize, &Bytes)>> = if self.rank < 0 {
            Box::new(list.iter().enumerate().rev())
        } else {
            Box::new(list.iter().enumerate())
        };
        all.take(self.most_compared)
            .filter(|(_, candidate)| candidate[..] == *element)
            .skip(skipped)
            .take(count)
            .map(|(position, _)| position as i64)
            .collect()
    }
}

fn lpos(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let search = Search::read(&args[2..])?;
    let list = read(data, args[0], now)?;
    let positions = list.map_or_else(Vec::new, |list| search.positions(list, args[1]));
    let mut positions = positions.into_iter().map(Frame::Number);
    Ok(match search.count {
        Some(_) => Frame::List(positions.collect()),
        None => positions.next().unwrap_or(Frame::Null),
    })
}

fn push(data: &mut Data, args: &[&[u8]], now: u64, push: fn(&mut List, Bytes)) -> Outcome {
    let list = data.keys().make::<List>(args[0], now)?;
    for element in &args[1..] {
        push(list, Bytes::copy_from_slice(element));
    }
    Ok(number(list.len()))
}

fn pop(
    data: &mut Data,
    args: &[&[u8]],
    now: u64,
    pop: fn(&mut List) -> Option<Bytes>,
    name: &str,
) -> Outcome {
    let count = match &args[1..] {
        [] => None,
        [count] => match integer(count).map(usize::try_from) {
            Some(Ok(count)) => Some(count),
            _ => return Err("ERR value is out of range, must be positive".into()),
        },
        _ => return Err(format!("ERR wrong number of arguments for '{name}' command").into()),
    };
    let taken = data.keys().change(args[0], now, |list: &mut List| {
        let taken = std::iter::from_fn(|| pop(list)).take(count.unwrap_or(1));
        Some(taken.map(Frame::Text).collect::<Vec<_>>())
    })?;
    Ok(match (taken, count) {
        (None, _) => Frame::Null,
        (Some(taken), Some(_)) => Frame::List(taken),
        (Some(taken), None) => taken.into_iter().next().unwrap_or(Frame::Null),
    })
}

/// Removes up to `count` equal elements: from the front, from the back if it is negative, all if it is zero.
fn lrem(data: &mut Data, args: &[&[u8]], now: u64) -> Outcome {
    let count = parse_integer(args[1])?;
    let most = match count {
        0 => usize::MAX,
        _ => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
    };
    let removed = data.keys().change(args[0], now, |list: &mut List| {
        let equal = |(_, element): &(usize, &Bytes)| element[..] == *args[2];
        let all = list.iter().enumerate().filter(equal);
        let positions = all.map(|(position, _)| position);
        let mut positions: Vec<usize> = if count < 0 {
            positions.rev().take(most).collect()
        } else {
            positions.take(most).collect()
        };
        // From the back, so that earlier positions stay valid.
        positions.sort_unstable_by(|a, b| b.cmp(a));
        positions
            .iter()
            .map(|position| list.remove(*position))
            .count()
    });
    Ok(number(removed?))
}
