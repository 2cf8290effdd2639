//! A lock of any kind, or a group of locks, behind one trait: the locks of the Rust peer.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use redisson_lock::{Error, Fenced, GroupLock, Guard, Kind, Lock, MultiGuard, Quorum};

/// The reason of a refusal.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send + 'a>>;

/// The limit of an acquisition.
#[derive(Clone, Copy)]
pub enum Wait {
    None,
    For(Duration),
    Forever,
}

/// A lock or group that can be acquired and released.
pub trait AnyLock: Send + Sync {
    fn take(&self, wait: Wait, lease: Option<Duration>) -> Boxed<'_, Option<Box<dyn AnyGuard>>>;

    fn unlock(&self) -> Boxed<'_, ()>;

    fn force_unlock(&self) -> Boxed<'_, bool> {
        refused()
    }

    fn is_locked(&self) -> Boxed<'_, bool> {
        refused()
    }

    fn is_held(&self) -> Boxed<'_, bool> {
        refused()
    }

    fn hold_count(&self) -> Boxed<'_, u32> {
        refused()
    }

    fn remaining_lease(&self) -> Boxed<'_, Option<Duration>> {
        refused()
    }
}

fn refused<T>() -> Boxed<'static, T> {
    Box::pin(async { Err("a group of locks has no such operation".into()) })
}

/// The guard of a hold.
pub trait AnyGuard: Send {
    fn unlock(self: Box<Self>) -> Boxed<'static, ()>;

    fn is_lost(&self) -> bool;

    /// The fencing token, if the lock has one.
    fn token(&self) -> Option<i64>;
}

impl<K: Kind> AnyLock for Lock<K> {
    fn take(&self, wait: Wait, lease: Option<Duration>) -> Boxed<'_, Option<Box<dyn AnyGuard>>> {
        Box::pin(async move {
            let leased = lease.map(|lease| self.with_lease(lease));
            let lock = leased.as_ref().unwrap_or(self);
            let guard = match wait {
                Wait::None => lock.try_lock().await?,
                Wait::For(wait) => lock.try_lock_for(wait).await?,
                Wait::Forever => Some(lock.lock().await?),
            };
            Ok(guard.map(|guard| Box::new(guard) as Box<dyn AnyGuard>))
        })
    }

    fn unlock(&self) -> Boxed<'_, ()> {
        done(Lock::unlock(self))
    }

    fn force_unlock(&self) -> Boxed<'_, bool> {
        boxed(Lock::force_unlock(self))
    }

    fn is_locked(&self) -> Boxed<'_, bool> {
        boxed(Lock::is_locked(self))
    }

    fn is_held(&self) -> Boxed<'_, bool> {
        boxed(Lock::is_held(self))
    }

    fn hold_count(&self) -> Boxed<'_, u32> {
        boxed(Lock::hold_count(self))
    }

    fn remaining_lease(&self) -> Boxed<'_, Option<Duration>> {
        boxed(Lock::remaining_lease(self))
    }
}

impl<K: Kind> AnyGuard for Guard<K> {
    fn unlock(self: Box<Self>) -> Boxed<'static, ()> {
        done(Guard::unlock(*self))
    }

    fn is_lost(&self) -> bool {
        Guard::is_lost(self)
    }

    fn token(&self) -> Option<i64> {
        let this: &dyn Any = self;
        this.downcast_ref::<Guard<Fenced>>().map(Guard::token)
    }
}

impl<Q: Quorum> AnyLock for GroupLock<Q> {
    fn take(&self, wait: Wait, lease: Option<Duration>) -> Boxed<'_, Option<Box<dyn AnyGuard>>> {
        Box::pin(async move {
            let leased = lease.map(|lease| self.with_lease(lease));
            let group = leased.as_ref().unwrap_or(self);
            let guard = match wait {
                Wait::None => group.try_lock().await?,
                Wait::For(wait) => group.try_lock_for(wait).await?,
                Wait::Forever => Some(group.lock().await?),
            };
            Ok(guard.map(|guard| Box::new(guard) as Box<dyn AnyGuard>))
        })
    }

    fn unlock(&self) -> Boxed<'_, ()> {
        done(GroupLock::unlock(self))
    }
}

impl AnyGuard for MultiGuard {
    fn unlock(self: Box<Self>) -> Boxed<'static, ()> {
        done(MultiGuard::unlock(*self))
    }

    fn is_lost(&self) -> bool {
        MultiGuard::is_lost(self)
    }

    fn token(&self) -> Option<i64> {
        None
    }
}

fn boxed<'a, T>(answer: impl Future<Output = Result<T, Error>> + Send + 'a) -> Boxed<'a, T> {
    Box::pin(async { Ok(answer.await?) })
}

fn done<'a, T>(answer: impl Future<Output = Result<T, Error>> + Send + 'a) -> Boxed<'a, ()> {
    Box::pin(async { Ok(answer.await.map(drop)?) })
}
