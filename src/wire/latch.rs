//! Redisson's latch: a count that opens it at 0.

use bytes::Bytes;

use super::{
    Request, decimal,
    script::{Script, script},
    semaphore,
    sync_spec::{Attempt, SyncSpec},
};

static COUNT_DOWN: Script = script!(keys = 2, "attempts", "number", "latch_count_down");
static DELETE: Script = script!(keys = 2, "attempts", "number", "latch_delete");
static LOOK: Script = script!(keys = 1, "number", "latch_look");

/// Set the count of a latch that is open.
pub(crate) fn begin(spec: &SyncSpec, count: u64, attempt: &Attempt) -> Request {
    let (count, message) = (decimal(count), Bytes::from_static(b"1"));
    semaphore::begin_as(false, spec, count, message, attempt)
}

/// Count down.
pub(crate) fn count_down(spec: &SyncSpec, attempt: &Attempt) -> Request {
    semaphore::attempted(&COUNT_DOWN, spec, [spec.channel.clone()], attempt)
}

/// Remove the latch.
pub(crate) fn delete(spec: &SyncSpec, attempt: &Attempt) -> Request {
    semaphore::attempted(&DELETE, spec, [spec.channel.clone()], attempt)
}

/// Ask whether the latch is open. If it is not, publish the mark on its channel.
pub(crate) fn look(spec: &SyncSpec, mark: i64) -> Request {
    let mark = Bytes::from(mark.to_string());
    Request {
        script: &LOOK,
        parts: vec![spec.key.clone(), spec.channel.clone(), mark],
    }
}
