//! Groups of locks: groups with a common member exclude each other, and a group that times out
//! leaves nothing behind.

use testbed::unique_name;

use crate::holding::count;
use crate::kinds::{Kind, MULTI, RED_LOCK, REENTRANT};
use crate::stage::{AMPLE, LONG, Pace, Stage, Version};
use crate::worker::{Lock, Worker};

/// A multi-lock of plain locks.
fn group(names: &[&str]) -> Lock {
    let members: Vec<String> = names
        .iter()
        .map(|name| format!("reentrant:{name}"))
        .collect();
    Lock {
        name: members.join(","),
        kind: &MULTI,
    }
}

fn plain(name: &str) -> Lock {
    Lock {
        name: name.to_owned(),
        kind: &REENTRANT,
    }
}

pub async fn one_member_in_common_excludes(version: Version) {
    let stage = version.stage().await;
    for (one, other) in [(&stage.java, &stage.rust), (&stage.rust, &stage.java)] {
        let names = ["a", "b", "c"].map(unique_name);
        let [a, b, c] = names.each_ref().map(String::as_str);
        let holder = group(&[a, b]).worker(one);
        let rival = group(&[c, b]).worker(other);
        holder.lock().await;
        assert!(!rival.try_lock().await, "{rival} took {b}");
        assert!(
            !rival
                .try_lock_for(std::time::Duration::from_millis(700))
                .await
                .0
        );
        assert_eq!(
            stage.pttl(&plain(c)).await,
            -2,
            "{rival} has left {c} locked"
        );
        for name in [a, b] {
            assert!(!plain(name).worker(other).try_lock().await, "{name}");
        }
        holder.unlock().await;
        assert!(rival.try_lock().await, "{holder} has left {b} locked");
        assert!(!holder.try_lock().await, "{holder} took {b}");
        assert_eq!(
            stage.pttl(&plain(a)).await,
            -2,
            "{holder} has left {a} locked"
        );
        rival.unlock().await;
        assert_eq!(
            stage.pttl(&plain(b)).await,
            -2,
            "{rival} has left {b} locked"
        );
    }
}

/// A group with members of four kinds, against single locks of the other side.
pub async fn members_of_any_kind(version: Version) {
    let stage = version.stage().await;
    for (holder, rival) in stage.both_ways(&MULTI) {
        for member in holder.lock.name.split(',') {
            let (kind, name) = member.split_once(':').expect("KIND:NAME");
            let single = single(kind, name).worker(rival.peer);
            holder.lock().await;
            assert!(!single.try_lock().await, "{rival} took {member}");
            holder.unlock().await;
            assert!(single.try_lock().await, "{holder} still holds {member}");
            assert!(!holder.try_lock().await, "{holder} took {member}");
            single.unlock().await;
        }
        assert!(rival.try_lock().await);
        rival.unlock().await;
    }
}

fn single(kind: &str, name: &str) -> Lock {
    let known = crate::kinds::ALL.iter().find(|known| known.name == kind);
    let kind: &'static Kind = known.expect("the kind is known");
    Lock {
        name: name.to_owned(),
        kind,
    }
}

/// Workers of both languages acquire overlapping groups, in orders that would deadlock if each kept
/// its members. Java's groups use one order, because they would delay each other for seconds
/// otherwise. Rust's use the reverse.
pub async fn opposite_orders_do_not_deadlock(version: Version) {
    let stage = version.stage().await;
    let names = ["a", "b", "c"].map(unique_name);
    let [a, b, c] = names.each_ref().map(String::as_str);
    let orders = [
        (&stage.java, group(&[c, b, a])),
        (&stage.rust, group(&[a, b, c])),
        (&stage.java, group(&[c, b])),
        (&stage.rust, group(&[c, b, a])),
        (&stage.java, group(&[b, a])),
        (&stage.rust, group(&[b, a])),
    ];
    // All groups contain `b`, so one owner holds at a time.
    let workers = orders.each_ref().map(|(peer, group)| group.worker(peer));
    count(&stage, &workers, 20).await;
    for name in [a, b, c] {
        assert_eq!(stage.pttl(&plain(name)).await, -2, "{name} is still held");
    }
}

pub async fn an_unlock_wakes_a_waiting_group(version: Version) {
    let stage = version.stage().await;
    for (holder, waiter) in stage.both_ways(&MULTI) {
        holder.lock_for(LONG).await;
        let waiting = waiter.lock_for(LONG);
        assert!(!waiter.lock.worker(waiter.peer).try_lock().await);
        holder.unlock().await;
        waiting.await;
        assert!(
            !holder.try_lock().await,
            "{holder} acquired the group beside {waiter}"
        );
        waiter.unlock().await;
    }
}

pub async fn a_majority_is_enough(version: Version) {
    let stage = version.stage().await;
    for (holder, rival) in stage.both_ways(&RED_LOCK) {
        let members: Vec<&str> = holder.lock.name.split(',').collect();
        let name = members[1].split_once(':').expect("KIND:NAME").1;
        let obstacle = plain(name).worker(rival.peer);
        obstacle.lock().await;
        assert!(
            holder.try_lock_for(AMPLE).await.0,
            "{holder} has two of three"
        );
        assert!(
            !rival
                .try_lock_for(std::time::Duration::from_secs(1))
                .await
                .0
        );
        holder.unlock().await;
        assert!(
            obstacle.is_held().await,
            "{holder} has released a lock of {rival}"
        );
        assert!(
            rival.try_lock_for(AMPLE).await.0,
            "{rival} has two of three"
        );
        rival.unlock().await;
        obstacle.unlock().await;
    }
}

pub async fn a_dead_java_holder_is_followed(version: Version) {
    let stage = version.own_stage(Pace::SHORT_LEASES).await;
    let [(holder, waiter), _] = stage.both_ways(&MULTI);
    outlived(&stage, holder, waiter).await;
}

pub async fn a_dead_rust_holder_is_followed(version: Version) {
    let stage = version.own_stage(Pace::SHORT_LEASES).await;
    let [_, (holder, waiter)] = stage.both_ways(&MULTI);
    outlived(&stage, holder, waiter).await;
}

/// All members are renewed while their holder lives, and expire after its death.
async fn outlived(stage: &Stage, holder: Worker<'_>, waiter: Worker<'_>) {
    let lease = Pace::SHORT_LEASES.watchdog;
    holder.lock().await;
    tokio::time::sleep(lease + lease / 2).await;
    assert!(
        !waiter.try_lock().await,
        "{waiter} acquired the group beside {holder}"
    );
    for member in holder.lock.name.split(',') {
        let name = member.split_once(':').expect("KIND:NAME").1;
        assert!(
            stage.pttl(&plain(name)).await > 0,
            "{member} is not renewed"
        );
    }
    let waiting = waiter.lock();
    holder.peer.kill();
    assert!(
        tokio::time::timeout(AMPLE, waiting).await.is_ok(),
        "{waiter} did not acquire the group of a dead holder"
    );
    waiter.unlock().await;
}
