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
//! A call within an async task works, but blocks the executor's thread as any blocking call does. Its owner is that thread: a
//! guard that is kept when the call has returned does not exclude the next task on the thread, unless it is
//! [`owned_by`](Lock::owned_by) another owner. If the task runs on the runtime of the client itself, the call hands the
//! tasks of its thread to another thread ([`block_in_place`](tokio::task::block_in_place)). A runtime with a single thread
//! has none, so the call panics with tokio's message; so it does in a `LocalSet`.
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
    pin::pin,
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
    let is_single = runtime.runtime_flavor() == RuntimeFlavor::CurrentThread;
    match is_single && is_its_thread(runtime) {
        true => drop(held),
        false => drop(wait_for(runtime, release(held))),
    }
}

/// Whether this is a thread of `runtime`.
fn is_its_thread(runtime: &Handle) -> bool {
    Handle::try_current().is_ok_and(|here| here.id() == runtime.id())
}

/// Runs `future` on this thread, with the timers of `runtime`. Unlike tokio's, it may be called within an async task.
fn wait_for<F: Future>(runtime: &Handle, future: F) -> F::Output {
    match is_its_thread(runtime) {
        // This thread may be the only one that can run the connection's task, which tokio keeps for it.
        // Panics in a task of a current-thread runtime, and does nothing in `spawn_blocking`.
        true => tokio::task::block_in_place(|| run(runtime, future)),
        false => run(runtime, future),
    }
}

fn run<F: Future>(runtime: &Handle, future: F) -> F::Output {
    let _entered = runtime.enter();
    // Tokio would never refill the budget of a task that calls this.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Arc::new(Sleeper(thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}
