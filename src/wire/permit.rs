//! Redisson's expirable semaphore: permits with an id and an end.

use bytes::Bytes;

use super::{
    Lease, Request, decimal,
    script::{Script, script},
    semaphore::{attempted, begin_as},
    sync_spec::{Attempt, SyncSpec},
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

fn both<const N: usize>(
    script: &'static Script,
    spec: &SyncSpec,
    arguments: [Bytes; N],
) -> Request {
    let mut parts = vec![spec.key.clone(), spec.ends.clone()];
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

/// Set the permits of a semaphore that does not exist.
pub(crate) fn begin(spec: &SyncSpec, permits: u32, attempt: &Attempt) -> Request {
    let permits = decimal(permits.into());
    begin_as(true, spec, permits.clone(), permits, attempt)
}

/// Acquire a permit for each id, all or none; without a lease, permits do not end.
pub(crate) fn acquire(spec: &SyncSpec, ids: &[Id], lease: Option<&Lease>) -> Request {
    let arguments = [ids_text(ids), lease_text(lease), spec.channel.clone()];
    both(&ACQUIRE, spec, arguments)
}

/// Release permits, all or none. No id may occur twice.
pub(crate) fn release(spec: &SyncSpec, ids: &[Id], attempt: &Attempt) -> Request {
    let arguments = [spec.ends.clone(), ids_text(ids), spec.channel.clone()];
    attempted(&RELEASE, spec, arguments, attempt)
}

/// Set the end of a permit.
pub(crate) fn extend(spec: &SyncSpec, id: &Id, lease: Option<&Lease>) -> Request {
    Request {
        script: &EXTEND,
        parts: vec![spec.ends.clone(), id_text(id), lease_text(lease)],
    }
}

/// Ask for the end of a permit.
pub(crate) fn left(spec: &SyncSpec, id: &Id) -> Request {
    Request {
        script: &LEFT,
        parts: vec![spec.ends.clone(), id_text(id)],
    }
}

/// Ask for the number of permits.
pub(crate) fn count(spec: &SyncSpec) -> Request {
    both(&COUNT, spec, [spec.channel.clone()])
}

/// Set the total number of permits.
pub(crate) fn set(spec: &SyncSpec, permits: u32) -> Request {
    let arguments = [decimal(permits.into()), spec.channel.clone()];
    both(&SET, spec, arguments)
}
