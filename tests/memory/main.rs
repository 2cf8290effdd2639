//! Counts the heap bytes of a waiting task exactly, on one thread and with a server in memory.
//!
//! `compare --workload waiting-1` and `waiting-10000` measure resident memory, with a server of its own; docs/benchmarks.md has the figures.

use std::{alloc::System, sync::Arc};

use redisson_lock::{Error, Lock, LockClient, Reentrant};
use redisson_lock_test::InMemoryRedis;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tokio::task::{JoinHandle, yield_now};

#[global_allocator]
static HEAP: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const WAITERS: usize = 1_000;

/// The growth of the heap since `region` began, per waiter.
fn each(region: &Region<'_, System>) -> isize {
    let stats = region.change();
    let more = stats.bytes_allocated as isize - stats.bytes_deallocated as isize;
    more / WAITERS as isize
}

async fn wait(lock: Lock<Reentrant>) -> Result<(), Error> {
    drop(lock.lock().await?);
    Ok(())
}

/// Spawns a task for each name, with a handle of its own.
fn waiters(client: &LockClient, names: &[Arc<str>]) -> Vec<JoinHandle<Result<(), Error>>> {
    let lock = |name: &Arc<str>| client.reentrant_lock(&**name);
    let tasks = names.iter().map(|name| tokio::spawn(wait(lock(name))));
    tasks.collect()
}

/// Runs all tasks until they wait.
async fn settle() {
    for _ in 0..3_000 {
        yield_now().await;
    }
}

/// Returns the heap bytes per task that waits for a lock of another client.
async fn bytes_of_a_waiter(names: Vec<Arc<str>>) -> isize {
    let server = InMemoryRedis::new();
    let holder = server.client().await.unwrap();
    let client = server.client().await.unwrap();
    // The first pair of operations allocates what the client keeps: it is no part of a waiter.
    drop(client.reentrant_lock("first").lock().await.unwrap());
    let mut held = Vec::new();
    for name in &names {
        if let Some(guard) = holder.reentrant_lock(&**name).try_lock().await.unwrap() {
            held.push(guard);
        }
    }
    let mut all = Vec::with_capacity(WAITERS);
    settle().await;
    let region = Region::new(HEAP);
    all.extend(waiters(&client, &names[..1]));
    settle().await;
    all.extend(waiters(&client, &names[1..]));
    settle().await;
    let bytes = each(&region);
    assert!(
        all.iter().all(|task| !task.is_finished()),
        "a task does not wait"
    );
    all.iter().for_each(JoinHandle::abort);
    drop(held);
    bytes
}

/// The only test of this program: the counter of bytes is global.
#[test]
fn a_waiting_task_takes_few_bytes() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    let one: Arc<str> = "order:42".into();
    let of_one = runtime.block_on(bytes_of_a_waiter(vec![one; WAITERS]));
    let named = |i| format!("order:{i:06}").into();
    let of_each = runtime.block_on(bytes_of_a_waiter((0..WAITERS).map(named).collect()));
    println!("one name: {of_one} bytes a waiter; a name each: {of_each}");
    // The feature `metrics` adds the gauges of the acquisition.
    let counted = if cfg!(feature = "metrics") { 96 } else { 0 };
    assert!(
        of_one <= 700 + counted,
        "one name for all: {of_one} bytes a waiter"
    );
    // Part of this is the server in memory, with buffers that it keeps for reuse. Hash seeds are random, so the tables vary in size.
    assert!(
        of_each <= 2_150 + counted,
        "a name each: {of_each} bytes a waiter"
    );
}
