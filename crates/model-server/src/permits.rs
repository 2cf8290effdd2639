//! Expirable semaphores. Ends are of the server's clock.

use bytes::Bytes;

use crate::{
    ABSENT, DONE, Detail, Reply, Server, Step, done,
    keys::Keys,
    numbers::{Attempt, left_at},
    scripts::{integer, named, text},
};

/// The number of bytes of a permit's id.
const ID: usize = 16;
/// The end of a permit without an end.
const NO_END: i64 = 922_337_203_685_477;
/// The most ended permits that one call takes back.
const MOST_ENDED: usize = 1000;

fn each(ids: &Bytes) -> Vec<Bytes> {
    let starts = (0..ids.len()).step_by(ID);
    starts
        .map(|at| ids.slice(at..ids.len().min(at + ID)))
        .collect()
}

fn end_after(now: i64, lease: &Bytes) -> Step<i64> {
    let lease = integer(lease)?;
    Ok(if lease < 0 { NO_END } else { now + lease })
}

/// The remaining ms, -1 for no end.
fn left_until(score: f64, now: i64) -> i64 {
    match score >= NO_END as f64 {
        true => -1,
        false => (score - now as f64) as i64,
    }
}

/// Makes acquired permits available again, all or none.
fn give_back(keys: &mut Keys, semaphore: &Bytes, ends: &Bytes, ids: &[Bytes]) -> Step<()> {
    for id in ids {
        keys.zrem(ends, id)?;
    }
    let added = keys.add(semaphore, ids.len() as i64).map(drop);
    if added.is_err() {
        for id in ids {
            keys.zadd(ends, 0.0, id)?;
        }
        let remaining = keys.pttl(semaphore);
        if remaining > 0 {
            keys.pexpire(ends, remaining);
        }
    }
    added
}

/// Takes back ended permits.
fn reclaim_ended(
    server: &mut Server,
    semaphore: &Bytes,
    ends: &Bytes,
    channel: &Bytes,
) -> Step<()> {
    let keys = &mut server.keys;
    let now = keys.now() as f64;
    let set = keys.sorted(ends)?.iter();
    let ended = set.filter(|(end, _)| (0.0..=now).contains(end));
    let ended: Vec<Bytes> = ended.take(MOST_ENDED).map(|(_, id)| id.clone()).collect();
    if ended.is_empty() {
        return Ok(());
    }
    let left = left_at(keys, semaphore)?.unwrap_or(0) + ended.len() as i64;
    if left > 0 {
        server.publish(channel, text(left));
    }
    give_back(&mut server.keys, semaphore, ends, &ended)
}

pub(crate) fn acquire(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [semaphore, ends, ids, lease, channel] = named(parts)?;
    reclaim_ended(server, semaphore, ends, channel)?;
    let keys = &mut server.keys;
    let (now, ids, wanted) = (keys.now(), each(ids), (ids.len() / ID) as i64);
    let mut left = left_at(keys, semaphore)?;
    let first = ids.first().cloned().unwrap_or_default();
    let mut is_granted = keys.zscore(ends, &first)?.is_some();
    let mut nearest = keys.sorted(ends)?.first().map(|(end, _)| *end);
    let remaining = keys.pttl(semaphore);
    if !is_granted && left.is_some_and(|left| left >= wanted) {
        let end = end_after(now, lease)?;
        let taken = take(keys, semaphore, ends, (&ids, end), remaining);
        if taken.is_err() {
            for id in &ids {
                keys.zrem(ends, id)?;
            }
        }
        let taken = taken?;
        nearest = Some(nearest.unwrap_or(end as f64).min(end as f64));
        (is_granted, left) = (true, Some(taken));
    }
    let acquired = keys.sorted(ends)?.len() as i64;
    let in_all = match is_granted {
        true => 0,
        false => left.map_or(-1, |left| left + acquired),
    };
    let nearest = nearest.map_or(-1, |end| left_until(end, now));
    let numbers = [is_granted.into(), left.unwrap_or(0), nearest, in_all];
    Ok(done(Detail::Numbers(numbers.into())))
}

fn take(
    keys: &mut Keys,
    semaphore: &Bytes,
    ends: &Bytes,
    (ids, end): (&[Bytes], i64),
    remaining: i64,
) -> Step<i64> {
    for id in ids {
        keys.zadd(ends, end as f64, id)?;
    }
    if remaining > 0 {
        keys.pexpire(ends, remaining);
    }
    keys.add(semaphore, -(ids.len() as i64))
}

pub(crate) fn release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [semaphore, attempt, ends, ids, channel, number, lasts] = named(parts)?;
    let (attempt, keys) = (Attempt::of(attempt, number, lasts)?, &mut server.keys);
    match attempt.earlier(keys)? {
        Some(1) => return Ok(DONE),
        Some(_) => return Ok(ABSENT),
        None => {}
    }
    let (now, mut held, mut ended) = (keys.now() as f64, Vec::new(), Vec::new());
    for id in each(ids) {
        match keys.zscore(ends, &id)? {
            None => return Ok(ABSENT),
            Some(end) if end > now => held.push(id),
            Some(_) => ended.push(id),
        }
    }
    let is_whole = ended.is_empty();
    let back = if is_whole { held } else { ended };
    let left = left_at(keys, semaphore)?.unwrap_or(0) + back.len() as i64;
    attempt.begin(keys);
    if left > 0 {
        server.publish(channel, text(left));
    }
    let keys = &mut server.keys;
    attempt.store(keys, is_whole.into())?;
    give_back(keys, semaphore, ends, &back)?;
    Ok(if is_whole { DONE } else { ABSENT })
}

pub(crate) fn extend(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [ends, id, lease] = named(parts)?;
    let keys = &mut server.keys;
    let now = keys.now();
    let end = keys.zscore(ends, id)?;
    if end.is_none_or(|end| end <= now as f64) {
        return Ok(ABSENT);
    }
    // A full server refuses ZADD as the first write only.
    keys.zrem(ends, b"")?;
    keys.zadd(ends, end_after(now, lease)? as f64, id)?;
    Ok(DONE)
}

pub(crate) fn left(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [ends, id] = named(parts)?;
    let now = server.keys.now();
    let left = server
        .keys
        .zscore(ends, id)?
        .map(|end| left_until(end, now));
    let left = left.filter(|left| *left == -1 || *left > 0);
    Ok(left.map_or(ABSENT, |left| done(Detail::Number(left))))
}

pub(crate) fn count(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [semaphore, ends, channel] = named(parts)?;
    reclaim_ended(server, semaphore, ends, channel)?;
    let left = left_at(&mut server.keys, semaphore)?;
    let acquired = server.keys.sorted(ends)?.len() as i64;
    let numbers = [left.is_some().into(), left.unwrap_or(0), acquired];
    Ok(done(Detail::Numbers(numbers.into())))
}

pub(crate) fn set(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [semaphore, ends, permits, channel] = named(parts)?;
    let (keys, permits) = (&mut server.keys, integer(permits)?);
    let before = left_at(keys, semaphore)?;
    let acquired = match before {
        Some(_) => keys.sorted(ends)?.len() as i64,
        None => 0,
    };
    let left = permits - acquired;
    if before != Some(left) {
        if left > 0 {
            server.publish(channel, text(left));
        }
        server.keys.set_kept(semaphore, text(left))?;
    }
    Ok(done(Detail::Number(left)))
}
