//! A script whose command the server refuses leaves nothing half done (P-A9, P-A10).

use redisson_lock::{Error, LockClient, Owner, Released};
use testbed::{Server, eventually};

use super::{Bed, CHANNEL, Caller, LEASE, LOCK, Listener, Reply, SOON, US};

#[tokio::test]
async fn without_the_right_to_publish_nothing_is_released() {
    let bed = Bed::new().await;
    let rights = ["~*", "+@all", "resetchannels"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    assert_eq!(caller.acquire(US, 1).await, Reply::Done);
    let before = bed.snapshot().await;
    let released = caller.release(US, 0).await;
    assert!(matches!(released, Reply::Failed(_)), "{released:?}");
    let forced = caller.force_release().await;
    assert!(matches!(forced, Reply::Failed(_)), "{forced:?}");
    assert_eq!(bed.snapshot().await, before);
}

#[tokio::test]
async fn without_the_right_to_set_a_lease_nothing_is_taken() {
    let bed = Bed::new().await;
    let rights = ["~*", "&*", "+@all", "-pexpire"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let acquired = caller.acquire(US, 1).await;
    assert!(matches!(acquired, Reply::Failed(_)), "{acquired:?}");
    bed.is_free().await;
}

/// With only the rights of normal work, a lock without expiry is not left either.
#[tokio::test]
async fn a_refused_lock_is_taken_back_without_further_rights() {
    let bed = Bed::new().await;
    let rights = [
        "~*", "&*", "-@all", "+eval", "+pttl", "+hset", "+hmget", "+hget", "+del", "+publish",
    ];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let acquired = caller.acquire(US, 1).await;
    assert!(matches!(acquired, Reply::Failed(_)), "{acquired:?}");
    bed.is_free().await;
}

/// The user loses the right while it holds the lock.
#[tokio::test]
async fn a_refused_step_of_a_nested_hold_changes_nothing() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    assert_eq!(bed.admin.acquire(US, 2).await, Reply::Done);
    let rights = ["~*", "&*", "+@all", "-pexpire"];
    let caller = Caller::with_rights(&bed.server, &rights).await;
    let before = bed.snapshot().await;
    let acquired = caller.acquire_for(US, 2 * LEASE, 3).await;
    assert!(matches!(acquired, Reply::Failed(_)), "{acquired:?}");
    assert_eq!(bed.snapshot().await, before, "the refused step was done");
    let released = caller.release(US, 1).await;
    assert!(matches!(released, Reply::Failed(_)), "{released:?}");
    assert_eq!(bed.snapshot().await, before, "the refused step was done");
    let renewed = caller.renew(US, LEASE).await;
    assert!(matches!(renewed, Reply::Failed(_)), "{renewed:?}");
}

#[tokio::test]
async fn a_refused_release_is_an_error_and_a_later_one_frees_the_lock() {
    let server = Server::start().await;
    let rights = ["ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "&*"];
    server.command::<()>(&rights).await;
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let client = LockClient::connect(&url).await.unwrap();
    let lock = client.reentrant_lock(LOCK);
    let guard = lock.lock().await.unwrap();
    let rules = ["ACL", "SETUSER", "app", "resetchannels"];
    server.command::<()>(&rules).await;
    let error = guard.unlock().await.unwrap_err();
    assert!(matches!(error, Error::Redis { .. }), "{error:?}");
    assert!(error.to_string().contains("channel"), "{error}");
    assert_eq!(
        server.command::<u32>(&["HLEN", LOCK]).await,
        1,
        "the lock is still held"
    );
    server.command::<()>(&["ACL", "SETUSER", "app", "&*"]).await;
    let guard = lock
        .try_lock()
        .await
        .unwrap()
        .expect("the owner's hold is still there");
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
    let report = client.shutdown().await;
    assert_eq!(report.unreleased, [], "the hold was released");
}

/// The right to one kind of channel says nothing about the other kinds.
#[tokio::test]
async fn each_kind_of_channel_is_asked_for_before_an_acquisition() {
    let server = Server::start().await;
    let channels = "&redisson_lock__channel:*";
    let rights = [
        "ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", channels,
    ];
    server.command::<()>(&rights).await;
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    let client = LockClient::connect(&url).await.unwrap();
    let guard = client.reentrant_lock(LOCK).lock().await.unwrap();
    guard.unlock().await.unwrap();
    let refused = client.read_write_lock(LOCK).write().try_lock().await;
    let refused = refused.expect_err("its release could not be announced");
    assert!(refused.to_string().contains("NOPERM"), "{refused}");
    let pool = client.semaphore("pool");
    server.command::<()>(&["SET", "pool", "1"]).await;
    let refused = pool.try_acquire().await.expect_err("as above");
    assert!(refused.to_string().contains("NOPERM"), "{refused}");
    assert_eq!(server.command::<u32>(&["GET", "pool"]).await, 1);
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 1);
}

/// Makes the server refuse every command that may need memory. It uses more than this without any
/// keys.
async fn fill(server: &Server) {
    let settings = [
        "CONFIG",
        "SET",
        "maxmemory-policy",
        "noeviction",
        "maxmemory",
        "1",
    ];
    server.command::<()>(&settings).await;
    let set = redis::cmd("SET").arg("filler").arg("x").to_owned();
    let refused = set.query_async::<()>(&mut server.admin().await).await;
    assert_eq!(refused.unwrap_err().code(), Some("OOM"));
}

#[tokio::test]
async fn out_of_memory_releases_and_renewals_work() {
    let bed = Bed::new().await;
    for holds in 1..=3 {
        assert_eq!(bed.admin.acquire(US, holds).await, Reply::Done);
    }
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    fill(&bed.server).await;
    assert_eq!(bed.admin.renew(US, 5 * LEASE).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    for holds in [2, 1] {
        assert_eq!(bed.admin.release(US, holds).await, Reply::Done);
        bed.expires_in_about(LEASE).await;
    }
    assert_eq!(listener.messages().await, ["0"], "the lease is cut");
    assert_eq!(bed.admin.release(US, 0).await, Reply::Counted(1));
    assert_eq!(bed.ask::<u32>(&["EXISTS", LOCK]).await, 0);
    assert_eq!(listener.messages().await, ["0"]);
}

#[tokio::test]
async fn out_of_memory_acquisitions_are_refused_and_leave_nothing() {
    let bed = Bed::new().await;
    fill(&bed.server).await;
    let acquired = bed.admin.acquire(US, 1).await;
    assert!(acquired.failed_with("OOM"), "{acquired:?}");
    assert_eq!(bed.ask::<u32>(&["EXISTS", LOCK]).await, 0);
}

#[tokio::test]
async fn out_of_memory_forcing_works() {
    let bed = Bed::new().await;
    assert_eq!(bed.admin.acquire(US, 1).await, Reply::Done);
    fill(&bed.server).await;
    assert_eq!(bed.admin.force_release().await, Reply::Done);
    assert_eq!(bed.ask::<u32>(&["EXISTS", LOCK]).await, 0);
}

/// The same through a client. The hold counts are right once there is memory.
#[tokio::test]
async fn out_of_memory_clients_can_unlock_and_acquisitions_are_errors() {
    let server = Server::start().await;
    let client = LockClient::connect(&server.url()).await.unwrap();
    let lock = client.reentrant_lock(LOCK);
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock().await.unwrap();
    fill(&server).await;
    let other = client.reentrant_lock("another");
    let refused = other.try_lock().await.map(drop);
    let text = format!("{refused:?}");
    assert!(
        matches!(refused, Err(Error::Redis { .. })) && text.contains("OOM"),
        "{text}"
    );
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    assert_eq!(
        lock.hold_count().await,
        Ok(1),
        "the client's count is right, whatever the server has"
    );
    server
        .command::<()>(&["CONFIG", "SET", "maxmemory", "0"])
        .await;
    let inner = lock.lock().await.unwrap();
    let count: u32 = server
        .command(&[
            "HGET",
            LOCK,
            &format!("{}:{}", client.id(), Owner::current()),
        ])
        .await;
    assert_eq!(count, 2);
    assert_eq!(inner.unlock().await, Ok(Released::StillHeld { holds: 1 }));
    fill(&server).await;
    assert_eq!(outer.unlock().await, Ok(Released::Fully));
    drop(other);
    let free = async || server.command::<u32>(&["EXISTS", LOCK]).await == 0;
    eventually("the lock is free", SOON, free).await;
}
