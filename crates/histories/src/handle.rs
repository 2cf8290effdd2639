//! What an actor does with a lock, whatever its kind.

use std::{
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use redisson_lock::{Error, LockClient, LostReason, Owner, Released};

pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The queries of a guard.
pub trait Peek: Sync {
    fn lost(&self) -> Option<LostReason>;
    fn valid_until(&self) -> Instant;
    fn token(&self) -> Option<i64>;
}

/// A guard of any kind.
pub trait Hold: Peek + Send {
    fn unlock(self: Box<Self>) -> Boxed<'static, Result<Released, Error>>;
    fn leak(self: Box<Self>);
}

pub type Taken = Result<Option<Box<dyn Hold>>, Error>;

/// How long to wait for a lock.
#[derive(Debug, Clone, Copy)]
pub enum Wait {
    None,
    For(Duration),
    Ever,
}

/// A lock, for one owner and lease.
pub trait Handle: Send + Sync {
    fn take(&self, wait: Wait) -> Boxed<'_, Taken>;
    /// Runs `body` with the lock held.
    fn run<'a>(&'a self, body: &'a dyn Body) -> Boxed<'a, Result<(), Error>>;
    fn unlock(&self) -> Boxed<'_, Result<Released, Error>>;
    /// `None` for groups, which have no count.
    fn hold_count(&self) -> Option<Boxed<'_, Result<u32, Error>>>;
    /// `None` for groups, which cannot be forced open.
    fn force_unlock(&self) -> Option<Boxed<'_, Result<bool, Error>>>;
}

pub trait Body: Sync {
    fn inside<'a>(&'a self, guard: &'a dyn Peek) -> Boxed<'a, ()>;
}

/// The parameters of a lock. A lock of a single client uses the first client.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    pub clients: &'a [LockClient],
    /// The name of a lock, or the names of a group, each with its index.
    pub names: &'a [(usize, &'a str)],
    pub owner: Owner,
    pub lease: Option<Duration>,
}

/// Polls a future once: returns the reason of a loss, if there is one.
pub fn now<T>(lost: impl Future<Output = T>) -> Option<T> {
    match pin!(lost).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reason) => Some(reason),
        Poll::Pending => None,
    }
}
