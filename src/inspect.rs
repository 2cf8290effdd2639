//! What can be asked of a lock, and done to it, without holding it.

use std::time::Duration;

use crate::{
    error::Error,
    lock::Lock,
    wire::{Inspection, Kind},
};

impl<K: Kind> Lock<K> {
    /// Frees the lock whoever holds it, and wakes a waiter. Says whether anybody held it.
    ///
    /// Holders through this client hear of it at once, others at their next renewal. Waits for one answer of the server.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] when something else stands at the key, which is left alone; [`Error::Unavailable`] when no
    /// answer came within [`Config::command_wait`](crate::Config::command_wait) (it may happen yet); [`Error::Redis`],
    /// [`Error::InvalidName`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves open whether it happens.
    ///
    /// # Redisson
    ///
    /// `forceUnlock()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// if client.reentrant_lock("order:42").force_unlock().await? {
    ///     eprintln!("order:42 was forced open");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "forceUnlock")]
    pub async fn force_unlock(&self) -> Result<bool, Error> {
        self.engine.force_release(self.place()?).await
    }

    /// Whether anybody holds the lock.
    ///
    /// Waits for one answer of the server, which may be out of date when it arrives.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`], [`Error::Unavailable`] when no answer came within
    /// [`Config::command_wait`](crate::Config::command_wait), [`Error::Redis`], [`Error::InvalidName`],
    /// [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// `isLocked()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// assert!(!client.reentrant_lock("order:42").is_locked().await?);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "isLocked")]
    pub async fn is_locked(&self) -> Result<bool, Error> {
        Ok(self.inspect().await?.locked)
    }

    /// Whether this owner holds the lock and may rely on it.
    ///
    /// Waits for one answer of the server; a hold that this process knows to be lost is none, whatever the server says.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// `isHeldByCurrentThread()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let lock = client.reentrant_lock("order:42");
    /// let guard = lock.lock().await?;
    /// assert!(lock.is_held().await?);
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias("isHeldByCurrentThread", "isHeldByThread"))]
    pub async fn is_held(&self) -> Result<bool, Error> {
        Ok(self.hold_count().await? > 0)
    }

    /// How many holds this owner has and may rely on.
    ///
    /// Waits for one answer of the server; holds that this process knows to be lost do not count.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// `getHoldCount()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let lock = client.reentrant_lock("order:42");
    /// let outer = lock.lock().await?;
    /// let inner = lock.lock().await?;
    /// assert_eq!(lock.hold_count().await?, 2);
    /// # drop((outer, inner));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "getHoldCount")]
    pub async fn hold_count(&self) -> Result<u32, Error> {
        let counted = self.inspect().await?.holds;
        let known = self.engine.known_holds(self.place()?, self.owner());
        Ok(counted.min(known))
    }

    /// How long the lock stays locked unless it is renewed or released; `None` when it is free, or without an expiry.
    ///
    /// Waits for one answer of the server, which is out of date when it arrives. A holder goes by
    /// [`Guard::valid_until`](crate::Guard::valid_until).
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// `remainTimeToLive()`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// if let Some(left) = client.reentrant_lock("order:42").remaining_lease().await? {
    ///     println!("locked for {left:?}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "remainTimeToLive")]
    pub async fn remaining_lease(&self) -> Result<Option<Duration>, Error> {
        Ok(self.inspect().await?.remaining)
    }

    async fn inspect(&self) -> Result<Inspection, Error> {
        self.engine.inspect(self.place()?, self.owner()).await
    }
}
