//! Locks with a queue.

use bytes::Bytes;

use crate::{
    ABSENT, DONE, Detail, Reply, Server, Step, Stop, busy, done,
    exclusive::{READ_WRITE, field, has_earlier, kept_as, reduced, refused},
    keys::Keys,
    scripts::{integer, is_free, joined, named, number, prolong, shown},
    wrong_kind,
};

/// The most dead heads that one call removes.
const MOST_REMOVED: usize = 1000;
/// The most waiters in a reply.
const MOST_LISTED: usize = 1000;
/// How long a notified head keeps its place, in ms.
const NOTIFIED_PLACE: f64 = 500.0;

/// The keys of a queue, and how long a place lasts.
struct Queue<'a> {
    queue: &'a Bytes,
    places: &'a Bytes,
    owner: &'a Bytes,
    place: f64,
}

/// The first waiter whose place has not ended.
struct First {
    head: Bytes,
    until: f64,
    /// A removed waiter of this crate.
    removed: Option<Bytes>,
}

/// Whether an entry is an owner of this crate, as `owner` is: they have the same length and first digits.
fn is_ours(entry: &[u8], owner: &[u8]) -> bool {
    entry.len() == owner.len() && entry.get(37..41) == owner.get(37..41)
}

fn client_of(entry: &[u8]) -> &[u8] {
    &entry[..entry.len().min(36)]
}

impl Queue<'_> {
    fn first(&self, keys: &mut Keys) -> Step<Option<First>> {
        let now = keys.now() as f64;
        let mut removed: Option<Bytes> = None;
        for _ in 0..MOST_REMOVED {
            let Some(head) = keys.head(self.queue)? else {
                return Ok(None);
            };
            let is_ours = is_ours(&head, self.owner);
            let longest = now + self.place;
            let score = keys.zscore(self.places, &head)?;
            let until = match score.filter(|score| !is_ours || *score <= longest) {
                Some(score) => score,
                None => {
                    keys.zadd(self.places, longest, &head)?;
                    longest
                }
            };
            if until > now || head == self.owner {
                let first = First {
                    head,
                    until,
                    removed,
                };
                return Ok(Some(first));
            }
            self.remove_head(keys, &head)?;
            if is_ours && removed.is_none() {
                self.suspect_all_of(keys, &head)?;
                removed = Some(head);
            }
        }
        let first = |head| First {
            head,
            until: now,
            removed,
        };
        Ok(keys.head(self.queue)?.map(first))
    }

    fn remove_head(&self, keys: &mut Keys, head: &[u8]) -> Step<()> {
        keys.lpop(self.queue)?;
        keys.zrem(self.places, head)
    }

    /// Shortens the places of the other waiters of a client with a dead one.
    fn suspect_all_of(&self, keys: &mut Keys, dead: &[u8]) -> Step<()> {
        let longest = keys.now() as f64 + self.place;
        let entries = keys.list(self.queue)?;
        let entries: Vec<Bytes> = entries.iter().take(MOST_REMOVED + 1).cloned().collect();
        let its = |entry: &&Bytes| client_of(entry) == client_of(dead);
        for entry in entries.iter().filter(its) {
            if keys.zscore(self.places, entry)?.unwrap_or(0.0) > longest {
                keys.zadd(self.places, longest, entry)?;
            }
        }
        Ok(())
    }

    fn has(&self, keys: &mut Keys) -> bool {
        let list = keys.list(self.queue);
        list.is_ok_and(|list| list.contains(self.owner))
    }

    /// Gives a waiting owner its place, or a longer one.
    fn enter(&self, keys: &mut Keys, waited: f64, timeout: f64) -> Step<()> {
        let now = keys.now() as f64;
        let least = now + self.place;
        match keys.zscore(self.places, self.owner)? {
            Some(score) => {
                let is_first = keys.head(self.queue)?.as_ref() == Some(self.owner);
                let until = if is_first {
                    least
                } else {
                    least.max(score + waited)
                };
                // A full server keeps the old end.
                let _ = keys.zadd(self.places, until, self.owner);
                let waiters = keys.list(self.queue)?.len();
                if waiters < keys.sorted(self.places)?.len() && !self.has(keys) {
                    keys.push(self.queue, self.owner, false)?;
                }
            }
            None if waited > 0.0 => {
                keys.zadd(self.places, least, self.owner)?;
                if !self.has(keys) {
                    keys.push(self.queue, self.owner, waited < self.place)?;
                }
            }
            None => {
                let until = self.behind_the_last(keys, timeout)?;
                keys.zadd(self.places, until, self.owner)?;
                keys.push(self.queue, self.owner, false)?;
            }
        }
        Ok(())
    }

    /// The end of a place behind the last waiter. A waiter of Redisson subtracts `timeout` when it leaves.
    fn behind_the_last(&self, keys: &mut Keys, timeout: f64) -> Step<f64> {
        let now = keys.now() as f64;
        let Some(last) = keys.list(self.queue)?.last().cloned() else {
            return Ok(now + self.place);
        };
        let before = keys.zscore(self.places, &last)?.unwrap_or(now);
        Ok(match is_ours(&last, self.owner) {
            true => before.max(now + self.place),
            false => before.max(now + timeout) + self.place,
        })
    }
}

pub(crate) fn acquire(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [
        lock,
        queue,
        places,
        owner,
        lease,
        holds,
        waited,
        place,
        timeout,
        channel,
        notify_head,
    ] = named(parts)?;
    let (waited, place) = (integer(waited)? as f64, integer(place)? as f64);
    let line = Queue {
        queue,
        places,
        owner,
        place,
    };
    let remaining = server.keys.pttl(lock);
    let free = is_free(remaining);
    if !free
        && let Some(reply) = re_entry(&mut server.keys, lock, owner, (lease, holds), remaining)?
    {
        return Ok(reply);
    }
    if holds != "1" {
        return Ok(ABSENT);
    }
    let mut first = None;
    let mut suspects = false;
    if free {
        let Some(mut found) = line.first(&mut server.keys)? else {
            return entered(server, lock, &line, (lease, false), channel);
        };
        if found.head == owner {
            return entered(server, lock, &line, (lease, true), channel);
        }
        suspects = notified(
            server,
            &line,
            &mut found,
            (waited, notify_head == "1"),
            channel,
        );
        first = Some(found);
    }
    if waited < 0.0 {
        return Ok(busy(-1));
    }
    let keys = &mut server.keys;
    line.enter(keys, waited, integer(timeout)? as f64)?;
    let now = keys.now() as f64;
    let Some(first) = first else {
        let is_head = keys.head(queue)?.as_ref() == Some(owner);
        return Ok(busy(if is_head { remaining } else { -1 }));
    };
    let is_second = keys.list(queue)?.get(1) == Some(owner);
    let retries = suspects || first.until <= now || is_second;
    Ok(busy(if retries {
        (first.until - now).max(0.0) as i64
    } else {
        -1
    }))
}

fn re_entry(
    keys: &mut Keys,
    lock: &Bytes,
    owner: &Bytes,
    (lease, holds): (&Bytes, &Bytes),
    remaining: i64,
) -> Step<Option<Reply>> {
    let held = keys.hget(lock, owner)?;
    if keys.hget(lock, b"mode")?.is_some() {
        return Ok(Some(wrong_kind(READ_WRITE)));
    }
    if !has_earlier(held.and_then(|held| number(&held)), holds)? {
        return Ok((holds != "1").then(|| refused(holds, remaining)));
    }
    prolong(keys, lock, integer(lease)?, remaining);
    keys.hset(lock, owner, holds)?;
    Ok(Some(DONE))
}

/// Grants a free lock.
fn entered(
    server: &mut Server,
    lock: &Bytes,
    line: &Queue<'_>,
    (lease, is_head): (&Bytes, bool),
    channel: &Bytes,
) -> Step<Reply> {
    let keys = &mut server.keys;
    let lease = integer(lease)?;
    keys.hset(lock, line.owner, &Bytes::from_static(b"1"))?;
    keys.pexpire(lock, lease);
    if is_head {
        line.remove_head(keys, line.owner)?;
        // A head asks within a place anyway.
        let next = keys
            .head(line.queue)?
            .filter(|_| (lease as f64) < line.place);
        if let Some(next) = next {
            server.publish(&joined(&[channel, b":", &next]), "0");
        }
    }
    Ok(DONE)
}

/// Notifies a head that may be asleep or dead, and shortens its place. Returns whether the caller suspects it.
fn notified(
    server: &mut Server,
    line: &Queue<'_>,
    first: &mut First,
    (waited, asks): (f64, bool),
    channel: &Bytes,
) -> bool {
    let removed = first.removed.as_ref();
    let suspects = removed.is_some_and(|removed| client_of(removed) == client_of(&first.head));
    if !asks && !suspects {
        return false;
    }
    server.publish(&joined(&[channel, b":", &first.head]), "0");
    let shortened = server.keys.now() as f64 + NOTIFIED_PLACE;
    let may_shorten = is_ours(&first.head, line.owner) && (waited > 0.0 || suspects);
    if may_shorten && first.until > shortened {
        first.until = shortened;
        let _ = server.keys.zadd(line.places, shortened, &first.head);
        return true;
    }
    suspects
}

/// The head of the queue, if it is one: another program's data counts as none.
fn head_of(keys: &mut Keys, queue: &Bytes) -> Option<Bytes> {
    keys.head(queue).unwrap_or(None)
}

pub(crate) fn release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, queue, places, owner, holds, lease, place, channel] = named(parts)?;
    let keys = &mut server.keys;
    let Some(held) = field(keys, lock, owner)? else {
        return Ok(ABSENT);
    };
    let own = |head: &Bytes| joined(&[channel, b":", head]);
    if holds != "0" {
        let head = head_of(keys, queue).map(|head| own(&head));
        return reduced(server, lock, (owner, &held), (holds, lease), head.as_ref());
    }
    let line = Queue {
        queue,
        places,
        owner,
        place: integer(place)? as f64,
    };
    if let Some(head) = next_head(keys, &line)? {
        server.publish(&own(&head), "0");
    }
    server.keys.del(lock);
    Ok(DONE)
}

/// The waiter that a release notifies.
fn next_head(keys: &mut Keys, line: &Queue<'_>) -> Step<Option<Bytes>> {
    let now = keys.now() as f64;
    for _ in 0..MOST_REMOVED {
        let Some(head) = head_of(keys, line.queue) else {
            return Ok(None);
        };
        let score = keys.zscore(line.places, &head).unwrap_or(None);
        if score.is_some_and(|score| score > now) {
            return Ok(Some(head));
        }
        if !is_ours(&head, line.owner) || score.is_none() {
            // Redisson refreshes no places. A full server keeps the old end.
            let _: Result<(), Stop> = keys.zadd(line.places, now + line.place, &head);
            return Ok(Some(head));
        }
        line.remove_head(keys, &head)?;
    }
    Ok(head_of(keys, line.queue))
}

pub(crate) fn keep(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, queue, owner, kept, lease, channel] = named(parts)?;
    if field(&mut server.keys, lock, owner)?.is_none() {
        return Ok(ABSENT);
    }
    if let Some(head) = head_of(&mut server.keys, queue) {
        server.publish(&joined(&[channel, b":", &head]), "0");
    }
    kept_as(&mut server.keys, lock, owner, (kept, integer(lease)?))
}

pub(crate) fn abandon(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [queue, places, owner, channel] = named(parts)?;
    let keys = &mut server.keys;
    let was_first = keys.head(queue)?.as_ref() == Some(owner);
    keys.zrem(places, owner)?;
    keys.lrem(queue, owner)?;
    if was_first && let Some(head) = keys.head(queue)? {
        server.publish(&joined(&[channel, b":", &head]), "0");
    }
    Ok(DONE)
}

pub(crate) fn force_release(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [lock, queue, channel] = named(parts)?;
    let keys = &mut server.keys;
    if keys.hget(lock, b"mode")?.is_some() {
        return Ok(wrong_kind(READ_WRITE));
    }
    if !keys.exists(lock) {
        return Ok(ABSENT);
    }
    if let Some(head) = keys.head(queue)? {
        server.publish(&joined(&[channel, b":", &head]), "0");
    }
    server.keys.del(lock);
    Ok(DONE)
}

pub(crate) fn waiters(server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
    let [queue, places, _] = named(parts)?;
    let keys = &mut server.keys;
    let now = keys.now() as f64;
    let entries = keys.list(queue)?;
    let entries: Vec<Bytes> = entries.iter().take(MOST_LISTED).cloned().collect();
    let mut lines = Vec::new();
    for owner in entries {
        let score = keys.zscore(places, &owner)?;
        let left = score.map_or(-1, |score| (score - now).floor().max(0.0) as i64);
        lines.push([format!("{left} ").as_bytes(), &shown(&owner)].concat());
    }
    Ok(done(Detail::Text(lines.join(&b'\n').into())))
}
