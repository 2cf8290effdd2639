//! Queries and the forced release of a lock: methods that need no hold.

use std::time::Duration;

use super::Lock;
use crate::{
    error::Error,
    wire::{
        Inspection, Kind, Queued,
        holders::{Holder, Waiter},
    },
};

impl<K: Kind> Lock<K> {
    /// Frees the lock from any owner, and wakes a waiter. Returns whether it freed a hold.
    ///
    /// Holders of this client learn of the loss at once. A holder of another client learns of it at its next renewal. With a fixed
    /// lease, it may learn of it only at [`Guard::valid_until`](crate::Guard::valid_until). Waits for one answer of the server.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] when the key holds something else, which stays unchanged; [`Error::Unavailable`] when no answer came
    /// within [`Config::command_wait`](crate::Config::command_wait), and the server may still free the lock; [`Error::Redis`],
    /// [`Error::InvalidName`], [`Error::Closed`].
    ///
    /// # Cancel safety
    ///
    /// After a drop of the future, the server may or may not free the lock.
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
        self.engine.force_release(self.spec()?).await
    }

    /// Whether the lock is held, by any owner. A side of a read-write lock reports its own holds: `read().is_locked()` is false while
    /// another owner only writes.
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
        let known = self.engine.known_holds(self.spec()?, self.owner());
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

    /// Returns the holders of the lock on the server: owners of all clients, and threads of Java; at most 1,000.
    ///
    /// Either side of a [`ReadWriteLock`](crate::ReadWriteLock) lists the readers and the writer. While a client hands a lock off in
    /// memory ([`Config::local_hand_off`](crate::Config::local_hand_off)), the server shows the owner to which it granted the lock;
    /// [`LockClient::holds`](crate::LockClient::holds) shows the present owner of this client. Waits for one answer of the server,
    /// which may be out of date when it arrives. For a holder of a client that is new to this one, it waits for a second answer: the
    /// list of connections, which may be long. Without that right (`+client|list`) the name is missing.
    ///
    /// # Errors
    ///
    /// As [`is_locked`](Self::is_locked). [`Error::Redis`] also where the user lacks the right (`+hgetall`).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// for holder in client.reentrant_lock("order:42").holders().await? {
    ///     // 0f8c7a52-..:4611686018427387907 (orders-7@web-1), held for at most 61.0 s, 29.4 s left
    ///     println!("held by {holder}");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn holders(&self) -> Result<Vec<Holder>, Error> {
        self.engine.holders(self.spec()?).await
    }

    async fn inspect(&self) -> Result<Inspection, Error> {
        self.engine.inspect(self.spec()?, self.owner()).await
    }
}

impl<K: Queued> Lock<K> {
    /// The waiters in the lock's queue, the next to be served first: owners of all clients, and threads of Java; at most 1,000.
    ///
    /// Fair locks alone have a queue on the server. Each waiting owner has one entry; several owners of one client have several.
    /// Waits for one answer of the server, which may be out of date when it arrives.
    ///
    /// # Errors
    ///
    /// [`Error::WrongKind`] when the queue is another program's data; otherwise as [`holders`](Self::holders).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only asks.
    ///
    /// # Redisson
    ///
    /// None.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
    /// let next = client.fair_lock("printer").waiters().await?.into_iter().next();
    /// println!("next: {}", next.map_or("none".into(), |waiter| waiter.owner));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn waiters(&self) -> Result<Vec<Waiter>, Error> {
        self.engine.waiters(self.spec()?).await
    }
}
