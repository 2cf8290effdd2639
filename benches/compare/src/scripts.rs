//! The scripts of the raw clients: one acquire and one release, as plain as Redisson's, for one
//! lock per call.

use crate::{Command, Failure, Kind, Times, failure::unsupported};

/// KEYS lock; ARGV lease in ms, owner. Replies nil if granted, else the remaining lease.
pub const ACQUIRE: &str = "
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

/// KEYS lock; ARGV channel, lease in ms, owner. Replies nil if the owner did not hold the lock,
/// else whether it is free now.
pub const RELEASE: &str = "
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
  return nil
end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', ARGV[1], '0')
return 1";

pub const LEASE_MILLIS: &str = "30000";

/// The number of tasks and the times of a `pair`, the one command that peers without a lock
/// support.
pub fn pairs_only(command: Command) -> Result<(usize, Times), Failure> {
    match command {
        Command::Pair {
            kind: Kind::Reentrant,
            tasks,
            times,
        } => Ok((tasks, times)),
        _ => unsupported("no lock: it runs the bare scripts and neither waits nor renews"),
    }
}

/// Checks that the scripts acquired a free lock, and released it.
pub fn check(busy: Option<i64>, released: Option<i64>) -> Result<(), Failure> {
    match (busy, released) {
        (None, Some(1)) => Ok(()),
        other => Err(format!("the scripts replied {other:?} to a free lock").into()),
    }
}

/// The keys and arguments of one task, made once.
pub struct Lock {
    pub key: String,
    pub channel: String,
    pub owner: String,
}

impl Lock {
    pub fn of_task(task: usize) -> Self {
        let key = key(task);
        Self {
            channel: format!("redisson_lock__channel:{{{key}}}"),
            // The length is that of a client's UUID and a thread's number.
            owner: format!("00000000-0000-4000-8000-000000000000:{task}"),
            key,
        }
    }
}

/// The key that a task locks: the same for every peer.
pub fn key(task: usize) -> String {
    format!("bench:{task}")
}
