//! Both sides of a read-write lock.

use bytes::Bytes;

use crate::{
    ABSENT, DONE, Reply, Server, Step, busy,
    exclusive::{NOT_READ_WRITE, freed, has_earlier, refused, renewed, state},
    keys::{GONE, Keys},
    scripts::{integer, is_free, joined, named, number, prolong, shorten, text},
    wrong_kind,
};

/// The most markers of one owner that a script reads.
const MOST_HOLDS: i64 = 1000;

const MODE: Bytes = Bytes::from_static(b"mode");
const READ: Bytes = Bytes::from_static(b"read");
const WRITE: Bytes = Bytes::from_static(b"write");
const ONE: Bytes = Bytes::from_static(b"1");

/// The markers of a reader's holds.
struct Markers<'a> {
    base: &'a Bytes,
    owner: &'a Bytes,
}

impl Markers<'_> {
    fn of(&self, hold: &[u8]) -> Bytes {
        joined(&[self.base, b":", self.owner, b":rwlock_timeout:", hold])
    }

    /// The markers of the holds from number `first` to `last`.
    fn range(&self, first: i64, last: f64) -> impl Iterator<Item = Bytes> {
        let last = (last as i64).min(MOST_HOLDS);
        (first..=last).map(|hold| self.of(&text(hold)))
    }

    /// The longest remaining lease of these holds; [`GONE`] if all have ended.
    fn longest(&self, keys: &mut Keys, first: i64, last: f64) -> i64 {
        let left = self.range(first, last).map(|marker| keys.pttl(&marker));
        left.max().unwrap_or(GONE)
    }

    fn remove(&self, keys: &mut Keys, first: i64, last: f64) {
        self.range(first, last).for_each(|marker| keys.del(&marker));
    }
}

/// The longest remaining lease of the readers but `except`. One with two thirds of `most` counts as `most`.
fn longest_of_others(
    keys: &mut Keys,
    lock: &Bytes,
    base: &Bytes,
    except: &Bytes,
    most: i64,
) -> Step<i64> {
    let mut longest = GONE;
    for (owner, held) in keys.fields(lock)? {
        if owner != MODE && owner != *except && !owner.ends_with(b":write") {
            let markers = Markers {
                base,
                owner: &owner,
            };
            let held = number(&held).unwrap_or(0.0);
            longest = longest.max(markers.longest(keys, 1, held));
        }
    }
    Ok(if most > 0 && longest * 3 >= most * 2 {
        most
    } else {
        longest
    })
}

fn writer_of(owner: &Bytes) -> Bytes {
    joined(&[owner, b":write"])
}

pub(crate) fn read_acquire(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [
        lock,
        intent,
        owner,
        lease,
        holds,
        writes,
        relies,
        channel,
        base,
    ] = named(parts)?;
    let markers = Markers { base, owner };
    let keys = &mut server.keys;
    let (remaining, marker) = (keys.pttl(lock), markers.of(holds));
    if is_free(remaining) {
        let intent = keys.pttl(intent);
        if holds != "1" {
            return Ok(ABSENT);
        } else if intent > 0 {
            return Ok(busy(intent));
        }
        keys.set(&marker, ONE, Some(integer(lease)?))?;
        keys.hset(lock, &MODE, &READ)?;
        keys.hset(lock, owner, holds)?;
        keys.pexpire(lock, integer(lease)?);
        return Ok(DONE);
    }
    let writer = writer_of(owner);
    let Some(mode) = keys.hget(lock, &MODE)? else {
        return Ok(wrong_kind(NOT_READ_WRITE));
    };
    let held = keys
        .hget(lock, owner)?
        .map_or(Some(0.0), |held| number(&held));
    let is_writer = keys.hget(lock, &writer)?.is_some();
    let wanted = integer(holds)?;
    let is_new = relies == "0" && held.is_some_and(|held| held < wanted as f64);
    let intent = keys.pttl(intent);
    if is_new && !is_writer && intent > 0 {
        return Ok(busy(intent));
    }
    if !has_earlier(held, holds)? || !(mode == READ || is_writer) {
        return Ok(refused(holds, remaining));
    }
    let held = held.unwrap_or(0.0);
    let longest = markers.longest(keys, wanted, held);
    keys.set(&marker, ONE, Some(longest.max(integer(lease)?)))?;
    if is_writer && writes == "0" {
        server.publish(channel, "1");
        server.keys.hdel(lock, &writer)?;
        server.keys.hset(lock, &MODE, &READ)?;
    }
    let keys = &mut server.keys;
    markers.remove(keys, wanted + 1, held);
    prolong(keys, lock, integer(lease)?, remaining);
    keys.hset(lock, owner, holds)?;
    Ok(DONE)
}

pub(crate) fn read_release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, holds, lease, channel, base] = named(parts)?;
    let (markers, wanted) = (Markers { base, owner }, integer(holds)?);
    let keys = &mut server.keys;
    let (mode, held) = (keys.hget(lock, &MODE)?, keys.hget(lock, owner)?);
    let held = held
        .and_then(|held| number(&held))
        .filter(|held| *held >= wanted as f64);
    let (Some(mode), Some(held)) = (mode, held) else {
        return Ok(ABSENT);
    };
    let writes = mode == WRITE;
    let remaining = keys.pttl(lock);
    let others = longest_of_others(keys, lock, base, owner, remaining)?;
    if wanted == 0 && !writes && others <= 0 {
        let listeners = server.publish(channel, "0");
        server.keys.del(lock);
        server.keys.del(&markers.of(b"1"));
        markers.remove(&mut server.keys, 2, held);
        return Ok(freed(listeners));
    }
    if wanted > 0 && lease != "0" {
        let lease = integer(lease)?;
        for hold in 1..=wanted {
            let marker = markers.of(&text(hold));
            if !keys.pexpire(&marker, lease) {
                keys.set(&marker, ONE, Some(lease))?;
            }
        }
    }
    markers.remove(keys, wanted + 1, held);
    let mut longest = others;
    if wanted == 0 {
        keys.hdel(lock, owner)?;
    } else {
        // A refusal leaves the count too high.
        let _ = keys.hset(lock, owner, holds);
        longest = longest.max(markers.longest(keys, 1, wanted as f64));
    }
    if longest > 0 && longest != remaining && (!writes || longest > remaining) {
        keys.pexpire(lock, longest);
        if longest * 3 < remaining * 2 {
            server.publish(channel, "0");
        }
    }
    Ok(DONE)
}

pub(crate) fn read_renew(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, lease, base] = named(parts)?;
    let keys = &mut server.keys;
    let (mode, held) = (keys.hget(lock, &MODE)?, keys.hget(lock, owner)?);
    let held = held
        .filter(|_| mode.is_some())
        .and_then(|held| number(&held));
    let Some(held) = held else {
        return Ok(ABSENT);
    };
    let mut is_alive = false;
    for marker in (Markers { base, owner }).range(1, held) {
        let left = keys.pttl(&marker);
        is_alive |= left != GONE;
        if left != GONE && lease != "0" {
            prolong(keys, &marker, integer(lease)?, left);
        }
    }
    match is_alive {
        true => renewed(keys, lock, lease),
        false => Ok(ABSENT),
    }
}

/// Frees a lock of one mode.
fn forced(server: &mut Server, parts: &[Bytes], of: &Bytes, payload: &'static str) -> Step<Reply> {
    let [lock, channel] = named(parts)?;
    let mode = server.keys.hget(lock, &MODE)?;
    if mode.is_none() && server.keys.exists(lock) {
        return Ok(wrong_kind(NOT_READ_WRITE));
    }
    if mode.as_ref() != Some(of) {
        return Ok(ABSENT);
    }
    server.publish(channel, payload);
    server.keys.del(lock);
    Ok(DONE)
}

pub(crate) fn read_force_release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    forced(server, parts, &READ, "0")
}

pub(crate) fn write_force_release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    forced(server, parts, &WRITE, "1")
}

pub(crate) fn read_inspect(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner] = named(parts)?;
    let keys = &mut server.keys;
    let (remaining, mode) = (keys.pttl(lock), keys.hget(lock, &MODE)?);
    if mode.is_none() && !is_free(remaining) {
        return Ok(wrong_kind(NOT_READ_WRITE));
    }
    // Under a writer alone there are two fields.
    let has_reader = mode == Some(READ) || keys.fields(lock)?.len() > 2;
    let held = keys.hget(lock, owner)?;
    Ok(state(if has_reader { remaining } else { GONE }, held))
}

pub(crate) fn write_inspect(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner] = named(parts)?;
    let keys = &mut server.keys;
    let (remaining, mode) = (keys.pttl(lock), keys.hget(lock, &MODE)?);
    if mode.is_none() && !is_free(remaining) {
        return Ok(wrong_kind(NOT_READ_WRITE));
    }
    let held = keys.hget(lock, &writer_of(owner))?;
    Ok(state(
        if mode == Some(WRITE) { remaining } else { GONE },
        held,
    ))
}

pub(crate) fn write_acquire(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, intent, owner, lease, holds, intends] = named(parts)?;
    let (keys, writer) = (&mut server.keys, writer_of(owner));
    let remaining = keys.pttl(lock);
    if is_free(remaining) {
        if holds != "1" {
            return Ok(ABSENT);
        }
        keys.hset(lock, &MODE, &WRITE)?;
        keys.hset(lock, &writer, holds)?;
        keys.pexpire(lock, integer(lease)?);
        if intends == "1" {
            keys.del(intent);
        }
        return Ok(DONE);
    }
    let held = keys.hget(lock, &writer)?;
    let Some(mode) = keys.hget(lock, &MODE)? else {
        return Ok(wrong_kind(NOT_READ_WRITE));
    };
    if mode != WRITE || !has_earlier(held.and_then(|held| number(&held)), holds)? {
        return Ok(refused(holds, remaining));
    }
    prolong(keys, lock, integer(lease)?, remaining);
    keys.hset(lock, &writer, holds)?;
    Ok(DONE)
}

/// The owner's count of write holds, if the lock is a writer's.
fn written(keys: &mut Keys, lock: &Bytes, writer: &Bytes) -> Step<Option<Bytes>> {
    let held = keys.hget(lock, writer)?;
    let writes = keys.hget(lock, &MODE)? == Some(WRITE);
    Ok(held.filter(|_| writes))
}

pub(crate) fn write_release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, holds, lease, channel, base] = named(parts)?;
    let (keys, writer, wanted) = (&mut server.keys, writer_of(owner), integer(holds)?);
    let held = written(keys, lock, &writer)?.and_then(|held| number(&held));
    if held.is_none_or(|held| held < wanted as f64) {
        return Ok(ABSENT);
    }
    let longest = longest_of_others(keys, lock, base, &writer, 0)?;
    if wanted > 0 {
        if lease != "0" {
            // The owner's own read holds need the longer expiry.
            shorten(
                server,
                lock,
                integer(lease)?.max(longest),
                Some((channel, "1")),
            );
        }
        let _ = server.keys.hset(lock, &writer, holds);
        return Ok(DONE);
    }
    let listeners = server.publish(channel, "1");
    let keys = &mut server.keys;
    if longest <= 0 {
        keys.del(lock);
        return Ok(freed(listeners));
    }
    keys.hdel(lock, &writer)?;
    keys.hset(lock, &MODE, &READ)?;
    keys.pexpire(lock, longest);
    Ok(DONE)
}

pub(crate) fn write_keep(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, kept, lease, channel] = named(parts)?;
    let writer = writer_of(owner);
    if written(&mut server.keys, lock, &writer)?.is_none() {
        return Ok(ABSENT);
    }
    let reads = server.keys.fields(lock)?.len() > 2;
    let least = if reads { server.keys.pttl(lock) } else { 0 };
    server.publish(channel, "1");
    let keys = &mut server.keys;
    keys.pexpire(lock, integer(lease)?.max(least));
    keys.hset(lock, &writer_of(kept), &ONE)?;
    keys.hdel(lock, &writer)?;
    Ok(DONE)
}

pub(crate) fn write_renew(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, lease] = named(parts)?;
    match written(&mut server.keys, lock, &writer_of(owner))? {
        Some(_) => renewed(&mut server.keys, lock, lease),
        None => Ok(ABSENT),
    }
}

pub(crate) fn intend(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, intent, rest, length] = named(parts)?;
    let keys = &mut server.keys;
    if length == "0" {
        keys.del(intent);
        return Ok(DONE);
    }
    let Some(mode) = keys.hget(lock, &MODE)? else {
        return Ok(ABSENT);
    };
    if mode != READ {
        return Ok(busy(-1));
    }
    let length = integer(length)?;
    if !keys.set_new(rest, ONE, 5 * length)? {
        return Ok(busy(keys.pttl(rest)));
    }
    keys.set(intent, ONE, Some(length))?;
    Ok(DONE)
}
