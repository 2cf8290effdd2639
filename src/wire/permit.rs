//! Redisson's expirable semaphore: permits with an id and an end.

use bytes::Bytes;

use super::{
    Lease, Request, decimal,
    script::{Script, script},
    semaphore::attempted,
    site::{Attempt, Site},
};

static ACQUIRE: Script = script!(keys = 2, "number", "clock", "permits", "permit_acquire");
static RELEASE: Script = script!(
    keys = 3,
    "attempts",
    "number",
    "clock",
    "permits",
    "permit_release"
);
static EXTEND: Script = script!(keys = 1, "number", "clock", "permits", "permit_extend");
static LEFT: Script = script!(keys = 1, "number", "clock", "permits", "permit_left");
static COUNT: Script = script!(keys = 2, "number", "clock", "permits", "permit_count");
static SET: Script = script!(keys = 2, "number", "permit_set");

/// A permit's id in its binary form; users see 32 hexadecimal digits.
pub(crate) type Id = [u8; 16];

fn both<const N: usize>(script: &'static Script, site: &Site, arguments: [Bytes; N]) -> Request {
    let mut parts = vec![site.key.clone(), site.ends.clone()];
    parts.extend(arguments);
    Request { script, parts }
}

fn lease_text(lease: Option<&Lease>) -> Bytes {
    lease.map_or(Bytes::from_static(b"-1"), |lease| lease.text.clone())
}

fn id_text(id: &Id) -> Bytes {
    Bytes::copy_from_slice(id)
}

fn ids_text(ids: &[Id]) -> Bytes {
    ids.concat().into()
}

/// Acquire a permit for each id, all or none; without a lease, permits do not end.
pub(crate) fn acquire(site: &Site, ids: &[Id], lease: Option<&Lease>) -> Request {
    let arguments = [ids_text(ids), lease_text(lease), site.channel.clone()];
    both(&ACQUIRE, site, arguments)
}

/// Release permits, all or none. No id may occur twice.
pub(crate) fn release(site: &Site, ids: &[Id], attempt: &Attempt) -> Request {
    let arguments = [site.ends.clone(), ids_text(ids), site.channel.clone()];
    attempted(&RELEASE, site, arguments, attempt)
}

/// Set the end of a permit.
pub(crate) fn extend(site: &Site, id: &Id, lease: Option<&Lease>) -> Request {
    Request {
        script: &EXTEND,
        parts: vec![site.ends.clone(), id_text(id), lease_text(lease)],
    }
}

/// Ask for the end of a permit.
pub(crate) fn left(site: &Site, id: &Id) -> Request {
    Request {
        script: &LEFT,
        parts: vec![site.ends.clone(), id_text(id)],
    }
}

/// Ask for the number of permits.
pub(crate) fn count(site: &Site) -> Request {
    both(&COUNT, site, [site.channel.clone()])
}

/// Set the total number of permits.
pub(crate) fn set(site: &Site, permits: u32) -> Request {
    let arguments = [decimal(permits.into()), site.channel.clone()];
    both(&SET, site, arguments)
}
