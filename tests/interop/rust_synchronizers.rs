//! Semaphores and latches of the Rust peer, for the verb `sync`: KIND NAME CALL [args...], with the names of Redisson's methods, as
//! in `Synchronizers.java`. Permits have no guards here, because any label may release them.

use std::time::Duration;

use redisson_lock::{ExpirablePermit, LockClient, Permit};

use crate::rust_peer::Failure;

pub async fn call(client: &LockClient, words: &[String]) -> Result<String, Failure> {
    let [kind, name, call, args @ ..] = words else {
        return Err("expected: sync KIND NAME CALL [args...]".into());
    };
    let (pool, latch) = (client.semaphore(name), client.count_down_latch(name));
    let expirable = client.permit_expirable_semaphore(name);
    let word = |index: usize| args.get(index).map_or("", String::as_str);
    let number = |index: usize| word(index).parse::<i64>().unwrap_or_default();
    let few = number(0) as u32;
    let millis = |index: usize| Duration::from_millis(number(index) as u64);
    let leased = |index: usize| expirable.with_lease(millis(index));
    let kept = |permits: Vec<ExpirablePermit>| {
        let ids = permits.iter().map(|permit| permit.id().to_owned());
        let ids = ids.collect::<Vec<_>>().join(",");
        permits.into_iter().for_each(ExpirablePermit::leak);
        ids
    };
    Ok(match (&kind[..], &call[..]) {
        ("semaphore", "trySetPermits") => pool.try_set_permits(few).await?.to_string(),
        ("semaphore", "acquire") => done(pool.acquire_many(few).await.map(Permit::leak))?,
        ("semaphore", "tryAcquire") => held(pool.try_acquire_many(few).await?),
        ("semaphore", "tryAcquireFor") => held(pool.try_acquire_many_for(few, millis(1)).await?),
        ("semaphore", "release") => done(pool.release(few).await)?,
        ("semaphore", "addPermits") => done(pool.add_permits(number(0)).await)?,
        ("semaphore", "drainPermits") => pool.drain_permits().await?.to_string(),
        ("semaphore", "availablePermits") => pool.available_permits().await?.to_string(),
        ("expirable", "trySetPermits") => expirable.try_set_permits(few).await?.to_string(),
        ("expirable", "setPermits") => done(expirable.set_permits(few).await)?,
        ("expirable", "addPermits") => done(expirable.add_permits(number(0)).await)?,
        ("expirable", "tryAcquire") => match leased(0).try_acquire().await? {
            Some(permit) => kept(vec![permit]),
            None => "null".to_owned(),
        },
        ("expirable", "acquireList") => kept(leased(1).acquire_many(few).await?),
        ("expirable", "tryAcquireList") => {
            let endless = expirable.with_lease(Duration::MAX);
            kept(endless.try_acquire_many(few).await?.unwrap_or_default())
        }
        ("expirable", "tryRelease") => expirable.release(word(0)).await?.to_string(),
        ("expirable", "tryReleaseList") => {
            let ids = word(0).split(',');
            let released = expirable.release_many(ids.clone()).await?;
            if released { ids.count() } else { 0 }.to_string()
        }
        ("expirable", "updateLeaseTime") => {
            let updated = expirable.update_lease(word(0), millis(1)).await?;
            updated.to_string()
        }
        ("expirable", "availablePermits") => expirable.available_permits().await?.to_string(),
        ("expirable", "acquiredPermits") => expirable.acquired_permits().await?.to_string(),
        ("expirable", "getPermits") => expirable.permits().await?.to_string(),
        ("latch", "trySetCount") => latch.try_set_count(number(0) as u64).await?.to_string(),
        ("latch", "countDown") => done(latch.count_down().await)?,
        ("latch", "getCount") => latch.count().await?.to_string(),
        ("latch", "await") => done(latch.wait().await)?,
        ("latch", "awaitFor") => latch.wait_for(millis(0)).await?.to_string(),
        ("latch", "delete") => latch.delete().await?.to_string(),
        _ => return Err(format!("no such call: {kind} {call}").into()),
    })
}

/// The answer to a call without a result.
fn done(answer: Result<(), redisson_lock::Error>) -> Result<String, Failure> {
    answer.map(|()| String::new()).map_err(Into::into)
}

fn held(permit: Option<Permit>) -> String {
    permit.map(Permit::leak).is_some().to_string()
}
