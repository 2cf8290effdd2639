//! A job that one instance runs per tick: its lock is kept for a time, marked as done.

use std::time::Duration;

use tokio::time::Instant;

use super::Lock;
use crate::{
    engine::Deadline,
    error::Error,
    guard::{Guard, release_after, run_under},
    owner::Owner,
    wire::{Inspection, Kind, Lease},
};

/// How long [`Lock::run_at_least`] keeps the lock from its grant on, and after which results of the body.
///
/// A [`Duration`] converts to [`always`](Self::always). Use [`if_ok`](Self::if_ok) for a body whose `Err` should let another instance
/// run the job at once.
#[derive(Debug)]
pub struct AtLeast<T> {
    time: Duration,
    keeps: fn(&T) -> bool,
}

impl<T> AtLeast<T> {
    /// Keeps the lock whatever the body returns.
    pub fn always(time: Duration) -> Self {
        Self {
            time,
            keeps: |_| true,
        }
    }

    /// The time until which a hold that was granted at `granted` is kept after a body that returned `done`.
    pub(crate) fn until(&self, granted: Instant, done: &T) -> Option<Instant> {
        (self.keeps)(done).then(|| granted + self.time)
    }
}

impl<T, E> AtLeast<Result<T, E>> {
    /// Keeps the lock after `Ok`, and releases it after `Err`.
    pub fn if_ok(time: Duration) -> Self {
        Self {
            time,
            keeps: Result::is_ok,
        }
    }
}

impl<T> From<Duration> for AtLeast<T> {
    fn from(time: Duration) -> Self {
        Self::always(time)
    }
}

/// What [`Lock::run_at_least`] did or found, as far as the server shows it.
// Exhaustive: a caller that matches all four decides for each what the tick needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "it says whether the job ran"]
pub enum JobOutcome<T> {
    /// The body ran here, and returned this.
    Ran(T),
    /// The job is done: the body of an earlier call has ended, and the lock is kept.
    Done {
        /// The time for which the lock is still kept.
        kept_for: Duration,
    },
    /// Another owner holds the lock, and the job is not done: most likely it runs.
    Running {
        /// The remaining lease; `None` if the lock was released meanwhile, or has no expiry.
        lease_left: Option<Duration>,
    },
    /// Another owner holds the lock, the job is not done, and the lease is not renewed: less than half of
    /// [`Config::watchdog_lease`](crate::Config::watchdog_lease) is left. The process of its runner has crashed, was stopped, or is
    /// cut off. Never reported for a handle with a [fixed lease](Lock::with_lease), nor in the first half of the lease after a crash.
    Crashed {
        /// The time after which the lock is free.
        lease_left: Duration,
    },
}

impl<T> JobOutcome<T> {
    /// Returns the result of the body, if it ran here.
    pub fn ran(self) -> Option<T> {
        match self {
            Self::Ran(done) => Some(done),
            _ => None,
        }
    }

    /// Whether the job is done for this tick: it ran here or in an earlier call. The body's result may be an `Err`.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Ran(_) | Self::Done { .. })
    }
}

/// A lock that was acquired for a job, and when; otherwise what the job's outcome is.
pub(crate) type Begun<K, T> = Result<(Guard<K>, Instant), JobOutcome<T>>;

impl<K: Kind> Lock<K> {
    /// As [`try_run`](Self::try_run), but keeps the lock for at least `least` from its grant, marked as done. Another instance with a
    /// late clock finds the job done, and skips it.
    ///
    /// Runs `body` for an owner of its own, so no other job of the same task enters. When `body` returns, one request marks the lock as
    /// done and sets its expiry to the rest of `least`. The call waits for that answer, and nothing later depends on this process. A
    /// read hold of the same owner that outlives the body of a job on a write lock keeps lock and mark for as long as it is renewed. If
    /// `least` is over by then, or [`AtLeast::if_ok`] meets an `Err`, the lock is released instead, without a mark. A dropped or
    /// panicking `body` also releases it.
    ///
    /// A process that ends during `body`, or before the mark, leaves the lock to its lease: that of the watchdog, or a fixed one, which
    /// `least` extends if it is shorter. The job then counts as not done, and the next call after the lease runs it.
    ///
    /// # Errors
    ///
    /// As [`try_run`](Self::try_run), and [`Error::Config`] for a `least` out of the bounds of a lease, or for a read lock, which
    /// several owners hold at once.
    ///
    /// # Cancel safety
    ///
    /// As [`run`](Self::run). Dropping the future after `body` has returned does not stop the mark.
    ///
    /// # Redisson
    ///
    /// None; ShedLock's `lockAtLeastFor`. Java finds the lock held until the time is over.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    /// use redisson_lock::JobOutcome;
    ///
    /// let cleanup = client.reentrant_lock("job:cleanup");
    /// let least = Duration::from_secs(30);
    /// match cleanup.run_at_least(least, async |_guard| { /* takes a second */ }).await? {
    ///     JobOutcome::Ran(()) => println!("cleaned up"),
    ///     JobOutcome::Done { .. } => println!("another instance has"),
    ///     JobOutcome::Running { .. } => println!("another instance does"),
    ///     JobOutcome::Crashed { lease_left } => println!("try again in {lease_left:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn run_at_least<T: Send + 'static>(
        &self,
        least: impl Into<AtLeast<T>>,
        body: impl AsyncFnOnce(&Guard<K>) -> T,
    ) -> Result<JobOutcome<T>, Error> {
        self.run_job(Duration::ZERO, least.into(), body).await
    }

    /// As [`run_at_least`](Self::run_at_least), but waits for a job that is not done, for no longer than `wait`: if its runner crashes or
    /// fails, this call runs `body`. Returns as soon as the job is done.
    ///
    /// For a job at fixed times, call it at each tick in every instance:
    ///
    /// - `least` is longer than the body ever takes, plus the difference of the instances' clocks, and shorter than the time between two
    ///   ticks. A body that takes longer frees the lock at its end, and a waiting instance runs the job again.
    /// - `wait` is longer than the [watchdog's lease](crate::Config::watchdog_lease), after which the lock of a crashed runner is free,
    ///   and ends before the next tick.
    ///
    /// - All instances have the same [`watchdog_lease`](crate::Config::watchdog_lease), and no other program takes the lock with a shorter one.
    ///
    /// Then each tick runs once, and a crash is taken over. A job that crashed in its middle runs again from its beginning. A waiting
    /// instance that cannot reach the server while the lock is kept does not learn of the mark: where the job must not run again for that,
    /// `least` is longer than `wait` too. The mark does not wait for replicas, so a failover can lose it.
    ///
    /// # Errors
    ///
    /// As [`try_run_for`](Self::try_run_for) and [`run_at_least`](Self::run_at_least).
    ///
    /// # Cancel safety
    ///
    /// As [`run_at_least`](Self::run_at_least).
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn bill() -> Result<u32, std::io::Error> { Ok(1) }
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// use std::time::Duration;
    /// use redisson_lock::AtLeast;
    ///
    /// let billing = client.reentrant_lock("job:billing");
    /// let mut ticks = tokio::time::interval(Duration::from_secs(3600));
    /// loop {
    ///     ticks.tick().await;
    ///     let (wait, least) = (Duration::from_secs(600), AtLeast::if_ok(Duration::from_secs(1800)));
    ///     match billing.run_at_least_for(wait, least, async |_guard| bill().await).await?.ran() {
    ///         Some(Ok(bills)) => println!("{bills} bills"),
    ///         Some(Err(error)) => eprintln!("another instance tries it: {error}"),
    ///         None => println!("another instance's turn"),
    ///     }
    /// }
    /// # }
    /// ```
    pub async fn run_at_least_for<T: Send + 'static>(
        &self,
        wait: Duration,
        least: AtLeast<T>,
        body: impl AsyncFnOnce(&Guard<K>) -> T,
    ) -> Result<JobOutcome<T>, Error> {
        self.run_job(wait, least, body).await
    }

    async fn run_job<T: Send + 'static>(
        &self,
        wait: Duration,
        least: AtLeast<T>,
        body: impl AsyncFnOnce(&Guard<K>) -> T,
    ) -> Result<JobOutcome<T>, Error> {
        let (guard, granted) = match self.begin_job(wait, &least).await? {
            Ok(begun) => begun,
            Err(outcome) => return Ok(outcome),
        };
        let done = run_under(&guard, guard.owner(), body).await?;
        let until = least.until(granted, &done);
        guard.end_job(until, done).await.map(JobOutcome::Ran)
    }

    /// Acquires the lock for a new owner, within `wait`. Returns the guard and the time of the grant, or how the job stands.
    pub(crate) async fn begin_job<T>(
        &self,
        wait: Duration,
        least: &AtLeast<T>,
    ) -> Result<Begun<K, T>, Error> {
        Lease::new(least.time).map_err(Error::config)?;
        if self.spec()?.mode.is_shared() {
            return Err(Error::config(
                "run_at_least needs a lock of one owner, and several owners hold a read lock at once",
            ));
        }
        let long = outlasting(least.time)?;
        let lock = self.owned_by(&Owner::new()).with_options(|options| {
            options.ends_when_done = true;
            if !options.watched && options.lease.duration < long.duration {
                options.lease = long;
            }
        });
        match lock.acquire(Deadline::after(wait)).await? {
            Some(guard) => Ok(Ok((guard, Instant::now()))),
            None => lock.job_outcome().await.map(Err),
        }
    }

    /// How the job of a lock that is not free stands.
    async fn job_outcome<T>(&self) -> Result<JobOutcome<T>, Error> {
        let options = &self.subject()?.options;
        let renewed = options.watched.then_some(options.lease.duration);
        Ok(match self.engine.inspect_job(self.spec()?).await? {
            Inspection {
                holds: 1..,
                remaining: Some(kept_for),
                ..
            } => JobOutcome::Done { kept_for },
            Inspection {
                remaining: Some(lease_left),
                ..
            } if renewed.is_some_and(|lease| lease_left < lease / 2) => {
                JobOutcome::Crashed { lease_left }
            }
            seen => JobOutcome::Running {
                lease_left: seen.remaining,
            },
        })
    }
}

/// The longest time of a release.
const MARGIN: Duration = Duration::from_millis(500);

/// A lease longer than `time`, so that the hold is still valid when a body of nearly that time ends.
fn outlasting(time: Duration) -> Result<Lease, Error> {
    Lease::new((time + time / 50 + MARGIN).min(Lease::MAX)).map_err(Error::config)
}

impl<K: Kind> Guard<K> {
    /// Ends the hold, under which `done` was computed. Keeps the lock until `kept`, if that is later.
    pub(crate) async fn end_job<T: Send + 'static>(
        self,
        kept: Option<Instant>,
        done: T,
    ) -> Result<T, Error> {
        if let Some(until) = kept {
            self.hold().tenure().keep_until(until);
        }
        release_after(self, done).await
    }
}
