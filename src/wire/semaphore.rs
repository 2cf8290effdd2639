//! Redisson's semaphore: a number of permits without owners.

use bytes::Bytes;

use super::{
    Request, decimal,
    script::{Script, script},
    sync_spec::{Attempt, SyncSpec},
};

static ACQUIRE: Script = script!(keys = 3, "attempts", "number", "semaphore_acquire");
static RELEASE: Script = script!(keys = 2, "attempts", "number", "semaphore_release");
static DRAIN: Script = script!(keys = 2, "attempts", "number", "semaphore_drain");
static BEGIN: Script = script!(keys = 3, "attempts", "number", "number_begin");
static INSPECT: Script = script!(keys = 1, "number", "number_inspect");

/// A request about the number at `spec`, made repeatable by `attempt`.
pub(super) fn attempted<const N: usize>(
    script: &'static Script,
    spec: &SyncSpec,
    arguments: [Bytes; N],
    attempt: &Attempt,
) -> Request {
    let mut parts = vec![spec.key.clone(), spec.result_key(attempt)];
    parts.extend(arguments);
    parts.extend([decimal(attempt.number), decimal(attempt.lasts)]);
    Request { script, parts }
}

/// Acquire permits.
pub(crate) fn acquire(spec: &SyncSpec, permits: u32, attempt: &Attempt) -> Request {
    let arguments = [spec.ends.clone(), decimal(permits.into())];
    attempted(&ACQUIRE, spec, arguments, attempt)
}

/// Add permits, or remove some.
pub(crate) fn release(spec: &SyncSpec, permits: i64, attempt: &Attempt) -> Request {
    let permits = permits.to_string().into();
    attempted(&RELEASE, spec, [permits, spec.channel.clone()], attempt)
}

/// Acquire all available permits.
pub(crate) fn drain(spec: &SyncSpec, attempt: &Attempt) -> Request {
    attempted(&DRAIN, spec, [], attempt)
}

/// Set the permits of a semaphore that does not exist.
pub(crate) fn begin(spec: &SyncSpec, permits: u32, attempt: &Attempt) -> Request {
    let permits = decimal(permits.into());
    begin_as(false, spec, permits.clone(), permits, attempt)
}

/// The same for a number of this kind, whose waiters receive `message`.
pub(super) fn begin_as(
    is_expirable: bool,
    spec: &SyncSpec,
    value: Bytes,
    message: Bytes,
    attempt: &Attempt,
) -> Request {
    let kind = decimal(is_expirable.into());
    let arguments = [
        spec.ends.clone(),
        kind,
        value,
        spec.channel.clone(),
        message,
    ];
    attempted(&BEGIN, spec, arguments, attempt)
}

/// Ask for the number.
pub(crate) fn inspect(spec: &SyncSpec) -> Request {
    Request {
        script: &INSPECT,
        parts: vec![spec.key.clone(), Bytes::new()],
    }
}
