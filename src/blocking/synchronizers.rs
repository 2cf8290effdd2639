//! Semaphores and latches for blocking code.

use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use super::{give_back, wait_for};
use crate::{Error, LostReason};

/// A semaphore for blocking code: see [`crate::Semaphore`], which has the same methods.
#[derive(Debug, Clone)]
pub struct Semaphore(pub(super) crate::Semaphore);

/// Permits for blocking code: see [`crate::Permit`]. Dropping it releases them, and waits for the answer.
#[must_use = "a permit that is dropped is given back"]
#[derive(Debug)]
pub struct Permit(Option<crate::Permit>);

/// A semaphore whose permits end, for blocking code: see [`crate::PermitExpirableSemaphore`], which has the same methods.
#[derive(Debug, Clone)]
pub struct PermitExpirableSemaphore(pub(super) crate::PermitExpirableSemaphore);

/// A permit for blocking code: see [`crate::ExpirablePermit`]. Dropping it releases the permit, and waits for the answer.
#[must_use = "a permit that is dropped is given back"]
#[derive(Debug)]
pub struct ExpirablePermit(Option<crate::ExpirablePermit>);

/// A latch for blocking code: see [`crate::CountDownLatch`], which has the same methods.
#[derive(Debug, Clone)]
pub struct CountDownLatch(pub(super) crate::CountDownLatch);

/// A method that waits for an async one.
macro_rules! waits {
    ($($name:ident($($argument:ident: $type:ty),*) -> $output:ty, $of:literal;)+) => { $(
        #[doc = concat!("See [`crate::", $of, "::", stringify!($name), "`].")]
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`crate::", $of, "::", stringify!($name), "`].")]
        pub fn $name(&self, $($argument: $type),*) -> Result<$output, Error> {
            wait_for(self.runtime(), self.0.$name($($argument),*))
        }
    )+ };
}

/// The same for a method that returns a permit.
macro_rules! takes {
    ($permit:ident; $($name:ident($($argument:ident: $type:ty),*), $of:literal;)+) => { $(
        #[doc = concat!("See [`crate::", $of, "::", stringify!($name), "`].")]
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`crate::", $of, "::", stringify!($name), "`].")]
        pub fn $name(&self, $($argument: $type),*) -> Result<$permit, Error> {
            let taken = wait_for(self.runtime(), self.0.$name($($argument),*))?;
            Ok($permit(Some(taken)))
        }
    )+ };
}

/// The same for a method that may return a permit.
macro_rules! tries {
    ($permit:ident; $($name:ident($($argument:ident: $type:ty),*), $of:literal;)+) => { $(
        #[doc = concat!("See [`crate::", $of, "::", stringify!($name), "`].")]
        ///
        /// # Errors
        ///
        #[doc = concat!("As [`crate::", $of, "::", stringify!($name), "`].")]
        pub fn $name(&self, $($argument: $type),*) -> Result<Option<$permit>, Error> {
            let taken = wait_for(self.runtime(), self.0.$name($($argument),*))?;
            Ok(taken.map(|permit| $permit(Some(permit))))
        }
    )+ };
}

impl Semaphore {
    takes! { Permit;
        acquire(), "Semaphore";
        acquire_many(permits: u32), "Semaphore";
    }

    tries! { Permit;
        try_acquire(), "Semaphore";
        try_acquire_many(permits: u32), "Semaphore";
        try_acquire_for(wait: Duration), "Semaphore";
        try_acquire_many_for(permits: u32, wait: Duration), "Semaphore";
    }

    waits! {
        try_set_permits(permits: u32) -> bool, "Semaphore";
        add_permits(permits: i64) -> (), "Semaphore";
        drain_permits() -> i64, "Semaphore";
        available_permits() -> i64, "Semaphore";
        release(permits: u32) -> (), "Semaphore";
    }

    /// The name: see [`crate::Semaphore::name`].
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The key on the server: see [`crate::Semaphore::key`].
    pub fn key(&self) -> &str {
        self.0.key()
    }

    fn runtime(&self) -> &Handle {
        self.0.engine.runtime()
    }
}

impl PermitExpirableSemaphore {
    takes! { ExpirablePermit;
        acquire(), "PermitExpirableSemaphore";
    }

    /// See [`crate::PermitExpirableSemaphore::acquire_many`].
    ///
    /// # Errors
    ///
    /// As [`crate::PermitExpirableSemaphore::acquire_many`].
    pub fn acquire_many(&self, permits: u32) -> Result<Vec<ExpirablePermit>, Error> {
        let taken = wait_for(self.runtime(), self.0.acquire_many(permits))?;
        Ok(ExpirablePermit::all(taken))
    }

    /// See [`crate::PermitExpirableSemaphore::try_acquire_many`].
    ///
    /// # Errors
    ///
    /// As [`crate::PermitExpirableSemaphore::try_acquire_many`].
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<Vec<ExpirablePermit>>, Error> {
        let taken = wait_for(self.runtime(), self.0.try_acquire_many(permits))?;
        Ok(taken.map(ExpirablePermit::all))
    }

    /// See [`crate::PermitExpirableSemaphore::try_acquire_many_for`].
    ///
    /// # Errors
    ///
    /// As [`crate::PermitExpirableSemaphore::try_acquire_many_for`].
    pub fn try_acquire_many_for(
        &self,
        permits: u32,
        wait: Duration,
    ) -> Result<Option<Vec<ExpirablePermit>>, Error> {
        let taken = self.0.try_acquire_many_for(permits, wait);
        Ok(wait_for(self.runtime(), taken)?.map(ExpirablePermit::all))
    }

    tries! { ExpirablePermit;
        try_acquire(), "PermitExpirableSemaphore";
        try_acquire_for(wait: Duration), "PermitExpirableSemaphore";
    }

    waits! {
        try_set_permits(permits: u32) -> bool, "PermitExpirableSemaphore";
        set_permits(permits: u32) -> (), "PermitExpirableSemaphore";
        add_permits(permits: i64) -> (), "PermitExpirableSemaphore";
        available_permits() -> i64, "PermitExpirableSemaphore";
        acquired_permits() -> i64, "PermitExpirableSemaphore";
        permits() -> i64, "PermitExpirableSemaphore";
        release(id: &str) -> bool, "PermitExpirableSemaphore";
        release_many(ids: impl IntoIterator<Item = impl AsRef<str>>) -> bool, "PermitExpirableSemaphore";
        update_lease(id: &str, lease: Duration) -> bool, "PermitExpirableSemaphore";
        lease_left(id: &str) -> Option<Duration>, "PermitExpirableSemaphore";
    }

    /// A handle whose permits have this lease: see [`crate::PermitExpirableSemaphore::with_lease`].
    #[must_use = "it is another handle; this one keeps its lease"]
    pub fn with_lease(&self, lease: Duration) -> Self {
        Self(self.0.with_lease(lease))
    }

    /// A handle whose permits are renewed: see [`crate::PermitExpirableSemaphore::renewed`].
    #[must_use = "it is another handle; this one stays as it is"]
    pub fn renewed(&self) -> Self {
        Self(self.0.renewed())
    }

    /// The name: see [`crate::PermitExpirableSemaphore::name`].
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The key on the server: see [`crate::PermitExpirableSemaphore::key`].
    pub fn key(&self) -> &str {
        self.0.key()
    }

    fn runtime(&self) -> &Handle {
        self.0.engine.runtime()
    }
}

impl CountDownLatch {
    waits! {
        try_set_count(count: u64) -> bool, "CountDownLatch";
        count_down() -> (), "CountDownLatch";
        count() -> u64, "CountDownLatch";
        wait() -> (), "CountDownLatch";
        wait_for(wait: Duration) -> bool, "CountDownLatch";
        delete() -> bool, "CountDownLatch";
    }

    /// The name: see [`crate::CountDownLatch::name`].
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The key on the server: see [`crate::CountDownLatch::key`].
    pub fn key(&self) -> &str {
        self.0.key()
    }

    fn runtime(&self) -> &Handle {
        self.0.engine.runtime()
    }
}

impl Permit {
    /// Releases the permits: see [`crate::Permit::release`].
    ///
    /// # Errors
    ///
    /// As [`crate::Permit::release`].
    pub fn release(mut self) -> Result<(), Error> {
        let Some(permit) = self.0.take() else {
            return Ok(());
        };
        let runtime = permit.runtime().clone();
        wait_for(&runtime, permit.release())
    }

    /// Ends the guard without a release: see [`crate::Permit::leak`].
    pub fn leak(mut self) {
        if let Some(permit) = self.0.take() {
            permit.leak();
        }
    }

    /// The number of permits.
    pub fn permits(&self) -> u32 {
        self.0.as_ref().map_or(0, crate::Permit::permits)
    }

    /// The name of the semaphore.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("", crate::Permit::name)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            let runtime = permit.runtime().clone();
            give_back(&runtime, permit, async |permit| {
                permit.release_or_log().await
            });
        }
    }
}

impl ExpirablePermit {
    fn all(permits: Vec<crate::ExpirablePermit>) -> Vec<Self> {
        let permits = permits.into_iter().map(Some);
        permits.map(Self).collect()
    }

    /// The permit's id: see [`crate::ExpirablePermit::id`].
    pub fn id(&self) -> &str {
        self.0.as_ref().map_or("", crate::ExpirablePermit::id)
    }

    /// Releases the permit: see [`crate::ExpirablePermit::release`].
    ///
    /// # Errors
    ///
    /// As [`crate::ExpirablePermit::release`].
    pub fn release(mut self) -> Result<bool, Error> {
        let Some(permit) = self.0.take() else {
            return Ok(false);
        };
        let runtime = permit.runtime().clone();
        wait_for(&runtime, permit.release())
    }

    /// Ends the guard without a release: see [`crate::ExpirablePermit::leak`].
    pub fn leak(mut self) {
        if let Some(permit) = self.0.take() {
            permit.leak();
        }
    }

    /// Blocks until the permit is lost, and returns the reason: see [`crate::ExpirablePermit::lost`]. For a thread that stops the work of other threads.
    pub fn lost(&self) -> LostReason {
        let permit = self.permit();
        wait_for(permit.runtime(), permit.lost())
    }

    /// Whether the permit is lost: see [`crate::ExpirablePermit::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.permit().is_lost()
    }

    /// A token that is cancelled when the permit is lost, to stop async tasks.
    pub fn cancellation_token(&self) -> CancellationToken {
        self.permit().cancellation_token()
    }

    fn permit(&self) -> &crate::ExpirablePermit {
        let permit = self.0.as_ref();
        permit.expect("only what ends a permit takes it out")
    }

    /// Until when the permit may be relied upon: see [`crate::ExpirablePermit::valid_until`].
    pub fn valid_until(&self) -> Option<Instant> {
        self.0.as_ref()?.valid_until()
    }

    /// The name of the semaphore.
    pub fn name(&self) -> &str {
        self.permit().name()
    }
}

impl Drop for ExpirablePermit {
    fn drop(&mut self) {
        if let Some(permit) = self.0.take() {
            let runtime = permit.runtime().clone();
            give_back(&runtime, permit, async |permit| {
                permit.release_or_log().await
            });
        }
    }
}
