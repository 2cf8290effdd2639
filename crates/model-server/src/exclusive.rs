//! Reentrant, spin and fenced locks, elections, and [`simple`] locks.

pub(crate) mod simple;

use bytes::Bytes;

use crate::{
    ABSENT, DONE, Detail, Reply, Server, Step, busy, done,
    keys::Keys,
    scripts::{integer, is_free, joined, named, number, prolong, shorten, shown, text},
    wrong_kind,
};

pub(crate) const READ_WRITE: &str = "a read-write lock";
pub(crate) const NOT_READ_WRITE: &str = "a lock without readers and writers";
/// The most holders in a reply.
const MOST_LISTED: usize = 1000;
/// The most markers that one list of holders reads.
const MOST_MARKERS: f64 = 10_000.0;
/// Lua's numbers are exact up to this one.
pub(crate) const MOST: i64 = 1 << 53;

/// The owner's field, if the hash is no read-write lock.
pub(crate) fn field(keys: &mut Keys, lock: &[u8], owner: &[u8]) -> Step<Option<Bytes>> {
    let field = keys.hget(lock, owner)?;
    Ok(match keys.hget(lock, b"mode")? {
        Some(_) => None,
        None => field,
    })
}

/// Adds a hold to those of its owner, or answers for a lock that has another one.
pub(crate) fn refused(holds: &Bytes, remaining: i64) -> Reply {
    match holds == "1" {
        true => busy(remaining),
        false => ABSENT,
    }
}

/// Whether a request for `holds` holds finds the earlier ones, or itself.
pub(crate) fn has_earlier(held: Option<f64>, holds: &Bytes) -> Step<bool> {
    let earlier = integer(holds)? as f64 - 1.0;
    Ok(held.is_some_and(|held| held >= earlier))
}

pub(crate) fn acquire(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, lease, holds] = named(parts)?;
    granted(&mut server.keys, lock, None, (owner, lease, holds))
}

pub(crate) fn fenced_acquire(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, counter, owner, lease, holds] = named(parts)?;
    granted(&mut server.keys, lock, Some(counter), (owner, lease, holds))
}

fn granted(
    keys: &mut Keys,
    lock: &Bytes,
    counter: Option<&Bytes>,
    (owner, lease, holds): (&Bytes, &Bytes, &Bytes),
) -> Step<Reply> {
    let remaining = keys.pttl(lock);
    let token = |keys: &mut Keys| counter.map_or(Ok(Detail::Nothing), |key| next_token(keys, key));
    if is_free(remaining) {
        if holds != "1" {
            return Ok(ABSENT);
        }
        let token = token(keys)?;
        if let Some(counter) = counter {
            keys.persist(counter);
        }
        keys.hset(lock, owner, holds)?;
        keys.pexpire(lock, integer(lease)?);
        return Ok(done(token));
    }
    let held = keys.hget(lock, owner)?;
    if keys.hget(lock, b"mode")?.is_some() {
        return Ok(wrong_kind(READ_WRITE));
    }
    if !has_earlier(held.and_then(|held| number(&held)), holds)? {
        return Ok(refused(holds, remaining));
    }
    let token = token(keys)?;
    prolong(keys, lock, integer(lease)?, remaining);
    keys.hset(lock, owner, holds)?;
    Ok(done(token))
}

fn next_token(keys: &mut Keys, counter: &Bytes) -> Step<Detail> {
    let token = keys.add(counter, 1)?;
    Ok(match token < MOST {
        true => Detail::Number(token),
        false => Detail::Text(text(token)),
    })
}

pub(crate) fn release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, holds, lease, channel] = named(parts)?;
    let Some(held) = field(&mut server.keys, lock, owner)? else {
        return Ok(ABSENT);
    };
    if holds == "0" {
        let listeners = server.publish(channel, "0");
        server.keys.del(lock);
        return Ok(freed(listeners));
    }
    reduced(server, lock, (owner, &held), (holds, lease), Some(channel))
}

/// The reply of a release that frees a lock.
pub(crate) fn freed(listeners: i64) -> Reply {
    match listeners {
        0 => DONE,
        listeners => done(Detail::Number(listeners)),
    }
}

/// Releases holds of an owner that keeps some.
pub(crate) fn reduced(
    server: &mut Server,
    lock: &Bytes,
    (owner, held): (&Bytes, &Bytes),
    (holds, lease): (&Bytes, &Bytes),
    channel: Option<&Bytes>,
) -> Step<Reply> {
    let (held, left) = (number(held), integer(holds)? as f64);
    let Some(held) = held.filter(|held| *held >= left) else {
        return Ok(ABSENT);
    };
    if lease != "0" {
        let told = channel.map(|channel| (channel, "0"));
        shorten(server, lock, integer(lease)?, told);
    }
    if held > left {
        // A refusal leaves the count too high.
        let _ = server.keys.hset(lock, owner, holds);
    }
    Ok(DONE)
}

pub(crate) fn keep(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, kept, lease, channel] = named(parts)?;
    if field(&mut server.keys, lock, owner)?.is_none() {
        return Ok(ABSENT);
    }
    server.publish(channel, "0");
    kept_as(&mut server.keys, lock, owner, (kept, integer(lease)?))
}

/// Replaces the last hold of an owner by the field `kept`.
pub(crate) fn kept_as(
    keys: &mut Keys,
    lock: &Bytes,
    owner: &Bytes,
    (kept, lease): (&Bytes, i64),
) -> Step<Reply> {
    keys.pexpire(lock, lease);
    keys.hset(lock, kept, &Bytes::from_static(b"1"))?;
    keys.hdel(lock, owner)?;
    Ok(DONE)
}

pub(crate) fn renew(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, lease] = named(parts)?;
    if field(&mut server.keys, lock, owner)?.is_none() {
        return Ok(ABSENT);
    }
    renewed(&mut server.keys, lock, lease)
}

/// Renews an expiry, unless the caller only asks.
pub(crate) fn renewed(keys: &mut Keys, lock: &Bytes, lease: &Bytes) -> Step<Reply> {
    if lease != "0" {
        let remaining = keys.pttl(lock);
        prolong(keys, lock, integer(lease)?, remaining);
    }
    Ok(DONE)
}

pub(crate) fn force_release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, channel] = named(parts)?;
    if server.keys.hget(lock, b"mode")?.is_some() {
        return Ok(wrong_kind(READ_WRITE));
    }
    if !server.keys.exists(lock) {
        return Ok(ABSENT);
    }
    server.publish(channel, "0");
    server.keys.del(lock);
    Ok(DONE)
}

pub(crate) fn inspect(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner] = named(parts)?;
    let held = server.keys.hget(lock, owner)?;
    if server.keys.hget(lock, b"mode")?.is_some() {
        return Ok(wrong_kind(READ_WRITE));
    }
    Ok(state(server.keys.pttl(lock), held))
}

/// The reply of an inspection.
pub(crate) fn state(remaining: i64, held: Option<Bytes>) -> Reply {
    let held = held.and_then(|held| number(&held)).unwrap_or(0.0);
    done(Detail::Numbers(vec![remaining, held as i64]))
}

pub(crate) fn announce(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, token, identity] = named(parts)?;
    if field(&mut server.keys, lock, owner)?.is_none() {
        return Ok(ABSENT);
    }
    let leader = joined(&[owner, b" ", token, b" ", identity]);
    server
        .keys
        .hset(lock, &Bytes::from_static(b"leader"), &leader)?;
    Ok(DONE)
}

pub(crate) fn leader(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, _] = named(parts)?;
    let stored = server.keys.hget(lock, b"leader")?;
    let Some((owner, leader)) = stored.as_ref().and_then(announced) else {
        return Ok(ABSENT);
    };
    Ok(match server.keys.hget(lock, &owner)? {
        Some(_) => done(Detail::Text(leader)),
        None => ABSENT,
    })
}

/// The owner, and the token with the identity, of an announcement.
fn announced(stored: &Bytes) -> Option<(Bytes, Bytes)> {
    let at = stored.iter().position(u8::is_ascii_whitespace)?;
    let rest = stored.slice(at + 1..);
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let is_good = at > 0 && stored[at] == b' ' && digits > 0 && rest.get(digits) == Some(&b' ');
    is_good.then(|| (stored.slice(..at), rest))
}

pub(crate) fn holders(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, base] = named(parts)?;
    let keys = &mut server.keys;
    let remaining = keys.pttl(lock);
    let has_mode = keys.hget(lock, b"mode")?.is_some();
    if base.is_empty() && has_mode {
        return Ok(wrong_kind(READ_WRITE));
    }
    if !base.is_empty() && !has_mode && !is_free(remaining) {
        return Ok(wrong_kind(NOT_READ_WRITE));
    }
    let (mut lines, mut markers) = (Vec::new(), 0.0);
    for (owner, held) in keys.fields(lock)? {
        let Some(count) = number(&held).filter(|_| lines.len() < MOST_LISTED) else {
            continue;
        };
        let (mut left, count) = (remaining, count.max(0.0));
        if !base.is_empty() && !owner.ends_with(b":write") && markers + count <= MOST_MARKERS {
            markers += count;
            let ends = (1..=count as i64).map(|hold| {
                let marker = joined(&[base, b":", &owner, b":rwlock_timeout:", &text(hold)]);
                keys.pttl(&marker)
            });
            left = ends.max().unwrap_or(-2);
        }
        lines.push([format!("{left} ").as_bytes(), &held, b" ", &shown(&owner)].concat());
    }
    Ok(done(Detail::Text(lines.join(&b'\n').into())))
}
