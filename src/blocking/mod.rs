//! Locks for code without async: rayon, diesel, `spawn_blocking`, a plain `main`. Needs the feature `blocking`.
//!
//! The types have the names and the methods of the asynchronous ones; each call blocks its thread until it is done.
//! `Election::lead` is missing, because a thread cannot be stopped from outside, and so is `LockClient::closed`.
//! [`LockClientBuilder::build_blocking`](crate::LockClientBuilder::build_blocking) builds a client.
//!
//! - **The owner is the OS thread**, as in Java: nested calls in one thread re-enter, threads exclude each other. Work that
//!   a thread hands to a pool has another owner, unless it locks with [`Lock::owned_by`].
//! - **The client has a thread of its own**, which renews its holds and receives its messages. Neither busy threads of the
//!   program nor a blocked executor delay a renewal.
//! - **A guard releases its hold when it is dropped**, also in a panic, and waits for the answer as [`Guard::unlock`] does.
//!
//! A call within an async task works, but blocks the executor's thread as any blocking call does. Its owner is that thread.
//! After an `await` the task may run on another thread, and another task on this one: a guard that is kept until then needs
//! [`owned_by`](Lock::owned_by) with an owner of its own.
//!
//! A lock of an asynchronous client needs the runtime of that client. A task of the same runtime hands the tasks of its thread
//! to another thread during the call ([`block_in_place`](tokio::task::block_in_place)). That is impossible in a current-thread
//! runtime and in a `LocalSet`, so the call panics with tokio's message.
//!
//! ```no_run
//! use redisson_lock::blocking::LockClient;
//!
//! let client = LockClient::connect("redis://127.0.0.1:6379")?;
//! let lock = client.reentrant_lock("order:42");
//! let guard = lock.lock()?;
//! // Alone here, among all the Rust and Java services that lock `order:42`.
//! drop(guard);
//! # Ok::<(), redisson_lock::Error>(())
//! ```

mod client;
mod election;
mod group;
mod guard;
mod lock;
mod synchronizers;

use std::{
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, Wake},
    thread::{self, Thread},
};

use tokio::runtime::{Handle, RuntimeFlavor};

pub use client::LockClient;
pub use election::{Election, Term};
pub use group::{GroupLock, MultiGuard, MultiLock, RedLock};
pub use guard::{DynGuard, Guard};
pub use lock::{
    DynLock, FairLock, FencedLock, Lock, NonReentrantFairLock, NonReentrantLock, ReadWriteLock,
    ReentrantLock, SimpleLock, SpinLock,
};
pub use synchronizers::{
    CountDownLatch, ExpirablePermit, Permit, PermitExpirableSemaphore, Semaphore,
};

use crate::{engine::PollsHere, redis::Apart};

/// A thread that sleeps until it is woken.
struct Sleeper(Thread);

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Releases a dropped guard's holds. A release without an answer in time continues in the background.
fn give_back<T: Send + 'static, A>(runtime: &Handle, held: T, release: impl AsyncFnOnce(T) -> A) {
    // At the end of a thread, thread-locals are gone: no part of tokio works any more, not even its clock in tests.
    let current = Handle::try_current();
    if current.is_err_and(|error| error.is_thread_local_destroyed()) {
        runtime.spawn(async move { drop(held) });
        return;
    }
    // A panic during a panic would abort the process.
    let may_panic = thread::panicking() && is_in_its_task(runtime);
    match may_panic || is_its_only_thread(runtime) {
        true => drop(held),
        false => drop(wait_for(runtime, release(held))),
    }
}

fn is_its_thread(runtime: &Handle) -> bool {
    Handle::try_current().is_ok_and(|here| here.id() == runtime.id())
}

fn is_its_only_thread(runtime: &Handle) -> bool {
    runtime.runtime_flavor() == RuntimeFlavor::CurrentThread && is_its_thread(runtime)
}

/// Whether a task of `runtime` runs on this thread, or a closure of `spawn_blocking`.
fn is_in_its_task(runtime: &Handle) -> bool {
    is_its_only_thread(runtime) || (is_its_thread(runtime) && tokio::task::try_id().is_some())
}

type LocalFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Runs `future` on this thread, with the timers of `runtime`. Unlike tokio's, it may be called within an async task.
fn wait_for<F: Future>(runtime: &Handle, future: F) -> F::Output {
    // Boxed, so that these functions are compiled once for each result instead of once for each caller.
    wait_for_boxed(runtime, Box::pin(future))
}

fn wait_for_boxed<T>(runtime: &Handle, future: LocalFuture<T>) -> T {
    match is_in_its_task(runtime) {
        // Tokio may have left the connection's task to this thread. Does nothing in `spawn_blocking`.
        true => tokio::task::block_in_place(|| run(runtime, future)),
        false => run(runtime, future),
    }
}

fn run<T>(runtime: &Handle, future: LocalFuture<T>) -> T {
    let _entered = runtime.enter();
    let _apart = Apart::new();
    let polls = PollsHere::new();
    // Tokio would never refill the budget of a task that calls this.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Arc::new(Sleeper(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        polls.wake_yielded();
        thread::park();
    }
}
