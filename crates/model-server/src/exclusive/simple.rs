//! Locks that are one string.

use bytes::Bytes;

use super::{freed, renewed};
use crate::{
    ABSENT, DONE, Detail, Reply, Server, Step, busy, done,
    scripts::{integer, is_free, named, prolong, shown},
};

pub(crate) fn acquire(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, lease] = named(parts)?;
    let (keys, lease) = (&mut server.keys, integer(lease)?);
    let remaining = keys.pttl(lock);
    if is_free(remaining) {
        keys.set(lock, owner.clone(), Some(lease))?;
        return Ok(DONE);
    }
    if keys.text(lock)?.as_ref() != Some(owner) {
        return Ok(busy(remaining));
    }
    prolong(keys, lock, lease, remaining);
    Ok(DONE)
}

fn holds(server: &mut Server, lock: &Bytes, owner: &Bytes) -> Step<bool> {
    Ok(server.keys.text(lock)?.as_ref() == Some(owner))
}

pub(crate) fn release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, channel] = named(parts)?;
    if !holds(server, lock, owner)? {
        return Ok(ABSENT);
    }
    let listeners = server.publish(channel, "0");
    server.keys.del(lock);
    Ok(freed(listeners))
}

pub(crate) fn keep(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, kept, lease, channel] = named(parts)?;
    if !holds(server, lock, owner)? {
        return Ok(ABSENT);
    }
    server.publish(channel, "0");
    // A full server refuses SET as the first write only.
    server.keys.pexpire(lock, integer(lease)?);
    server.keys.set(lock, kept.clone(), Some(integer(lease)?))?;
    Ok(DONE)
}

pub(crate) fn renew(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner, lease] = named(parts)?;
    match holds(server, lock, owner)? {
        true => renewed(&mut server.keys, lock, lease),
        false => Ok(ABSENT),
    }
}

pub(crate) fn force_release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, channel] = named(parts)?;
    if server.keys.text(lock)?.is_none() {
        return Ok(ABSENT);
    }
    server.publish(channel, "0");
    server.keys.del(lock);
    Ok(DONE)
}

pub(crate) fn inspect(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, owner] = named(parts)?;
    let held = i64::from(holds(server, lock, owner)?);
    let remaining = server.keys.pttl(lock);
    Ok(done(Detail::Numbers(vec![remaining, held])))
}

pub(crate) fn holders(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, _] = named(parts)?;
    let Some(value) = server.keys.text(lock)? else {
        return Ok(done(Detail::Text(Bytes::new())));
    };
    let line = format!("{} 1 ", server.keys.pttl(lock));
    let line = [line.as_bytes(), &shown(&value)].concat();
    Ok(done(Detail::Text(line.into())))
}
