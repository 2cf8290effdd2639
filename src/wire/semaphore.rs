//! Redisson's semaphore: a number of permits without owners.

use bytes::Bytes;

use super::{
    Request, decimal,
    script::{Script, script},
    site::{Attempt, Site},
};

static ACQUIRE: Script = script!(keys = 2, "attempts", "number", "semaphore_acquire");
static RELEASE: Script = script!(keys = 2, "attempts", "number", "semaphore_release");
static DRAIN: Script = script!(keys = 2, "attempts", "number", "semaphore_drain");
static BEGIN: Script = script!(keys = 2, "attempts", "number", "number_begin");
static INSPECT: Script = script!(keys = 1, "number", "number_inspect");

/// A request about the number at `site`, made repeatable by `attempt`.
pub(super) fn attempted<const N: usize>(
    script: &'static Script,
    site: &Site,
    arguments: [Bytes; N],
    attempt: &Attempt,
) -> Request {
    let mut parts = vec![site.key.clone(), site.attempt(attempt)];
    parts.extend(arguments);
    parts.extend([decimal(attempt.number), decimal(attempt.lasts)]);
    Request { script, parts }
}

/// Acquire permits.
pub(crate) fn acquire(site: &Site, permits: u32, attempt: &Attempt) -> Request {
    attempted(&ACQUIRE, site, [decimal(permits.into())], attempt)
}

/// Add permits, or remove some.
pub(crate) fn release(site: &Site, permits: i64, attempt: &Attempt) -> Request {
    let permits = permits.to_string().into();
    attempted(&RELEASE, site, [permits, site.channel.clone()], attempt)
}

/// Acquire all available permits.
pub(crate) fn drain(site: &Site, attempt: &Attempt) -> Request {
    attempted(&DRAIN, site, [], attempt)
}

/// Set the permits of a semaphore that does not exist.
pub(crate) fn begin(site: &Site, permits: u32, attempt: &Attempt) -> Request {
    let permits = decimal(permits.into());
    let arguments = [permits.clone(), site.channel.clone(), permits];
    attempted(&BEGIN, site, arguments, attempt)
}

/// The same for a latch, whose waiters receive `message` at a new count.
pub(super) fn begin_telling(
    site: &Site,
    value: u64,
    message: &'static [u8],
    attempt: &Attempt,
) -> Request {
    let message = Bytes::from_static(message);
    let arguments = [decimal(value), site.channel.clone(), message];
    attempted(&BEGIN, site, arguments, attempt)
}

/// Ask for the number.
pub(crate) fn inspect(site: &Site) -> Request {
    Request {
        script: &INSPECT,
        parts: vec![site.key.clone(), Bytes::new()],
    }
}
