//! Semaphores and latches: acquires permits, waits, and releases permits.
//!
//! Permits have no owner, and those of a plain semaphore no lease, so the engine's tenures do not
//! concern them. Synchronizers share with locks the way to Redis, the jobs that outlive a dropped
//! future, and the shape of a wait ([`waiting`]). [`waiters`] decides which waiter is notified,
//! [`operation`] repeats requests, [`permits`] renews permits with an id, and [`long_waits`] logs
//! waits that last.

mod attempts;
mod held;
mod latch;
mod long_waits;
mod operation;
mod permits;
mod remaining;
mod semaphore;
mod waiters;
mod waiting;

use std::sync::Arc;

use tokio::{
    sync::Notify,
    time::{Instant, timeout_at},
};
use uuid::Uuid;

use super::{Engine, Event};
use crate::{
    config::Config,
    redis::Redis,
    sync::{Mutex, MutexGuard, lock},
    wire::sync_spec::SyncSpec,
};
use attempts::Attempts;
use held::HeldPermits;
use long_waits::NamedOnce;
pub(crate) use permits::ExpirablePermitGuard;
use permits::Permits;
use remaining::Remaining;
pub(crate) use semaphore::PermitGuard;
pub(super) use waiters::LongWait;
use waiters::Waiters;

/// The state of a client's semaphores and latches.
pub(super) struct Synchronizers {
    waiters: Mutex<Waiters>,
    /// Notified when the next poll becomes an earlier one.
    earlier: Notify,
    /// Notified when a wait begins.
    begun: Notify,
    held: HeldPermits,
    named: NamedOnce,
    attempts: Attempts,
    permits: Permits,
    redis: Arc<dyn Redis>,
}

impl Synchronizers {
    pub(super) fn new(redis: Arc<dyn Redis>, id: Uuid, config: &Config) -> Self {
        Self {
            waiters: Mutex::new(Waiters::new(config.max_poll_interval)),
            earlier: Notify::new(),
            begun: Notify::new(),
            held: HeldPermits::new(config.deadlock_warning.is_some()),
            named: NamedOnce::default(),
            attempts: Attempts::new(id, config.outage_wait),
            permits: Permits::default(),
            redis,
        }
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        lock(&self.waiters)
    }

    /// Changes the waiters at `spec`. Wakes the polling task if their next poll is now earlier.
    fn change<T>(&self, spec: &SyncSpec, change: impl FnOnce(&mut Waiters) -> T) -> T {
        let mut waiters = self.waiters();
        let before = waiters.next_poll_at(spec);
        let changed = change(&mut waiters);
        let next = waiters.next_poll_at(spec);
        drop(waiters);
        if next.is_some_and(|next| before.is_none_or(|before| next < before)) {
            self.earlier.notify_one();
        }
        changed
    }

    /// Handles an event of the connections: wakes the waiters that it concerns.
    pub(super) fn handle_event(&self, event: &Event) {
        let (mut waiters, now) = (self.waiters(), Instant::now());
        if waiters.is_empty() {
            return;
        }
        match event {
            Event::Message { channel, payload } => {
                let number = std::str::from_utf8(payload).ok();
                // A message that no Redisson sends wakes no waiter.
                if let Some(number) = number.and_then(|text| text.parse().ok()) {
                    waiters.handle_message(channel, number, now);
                }
            }
            Event::MessagesMissed | Event::Reconnected => waiters.wake_where(|_| true, now),
            Event::Moved(slots) | Event::MissedIn(slots) => {
                waiters.wake_where(|channel| slots.contains(&self.redis.slot(channel)), now);
            }
        }
    }

    /// Wakes all waiters, which see that the client is closed.
    pub(super) fn close(&self) {
        self.waiters().wake_where(|_| true, Instant::now());
    }

    /// Completes when a [`notify_due`](Waiters::notify_due) is due. Only one task may wait.
    pub(super) async fn due(&self) {
        loop {
            let next = self.waiters().next_poll();
            let earlier = self.earlier.notified();
            match next {
                None => earlier.await,
                Some(next) if timeout_at(next, earlier).await.is_err() => return,
                Some(_) => {}
            }
        }
    }

    fn record_answer(&self, spec: &SyncSpec, Remaining { left, end, .. }: Remaining) {
        self.change(spec, |waiters| {
            waiters.record_left(spec, left, end, Instant::now())
        });
    }
}

impl Engine {
    /// Notifies the waiters whose poll is due, and hands on permits whose waiter is not polled.
    pub(super) fn notify_due_synchronizers(self: &Arc<Self>) {
        let untaken = self.synchronizers.waiters().notify_due(Instant::now());
        for (spec, permits, hand_off_until) in untaken {
            drop(self.permit_guard(&spec, permits, hand_off_until));
        }
    }
}
