//! The kinds of lock as their users see them, all alike: an actor does not know which kind it uses.

use std::{
    pin::Pin,
    time::{Duration, Instant},
};

use redisson_lock::{Error, Guard, Kind, Lock, LockClient, LostReason, Owner, Released};

use super::log::Side;

pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a guard shows.
pub trait Peek: Sync {
    fn lost(&self) -> Option<LostReason>;
    fn valid_until(&self) -> Instant;
    fn token(&self) -> Option<i64>;
}

/// A guard.
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
    fn hold_count(&self) -> Boxed<'_, Result<u32, Error>>;
    fn force_unlock(&self) -> Boxed<'_, Result<bool, Error>>;
}

pub trait Body: Sync {
    fn inside<'a>(&'a self, guard: &'a dyn Peek) -> Boxed<'a, ()>;
}

/// A lock of one kind, given its client, name, owner and lease.
pub type Make = fn(&LockClient, &str, Owner, Option<Duration>) -> Box<dyn Handle>;

/// One kind of lock and what is expected of it.
#[derive(Clone, Copy)]
pub struct Subject {
    pub name: &'static str,
    /// The sides of one lock: one, or two for a read-write lock.
    pub sides: &'static [(Side, Make)],
    /// Whether an owner may take it again.
    pub reentrant: bool,
    /// Whether it is had in the order of asking.
    pub fair: bool,
}

/// A lock that has one side, `$lock`, and perhaps a token.
macro_rules! alone {
    ($lock:ident) => {
        alone!($lock, |_| None)
    };
    ($lock:ident, $token:expr) => {
        &[(Side::Alone, |client, name, owner, lease| {
            handle(client.$lock(name), owner, lease, $token)
        })]
    };
}

const fn subject(name: &'static str, sides: &'static [(Side, Make)]) -> Subject {
    Subject {
        name,
        sides,
        reentrant: true,
        fair: false,
    }
}

pub const REENTRANT: Subject = subject("reentrant", alone!(reentrant_lock));
pub const FENCED: Subject = subject("fenced", alone!(fenced_lock, |guard| Some(guard.token())));
pub const SPIN: Subject = subject("spin", alone!(spin_lock));

pub const READ_WRITE: Subject = subject(
    "read_write",
    &[
        (Side::Shared, |client, name, owner, lease| {
            let lock = client.read_write_lock(name);
            handle(lock.read().clone(), owner, lease, |_| None)
        }),
        (Side::Alone, |client, name, owner, lease| {
            let lock = client.read_write_lock(name);
            handle(lock.write().clone(), owner, lease, |_| None)
        }),
    ],
);

pub const FAIR: Subject = Subject {
    fair: true,
    ..subject("fair", alone!(fair_lock))
};

pub const NON_REENTRANT: Subject = Subject {
    reentrant: false,
    ..subject("non_reentrant", alone!(non_reentrant_lock))
};

pub const NON_REENTRANT_FAIR: Subject = Subject {
    reentrant: false,
    fair: true,
    ..subject("non_reentrant_fair", alone!(non_reentrant_fair_lock))
};

pub const SIMPLE: Subject = Subject {
    reentrant: false,
    ..subject("simple", alone!(simple_lock))
};

/// How a guard of this kind shows its token, if it has one.
type Token<K> = fn(&Guard<K>) -> Option<i64>;

fn handle<K: Kind>(
    lock: Lock<K>,
    owner: Owner,
    lease: Option<Duration>,
    token: Token<K>,
) -> Box<dyn Handle> {
    let lock = lock.owned_by(&owner);
    let lock = lease.map_or(lock.clone(), |lease| lock.with_lease(lease));
    Box::new(Single { lock, token })
}

struct Single<K: Kind> {
    lock: Lock<K>,
    token: Token<K>,
}

struct Held<K: Kind> {
    guard: Guard<K>,
    token: Token<K>,
}

struct Seen<'a, K: Kind> {
    guard: &'a Guard<K>,
    token: Token<K>,
}

impl<K: Kind> Handle for Single<K> {
    fn take(&self, wait: Wait) -> Boxed<'_, Taken> {
        let token = self.token;
        Box::pin(async move {
            let guard = match wait {
                Wait::None => self.lock.try_lock().await?,
                Wait::For(wait) => self.lock.try_lock_for(wait).await?,
                Wait::Ever => Some(self.lock.lock().await?),
            };
            Ok(guard.map(|guard| Box::new(Held { guard, token }) as Box<dyn Hold>))
        })
    }

    fn run<'a>(&'a self, body: &'a dyn Body) -> Boxed<'a, Result<(), Error>> {
        let token = self.token;
        Box::pin(
            self.lock
                .run(async move |guard: &Guard<K>| body.inside(&Seen { guard, token }).await),
        )
    }

    fn unlock(&self) -> Boxed<'_, Result<Released, Error>> {
        Box::pin(self.lock.unlock())
    }

    fn hold_count(&self) -> Boxed<'_, Result<u32, Error>> {
        Box::pin(self.lock.hold_count())
    }

    fn force_unlock(&self) -> Boxed<'_, Result<bool, Error>> {
        Box::pin(self.lock.force_unlock())
    }
}

impl<K: Kind> Hold for Held<K> {
    fn unlock(self: Box<Self>) -> Boxed<'static, Result<Released, Error>> {
        Box::pin(self.guard.unlock())
    }

    fn leak(self: Box<Self>) {
        self.guard.leak();
    }
}

impl<K: Kind> Peek for Held<K> {
    fn lost(&self) -> Option<LostReason> {
        reason(&self.guard)
    }

    fn valid_until(&self) -> Instant {
        self.guard.valid_until()
    }

    fn token(&self) -> Option<i64> {
        (self.token)(&self.guard)
    }
}

impl<K: Kind> Peek for Seen<'_, K> {
    fn lost(&self) -> Option<LostReason> {
        reason(self.guard)
    }

    fn valid_until(&self) -> Instant {
        self.guard.valid_until()
    }

    fn token(&self) -> Option<i64> {
        (self.token)(self.guard)
    }
}

/// Why the hold is lost, if it is: asked for without waiting.
fn reason<K: Kind>(guard: &Guard<K>) -> Option<LostReason> {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };
    let polled = pin!(guard.lost()).poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(reason) => Some(reason),
        Poll::Pending => None,
    }
}
