//! Owners of locks.

use std::{
    fmt,
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering},
};

use bytes::Bytes;
use uuid::Uuid;

use crate::simulation;

tokio::task_local! {
    static SCOPE: Owner;
}

thread_local! {
    static THREAD: Owner = Owner(next(&THREADS, Space::Thread));
}

static THREADS: AtomicU64 = AtomicU64::new(1);
static EXPLICIT: AtomicU64 = AtomicU64::new(1);

/// The identity that holds a lock, within one [`LockClient`](crate::LockClient). Redisson's owner is a thread.
///
/// Locks are reentrant per owner. An operation acts for [`Owner::current`], unless [`owned_by`](crate::Lock::owned_by) names
/// another owner.
///
/// # Tasks that share an owner
///
/// The branches of one `join!`, `select!`, `join_all` or `buffer_unordered` run in **one task**, so they have **one
/// owner** and do **not** exclude each other: each branch enters the lock that another branch of the same task holds.
/// Give each branch an owner of its own:
///
/// ```
/// # async fn example(client: redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
/// use redisson_lock::Owner;
///
/// async fn work(client: &redisson_lock::LockClient) -> Result<(), redisson_lock::Error> {
///     let guard = client.reentrant_lock("order:42").lock().await?;
///     // No other owner is here.
///     guard.unlock().await?;
///     Ok(())
/// }
///
/// let (first, second) = (Owner::new(), Owner::new());
/// tokio::try_join!(first.scope(work(&client)), second.scope(work(&client)))?;
/// # Ok(())
/// # }
/// ```
///
/// A server such as hyper or axum answers all requests of one HTTP/1 connection in **one task**, one after the other: they are one
/// owner. If a handler's hold outlives its answer (a leaked guard, or a guard in a spawned task), the hold does not exclude the
/// connection's next request. Such a handler acquires the lock for a new owner: `lock.owned_by(&Owner::new())`.
///
/// One owner's operations on one lock follow each other. A future of this crate that was polled, and is then neither polled nor
/// dropped, can delay later operations of the same owner on the same lock. It delays no other owner.
///
/// # Spawned tasks
///
/// A spawned task is a new owner, and waits for locks that the spawning task holds. [`Owner::spawn`] on [`Owner::current`] keeps
/// the owner.
///
/// # Redisson
///
/// The `n` in the lock's field `<client id>:<n>`; in Java, the thread id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(NonZeroU64);

const FIRST: NonZeroU64 = match NonZeroU64::new(1 << 62) {
    Some(first) => first,
    None => NonZeroU64::MIN,
};

/// Where an owner number comes from: numbers of different sources differ.
#[derive(Clone, Copy)]
enum Space {
    Task = 1,
    Thread = 2,
    Explicit = 3,
}

/// A number fits in a signed 64-bit integer, as in Java: two bits for the source, 60 for the count. The highest bit is set, so every
/// number has 19 digits, more than a Java thread id, and begins with `4611`. The fair lock's scripts recognise this crate's waiters
/// by both.
fn number(count: u64, space: Space) -> NonZeroU64 {
    FIRST | (((count << 2) | space as u64) & (i64::MAX as u64))
}

/// Whether the number behind the client's id in an owner is of this crate: threads of Java have smaller ones.
pub(crate) fn is_of_this_crate(number: &str) -> bool {
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let number = number.parse().ok().filter(|_| is_number);
    number.is_some_and(|number: u64| number >= FIRST.get())
}

fn next(counter: &AtomicU64, space: Space) -> NonZeroU64 {
    number(counter.fetch_add(1, Ordering::Relaxed), space)
}

impl Owner {
    /// Returns the owner of the running code: the innermost [`scope`](Self::scope), else the tokio task, else the thread.
    ///
    /// A future under `block_on` runs in no task: its owner is the thread.
    ///
    /// # Redisson
    ///
    /// `Thread.currentThread().getId()`.
    pub fn current() -> Self {
        SCOPE
            .try_with(|owner| *owner)
            .ok()
            .or_else(|| tokio::task::try_id().map(Self::of_task))
            .unwrap_or_else(Self::of_thread)
    }

    /// The owner of this thread, whatever task runs on it.
    pub(crate) fn of_thread() -> Self {
        THREAD.with(|owner| *owner)
    }

    /// Returns a new owner, different from every other owner of this process.
    #[allow(
        clippy::new_without_default,
        reason = "a default is expected to equal another default"
    )]
    pub fn new() -> Self {
        Self(match simulation::owner_number() {
            Some(count) => number(count, Space::Explicit),
            None => next(&EXPLICIT, Space::Explicit),
        })
    }

    /// Runs `future` as this owner, whichever task polls it.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use redisson_lock::Owner;
    ///
    /// let owner = Owner::new();
    /// let seen = owner.scope(async { Owner::current() }).await;
    /// assert_eq!(seen, owner);
    /// # });
    /// ```
    pub fn scope<F: Future>(self, future: F) -> impl Future<Output = F::Output> {
        SCOPE.scope(self, future)
    }

    /// Spawns a task that acts as this owner. An acquisition of the task adds a hold to those of this owner.
    ///
    /// # Panics
    ///
    /// As [`tokio::spawn`], outside of a tokio runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// use redisson_lock::Owner;
    ///
    /// let owner = Owner::current();
    /// let seen = owner.spawn(async { Owner::current() }).await.unwrap();
    /// assert_eq!(seen, owner);
    /// # }
    /// ```
    pub fn spawn<F>(self, future: F) -> tokio::task::JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        tokio::spawn(self.scope(future))
    }

    fn of_task(id: tokio::task::Id) -> Self {
        // A task id shows its number only as text.
        let mut digits = Digits(0);
        let _ = fmt::write(&mut digits, format_args!("{id}"));
        Self(number(digits.0, Space::Task))
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.0)
    }
}

/// Collects the digits of a text as a number.
struct Digits(u64);

impl fmt::Write for Digits {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes().filter(u8::is_ascii_digit) {
            self.0 = self.0.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        }
        Ok(())
    }
}

/// An owner, unique among all clients of a server: `<client id>:<n>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerId {
    client: Uuid,
    owner: Owner,
}

impl OwnerId {
    pub(crate) fn new(client: Uuid, owner: Owner) -> Self {
        Self { client, owner }
    }

    pub(crate) fn client(&self) -> Uuid {
        self.client
    }

    /// Returns the owner within its client.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The field of the lock's hash.
    pub(crate) fn field(&self) -> Bytes {
        // Rendered for every acquisition, so by hand.
        let mut text = [0; Field::ROOM];
        self.client.as_hyphenated().encode_lower(&mut text);
        text[36] = b':';
        let mut number = self.owner.0.get();
        let digits = number.checked_ilog10().unwrap_or(0) as usize + 1;
        for digit in text[37..37 + digits].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        let length = 37 + digits;
        // Other `Bytes` allocate again at their first clone.
        Bytes::from_owner(Field { text, length })
    }
}

/// A rendered [`OwnerId`].
struct Field {
    text: [u8; Field::ROOM],
    length: usize,
}

impl Field {
    /// 36 characters of the client's id, a colon and up to 20 digits.
    const ROOM: usize = 36 + 1 + 20;
}

impl AsRef<[u8]> for Field {
    fn as_ref(&self) -> &[u8] {
        &self.text[..self.length]
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.client, self.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fair lock's scripts know owners of this crate by it.
    #[test]
    fn numbers_begin_alike_for_as_long_as_a_process_lasts() {
        for count in [0, 10_000_000_000_000] {
            let text = number(count, Space::Explicit).to_string();
            assert!(text.len() == 19 && text.starts_with("4611"), "{text}");
        }
    }

    #[test]
    fn sources_never_meet_and_fit_java() {
        for count in [0, 1, u64::MAX >> 3, u64::MAX] {
            let numbers =
                [Space::Task, Space::Thread, Space::Explicit].map(|space| number(count, space));
            assert!(
                numbers
                    .iter()
                    .all(|&number| i64::try_from(number.get()).is_ok())
            );
            assert!(numbers.iter().all(|number| number.to_string().len() == 19));
            assert!(
                numbers[0] != numbers[1] && numbers[1] != numbers[2] && numbers[0] != numbers[2]
            );
        }
    }

    #[test]
    fn without_a_task_the_owner_is_the_thread() {
        let here = Owner::current();
        assert_eq!(here, Owner::current());
        let there = std::thread::spawn(Owner::current).join().unwrap();
        assert_ne!(here, there);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        assert_eq!(runtime.block_on(async { Owner::current() }), here);
    }

    #[tokio::test]
    async fn every_task_is_an_owner_and_a_scope_goes_before() {
        let id = |task: tokio::task::JoinHandle<Owner>| async { task.await.unwrap() };
        let first = id(tokio::spawn(async { Owner::current() })).await;
        let second = id(tokio::spawn(async { Owner::current() })).await;
        assert_ne!(first, second);
        let outer = Owner::new();
        let inner = Owner::new();
        outer
            .scope(async {
                assert_eq!(Owner::current(), outer);
                inner
                    .scope(async { assert_eq!(Owner::current(), inner) })
                    .await;
                assert_eq!(Owner::current(), outer);
            })
            .await;
        assert_eq!(
            tokio::spawn(outer.scope(async { Owner::current() }))
                .await
                .unwrap(),
            outer
        );
    }

    #[test]
    fn an_owner_id_is_the_client_and_a_number() {
        let owner = |number| Owner(NonZeroU64::new(number).expect("no owner is 0"));
        let id = OwnerId::new(Uuid::nil(), owner(7));
        assert_eq!(id.to_string(), "00000000-0000-0000-0000-000000000000:7");
        for number in [1, 9, 10, 12345, i64::MAX as u64, u64::MAX] {
            let id = OwnerId::new(Uuid::new_v4(), owner(number));
            assert_eq!(id.field(), id.to_string());
        }
    }
}
