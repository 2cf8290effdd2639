//! Implements the interface of a lock in a history for groups of locks.

use std::time::Instant;

use redisson_lock::{AnyLock, Error, GroupLock, LostReason, MultiGuard, Quorum, Released};

use super::handle::{Asker, Body, Boxed, Handle, Hold, Peek, Taken, Wait, now};

pub fn group<Q: Quorum + 'static>(locks: Vec<AnyLock>, asker: Asker<'_>) -> Box<dyn Handle> {
    let mut lock = GroupLock::<Q>::of(locks).owned_by(&asker.owner);
    if let Some(lease) = asker.lease {
        lock = lock.with_lease(lease);
    }
    Box::new(Grouped { lock })
}

struct Grouped<Q: Quorum> {
    lock: GroupLock<Q>,
}

impl<Q: Quorum> Handle for Grouped<Q> {
    fn take(&self, wait: Wait) -> Boxed<'_, Taken> {
        Box::pin(async move {
            let guard = match wait {
                Wait::None => self.lock.try_lock().await?,
                Wait::For(wait) => self.lock.try_lock_for(wait).await?,
                Wait::Ever => Some(self.lock.lock().await?),
            };
            Ok(guard.map(|guard| Box::new(guard) as Box<dyn Hold>))
        })
    }

    fn run<'a>(&'a self, body: &'a dyn Body) -> Boxed<'a, Result<(), Error>> {
        Box::pin(
            self.lock
                .run(async move |guard: &MultiGuard| body.inside(guard).await),
        )
    }

    fn unlock(&self) -> Boxed<'_, Result<Released, Error>> {
        Box::pin(self.lock.unlock())
    }

    fn hold_count(&self) -> Option<Boxed<'_, Result<u32, Error>>> {
        None
    }

    fn force_unlock(&self) -> Option<Boxed<'_, Result<bool, Error>>> {
        None
    }
}

impl Hold for MultiGuard {
    fn unlock(self: Box<Self>) -> Boxed<'static, Result<Released, Error>> {
        Box::pin((*self).unlock())
    }

    fn leak(self: Box<Self>) {
        (*self).leak();
    }
}

impl Peek for MultiGuard {
    fn lost(&self) -> Option<LostReason> {
        now(self.lost())
    }

    fn valid_until(&self) -> Instant {
        self.valid_until()
    }

    fn token(&self) -> Option<i64> {
        None
    }
}
