//! Semaphores and latches.

use bytes::Bytes;

use crate::{
    ABSENT, DONE, Detail, Reply, Server, Step, Stop, busy, done,
    exclusive::MOST,
    keys::Keys,
    scripts::{integer, named, text},
    wrong_kind,
};

/// A number that makes an operation repeatable: where its result is, which attempt this is, and how long the result lasts.
pub(crate) struct Attempt<'a> {
    key: &'a Bytes,
    number: &'a Bytes,
    lasts: i64,
}

impl<'a> Attempt<'a> {
    pub(crate) fn of(key: &'a Bytes, number: &'a Bytes, lasts: &Bytes) -> Step<Self> {
        let lasts = integer(lasts)?;
        Ok(Self { key, number, lasts })
    }

    /// The result of an earlier sending.
    pub(crate) fn earlier(&self, keys: &mut Keys) -> Step<Option<i64>> {
        let stored = keys.text(self.key)?.unwrap_or_default();
        let stored = str::from_utf8(&stored)
            .ok()
            .and_then(|text| text.split_once(' '));
        let Some((number, result)) = stored else {
            return Ok(None);
        };
        let (Ok(of), Ok(result)) = (number.parse::<i64>(), result.parse()) else {
            return Ok(None);
        };
        if of < integer(self.number)? {
            return Ok(None);
        }
        match number.as_bytes() == self.number {
            true => Ok(Some(result)),
            false => Err(Stop::Failed(
                "a later attempt has used this key: no caller waits for this one",
            )),
        }
    }

    pub(crate) fn store(&self, keys: &mut Keys, result: i64) -> Step<()> {
        let stored = joined(self.number, result);
        keys.set(self.key, stored, Some(self.lasts))
    }

    /// The first write of a release: a full server then refuses no later one.
    pub(crate) fn begin(&self, keys: &mut Keys) {
        keys.pexpire(self.key, self.lasts);
    }

    /// Changes the number. A refusal removes the result.
    fn change(&self, keys: &mut Keys, change: impl FnOnce(&mut Keys) -> Step<()>) -> Step<()> {
        let changed = change(keys);
        if changed.is_err() {
            keys.pexpire(self.key, 0);
        }
        changed
    }
}

fn joined(number: &Bytes, result: i64) -> Bytes {
    [number, &b" "[..], result.to_string().as_bytes()]
        .concat()
        .into()
}

/// The number at a key and its text. A text with which Redis cannot count is of another type.
pub(crate) fn number_at(keys: &mut Keys, key: &Bytes) -> Step<Option<(i64, Bytes)>> {
    let Some(stored) = keys.text(key)? else {
        return Ok(None);
    };
    let digits = stored.strip_prefix(b"-").unwrap_or(&stored);
    let is_number = stored == "0" || digits.first() != Some(&b'0') && !digits.is_empty();
    let is_number = is_number && digits.iter().all(u8::is_ascii_digit);
    let is_number = is_number
        && (digits.len() < 19 || digits.len() == 19 && digits <= &b"9223372036854775807"[..]);
    let number = str::from_utf8(&stored)
        .ok()
        .and_then(|text| text.parse::<i64>().ok());
    match number.filter(|_| is_number) {
        Some(number) => Ok(Some((number.clamp(-MOST, MOST), stored))),
        None => Err(Stop::WrongType),
    }
}

pub(crate) fn left_at(keys: &mut Keys, key: &Bytes) -> Step<Option<i64>> {
    Ok(number_at(keys, key)?.map(|(number, _)| number))
}

fn of_expirable(keys: &mut Keys, ends: &Bytes) -> Option<Reply> {
    let is_other = keys.text(ends) == Err(Stop::WrongType);
    is_other.then(|| wrong_kind("an expirable semaphore"))
}

fn counted(number: i64) -> Reply {
    done(Detail::Number(number))
}

pub(crate) fn acquire(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [semaphore, attempt, ends, permits, number, lasts] = named(parts)?;
    let (attempt, permits) = (Attempt::of(attempt, number, lasts)?, integer(permits)?);
    let keys = &mut server.keys;
    if let Some(left) = attempt.earlier(keys)? {
        return Ok(counted(left));
    }
    let left = left_at(keys, semaphore)?;
    let Some(left) = left.filter(|left| *left >= permits) else {
        let absent = || left.map_or(ABSENT, busy);
        return Ok(of_expirable(keys, ends).unwrap_or_else(absent));
    };
    attempt.store(keys, left - permits)?;
    attempt.change(keys, |keys| keys.add(semaphore, -permits).map(drop))?;
    Ok(counted(left - permits))
}

pub(crate) fn release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [semaphore, attempt, permits, channel, number, lasts] = named(parts)?;
    let (attempt, permits) = (Attempt::of(attempt, number, lasts)?, integer(permits)?);
    let keys = &mut server.keys;
    if let Some(left) = attempt.earlier(keys)? {
        return Ok(counted(left));
    }
    let left = left_at(keys, semaphore)?.unwrap_or(0) + permits;
    if left.abs() >= MOST {
        return Err(Stop::Failed("that is too many permits"));
    }
    attempt.begin(keys);
    if left > 0 {
        server.publish(channel, text(left));
    }
    let keys = &mut server.keys;
    attempt.store(keys, left)?;
    attempt.change(keys, |keys| keys.add(semaphore, permits).map(drop))?;
    Ok(counted(left))
}

pub(crate) fn drain(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [semaphore, attempt, number, lasts] = named(parts)?;
    let (attempt, keys) = (Attempt::of(attempt, number, lasts)?, &mut server.keys);
    if let Some(left) = attempt.earlier(keys)? {
        return Ok(counted(left));
    }
    let Some(left) = left_at(keys, semaphore)? else {
        return Ok(counted(0));
    };
    attempt.store(keys, left)?;
    attempt.change(keys, |keys| keys.set_kept(semaphore, text(0)))?;
    Ok(counted(left))
}

pub(crate) fn begin(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [
        key,
        attempt,
        ends,
        expirable,
        value,
        channel,
        message,
        number,
        lasts,
    ] = named(parts)?;
    let (attempt, keys) = (Attempt::of(attempt, number, lasts)?, &mut server.keys);
    if attempt.earlier(keys)?.is_some() {
        return Ok(DONE);
    }
    if number_at(keys, key)?.is_some() {
        let other = (expirable == "0")
            .then(|| of_expirable(keys, ends))
            .flatten();
        return Ok(other.unwrap_or(ABSENT));
    }
    attempt.store(keys, 1)?;
    server.publish(channel, message.clone());
    attempt.change(&mut server.keys, |keys| keys.set(key, value.clone(), None))?;
    Ok(DONE)
}

pub(crate) fn inspect(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [key, _] = named(parts)?;
    let number = number_at(&mut server.keys, key)?;
    Ok(number.map_or(ABSENT, |(_, text)| done(Detail::Text(text))))
}

pub(crate) fn count_down(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [latch, attempt, channel, number, lasts] = named(parts)?;
    let (attempt, keys) = (Attempt::of(attempt, number, lasts)?, &mut server.keys);
    if let Some(left) = attempt.earlier(keys)? {
        return Ok(counted(left));
    }
    let Some(count) = left_at(keys, latch)? else {
        return Ok(counted(0));
    };
    let left = (count - 1).max(0);
    attempt.begin(keys);
    if count == 1 {
        server.publish(channel, "0");
    }
    let keys = &mut server.keys;
    attempt.store(keys, left)?;
    attempt.change(keys, |keys| match left {
        0 => {
            keys.del(latch);
            Ok(())
        }
        _ => keys.add(latch, -1).map(drop),
    })?;
    Ok(counted(left))
}

pub(crate) fn delete(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [latch, attempt, channel, number, lasts] = named(parts)?;
    let (attempt, keys) = (Attempt::of(attempt, number, lasts)?, &mut server.keys);
    if attempt.earlier(keys)?.is_some() {
        return Ok(DONE);
    }
    if number_at(keys, latch)?.is_none() {
        return Ok(ABSENT);
    }
    attempt.begin(keys);
    server.publish(channel, "0");
    attempt.store(&mut server.keys, 1)?;
    server.keys.del(latch);
    Ok(DONE)
}

pub(crate) fn look(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [latch, channel, mark] = named(parts)?;
    let count = left_at(&mut server.keys, latch)?.unwrap_or(0);
    if count <= 0 {
        return Ok(counted(0));
    }
    server.publish(channel, mark.clone());
    Ok(counted(count))
}
