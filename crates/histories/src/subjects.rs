//! One interface for all kinds of lock, so that an actor does not know its kind.

use std::time::{Duration, Instant};

use redisson_lock::{All, Error, Guard, Kind, Lock, LockClient, LostReason, Majority, Released};

use super::{
    groups::group,
    handle::{Asker, Body, Boxed, Handle, Hold, Peek, Taken, Wait, now},
    log::Side,
};

/// Makes a lock of one kind.
pub type Make = fn(Asker<'_>) -> Box<dyn Handle>;

/// A kind of lock, and its properties.
#[derive(Clone, Copy)]
pub struct Subject {
    pub name: &'static str,
    /// The sides of one lock: one, or two for a read-write lock.
    pub sides: &'static [(Side, Make)],
    /// Whether an owner may acquire it again.
    pub reentrant: bool,
    /// Whether grants are in the order of the requests.
    pub fair: bool,
    /// Whether several names are locked at once.
    pub group: bool,
    /// Whether all holds of an owner are on the same locks. Each hold of a majority may be on different locks, so their counts and
    /// leases differ.
    pub exact: bool,
    /// Whether a client hands it off in memory.
    pub passes: bool,
    /// Whether readers of a client may join a hold in memory.
    pub shares: bool,
}

/// How long a client may hand off a lock after it was forced open: it verifies a tenure with waiters every 50 ms.
const FORCED_HAND_OFF: Duration = Duration::from_millis(100);
/// How long readers may join a hold after the lock was forced open.
const FORCED_JOIN: Duration = Duration::from_millis(3);

impl Subject {
    /// How long a client may hand off the lock in memory, or share it, after it was forced open.
    pub fn forced_hand_off(&self) -> Duration {
        match (self.passes, self.shares) {
            (true, _) => FORCED_HAND_OFF,
            (_, true) => FORCED_JOIN,
            _ => Duration::ZERO,
        }
    }
}

const fn subject(name: &'static str, sides: &'static [(Side, Make)]) -> Subject {
    Subject {
        name,
        sides,
        reentrant: true,
        fair: false,
        group: false,
        exact: true,
        passes: false,
        shares: false,
    }
}

/// The sides of a lock with one side, `$lock`, and perhaps a token.
macro_rules! alone {
    ($lock:ident) => {
        alone!($lock, |_| None)
    };
    ($lock:ident, $token:expr) => {
        &[(Side::Alone, |asker| {
            single(asker.client().$lock(asker.name()), asker, $token)
        })]
    };
}

pub const REENTRANT: Subject = Subject {
    passes: true,
    ..subject("reentrant", alone!(reentrant_lock))
};

pub const FENCED: Subject = subject("fenced", alone!(fenced_lock, |guard| Some(guard.token())));

pub const SPIN: Subject = Subject {
    passes: true,
    ..subject("spin", alone!(spin_lock))
};

pub const FAIR: Subject = Subject {
    fair: true,
    ..subject("fair", alone!(fair_lock))
};

pub const NON_REENTRANT: Subject = Subject {
    reentrant: false,
    passes: true,
    ..subject("non_reentrant", alone!(non_reentrant_lock))
};

pub const NON_REENTRANT_FAIR: Subject = Subject {
    reentrant: false,
    fair: true,
    ..subject("non_reentrant_fair", alone!(non_reentrant_fair_lock))
};

pub const SIMPLE: Subject = Subject {
    reentrant: false,
    passes: true,
    ..subject("simple", alone!(simple_lock))
};

pub const READ_WRITE: Subject = Subject {
    shares: true,
    ..subject(
        "read_write",
        &[
            (Side::Shared, |asker| {
                let lock = asker.client().read_write_lock(asker.name());
                single(lock.read().clone(), asker, |_| None)
            }),
            (Side::Alone, |asker| {
                let lock = asker.client().read_write_lock(asker.name());
                single(lock.write().clone(), asker, |_| None)
            }),
        ],
    )
};

/// Groups of locks of one kind and client.
pub const MULTI: Subject = Subject {
    group: true,
    ..subject(
        "multi",
        &[(Side::Alone, |asker| {
            let each = |name: &str| asker.client().reentrant_lock(name).into();
            let names = asker.names.iter().map(|(_, name)| each(name)).collect();
            group::<All>(names, asker)
        })],
    )
};

/// Groups of locks of several kinds and clients.
pub const MULTI_MIXED: Subject = Subject {
    group: true,
    ..subject(
        "multi_mixed",
        &[(Side::Alone, |asker| {
            let each = |(index, name): &(usize, &str)| {
                let client = &asker.clients[index % asker.clients.len()];
                match index {
                    0 => client.reentrant_lock(*name).into(),
                    1 => client.fair_lock(*name).into(),
                    _ => client.read_write_lock(*name).write().into(),
                }
            };
            group::<All>(asker.names.iter().map(each).collect(), asker)
        })],
    )
};

/// A majority of three locks, each through a client of its own, so that each can fail alone.
pub const RED: Subject = Subject {
    exact: false,
    ..subject(
        "red",
        &[(Side::Alone, |asker| {
            let clients = asker.clients.iter().take(3).enumerate();
            let each = |(index, client): (usize, &LockClient)| {
                client
                    .reentrant_lock(format!("{}:{index}", asker.name()))
                    .into()
            };
            group::<Majority>(clients.map(each).collect(), asker)
        })],
    )
};

impl<'a> Asker<'a> {
    fn client(&self) -> &'a LockClient {
        &self.clients[0]
    }

    fn name(&self) -> &'a str {
        self.names[0].1
    }
}

/// Returns the token of a guard, if its kind has tokens.
type Token<K> = fn(&Guard<K>) -> Option<i64>;

fn single<K: Kind>(lock: Lock<K>, asker: Asker<'_>, token: Token<K>) -> Box<dyn Handle> {
    let mut lock = lock.owned_by(&asker.owner);
    if let Some(lease) = asker.lease {
        lock = lock.with_lease(lease);
    }
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

    fn hold_count(&self) -> Option<Boxed<'_, Result<u32, Error>>> {
        Some(Box::pin(self.lock.hold_count()))
    }

    fn force_unlock(&self) -> Option<Boxed<'_, Result<bool, Error>>> {
        Some(Box::pin(self.lock.force_unlock()))
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
        now(self.guard.lost())
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
        now(self.guard.lost())
    }

    fn valid_until(&self) -> Instant {
        self.guard.valid_until()
    }

    fn token(&self) -> Option<i64> {
        (self.token)(self.guard)
    }
}
