//! The scripts by name, and what several of them share.

use bytes::Bytes;

use crate::{
    Reply, Server, Step, Stop, exclusive, fair,
    keys::{GONE, Keys},
    numbers, permits, read_write,
};

/// A script of `src/wire`.
#[derive(Clone, Copy)]
pub struct Script {
    /// The file of its operation in `lua/`, without the ending.
    pub name: &'static str,
    /// How many of an operation's parts are keys.
    pub keys: usize,
    run: Run,
}

type Run = fn(&mut Server, &[Bytes]) -> Step<Reply>;

impl Script {
    /// The script whose operation is in `lua/<name>.lua`.
    pub fn named(name: &str) -> Option<&'static Self> {
        SCRIPTS.iter().find(|script| script.name == name)
    }

    pub(crate) fn run(&self, server: &mut Server, parts: &[Bytes]) -> Step<Reply> {
        (self.run)(server, parts)
    }
}

const fn script(name: &'static str, keys: usize, run: Run) -> Script {
    Script { name, keys, run }
}

/// Every script. That the messages of spin locks may be refused makes no difference here.
pub const SCRIPTS: &[Script] = &[
    script("reentrant_acquire", 1, exclusive::acquire),
    script("reentrant_release", 1, exclusive::release),
    script("reentrant_keep", 1, exclusive::keep),
    script("reentrant_renew", 1, exclusive::renew),
    script("reentrant_force_release", 1, exclusive::force_release),
    script("reentrant_inspect", 1, exclusive::inspect),
    script("fenced_acquire", 2, exclusive::fenced_acquire),
    script("election_announce", 1, exclusive::announce),
    script("election_leader", 1, exclusive::leader),
    script("holders", 1, exclusive::holders),
    script("simple_acquire", 1, exclusive::simple::acquire),
    script("simple_release", 1, exclusive::simple::release),
    script("simple_keep", 1, exclusive::simple::keep),
    script("simple_renew", 1, exclusive::simple::renew),
    script("simple_force_release", 1, exclusive::simple::force_release),
    script("simple_inspect", 1, exclusive::simple::inspect),
    script("simple_holders", 1, exclusive::simple::holders),
    script("fair_acquire", 3, fair::acquire),
    script("fair_release", 3, fair::release),
    script("fair_keep", 2, fair::keep),
    script("fair_abandon", 2, fair::abandon),
    script("fair_force_release", 2, fair::force_release),
    script("fair_waiters", 2, fair::waiters),
    script("read_acquire", 2, read_write::read_acquire),
    script("read_release", 1, read_write::read_release),
    script("read_renew", 1, read_write::read_renew),
    script("read_force_release", 1, read_write::read_force_release),
    script("read_inspect", 1, read_write::read_inspect),
    script("write_acquire", 2, read_write::write_acquire),
    script("write_release", 1, read_write::write_release),
    script("write_keep", 1, read_write::write_keep),
    script("write_intend", 3, read_write::intend),
    script("write_renew", 1, read_write::write_renew),
    script("write_force_release", 1, read_write::write_force_release),
    script("write_inspect", 1, read_write::write_inspect),
    script("semaphore_acquire", 3, numbers::acquire),
    script("semaphore_release", 2, numbers::release),
    script("semaphore_drain", 2, numbers::drain),
    script("number_begin", 3, numbers::begin),
    script("number_inspect", 1, numbers::inspect),
    script("latch_count_down", 2, numbers::count_down),
    script("latch_delete", 2, numbers::delete),
    script("latch_look", 1, numbers::look),
    script("permit_acquire", 2, permits::acquire),
    script("permit_release", 3, permits::release),
    script("permit_extend", 1, permits::extend),
    script("permit_left", 1, permits::left),
    script("permit_count", 2, permits::count),
    script("permit_set", 2, permits::set),
];

/// The parts of an operation by name.
pub(crate) fn named<const N: usize>(parts: &[Bytes]) -> Step<&[Bytes; N]> {
    const REFUSED: Stop = Stop::Failed("the operation has another number of parts");
    parts.try_into().map_err(|_| REFUSED)
}

/// An argument that is a number.
pub(crate) fn integer(argument: &Bytes) -> Step<i64> {
    const REFUSED: Stop = Stop::Failed("the argument is no number");
    let text = str::from_utf8(argument).ok();
    text.and_then(|text| text.parse().ok()).ok_or(REFUSED)
}

/// A number that another program may have written.
pub(crate) fn number(text: &[u8]) -> Option<f64> {
    str::from_utf8(text).ok()?.trim().parse().ok()
}

pub(crate) fn text(number: i64) -> Bytes {
    number.to_string().into()
}

/// The channel of a waiter of a fair lock, and the like.
pub(crate) fn joined(parts: &[&[u8]]) -> Bytes {
    parts.concat().into()
}

/// A text of another program without the control characters that would end its line.
pub(crate) fn shown(text: &[u8]) -> Vec<u8> {
    let shown = |byte: &u8| if byte.is_ascii_control() { b'?' } else { *byte };
    text.iter().map(shown).collect()
}

/// Extends an expiry, and never shortens it.
pub(crate) fn prolong(keys: &mut Keys, key: &[u8], lease: i64, remaining: i64) {
    keys.pexpire(key, lease.max(remaining));
}

/// Sets the expiry of a lock that stays held, and tells a waiter of a much shorter one.
pub(crate) fn shorten(
    server: &mut Server,
    lock: &[u8],
    lease: i64,
    told: Option<(&Bytes, &'static str)>,
) {
    let remaining = server.keys.pttl(lock);
    server.keys.pexpire(lock, lease);
    if let Some((channel, payload)) = told
        && (remaining < 0 || lease * 3 < remaining * 2)
    {
        server.publish(channel, payload);
    }
}

/// Whether there is no key, which a first hold finds.
pub(crate) fn is_free(remaining: i64) -> bool {
    remaining == GONE
}
