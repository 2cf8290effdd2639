//! Releases that the server refuses for a while, in any words. The client repeats each until the server executes it, or until the
//! lease is over. One arranged case per test, under a paused clock.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use histories::handle::{Asker, Wait};
use redisson_lock::{All, Config, Error, GroupLock, LockClient, LostReason, Owner, Released};
use redisson_lock_test::{
    InMemoryRedis,
    simulation::{Ending, Fate, Faults},
};
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;

use crate::{
    campaign::history::SUBJECTS,
    support::{LEASE, SHORT, log_lines::LogLines, parked, polling_client, until},
};

/// What servers, proxies and providers say that do not execute a command now.
const WORDS: [&str; 9] = [
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "ERR max requests limit exceeded. Limit: 500000, Usage: 500000.",
    "READONLY You can't write against a read only replica.",
    "NOREPLICAS Not enough good replicas to write.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "CLUSTERDOWN The cluster is down",
    "NOPERM this user has no permissions to run the 'publish' command",
    "ERR try again later",
    "some words without a code",
];

/// As long as a server needs to recover, and as long as a release pauses at most.
const OUTAGE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_secs(2);

/// Refuses scripts in these words.
#[derive(Clone, Default)]
struct Refusing(Arc<State>);

#[derive(Default)]
struct State {
    words: Mutex<Option<&'static str>>,
    refused: AtomicU64,
    /// Whether the next script is lost with its connection.
    cuts: AtomicBool,
}

impl Refusing {
    fn say(&self, words: Option<&'static str>) {
        *self.0.words.lock().unwrap_or_else(PoisonError::into_inner) = words;
    }

    fn refused(&self) -> u64 {
        self.0.refused.load(Relaxed)
    }
}

impl Faults for Refusing {
    fn sending(&mut self, _connection: u64, command: &'static str) -> Fate {
        let cuts = command.starts_with("EVAL") && self.0.cuts.swap(false, Relaxed);
        Fate {
            ending: cuts.then_some(Ending::Unsent),
            ..Fate::default()
        }
    }

    fn refusal(&mut self, command: &'static str) -> Option<String> {
        let words = *self.0.words.lock().unwrap_or_else(PoisonError::into_inner);
        let words = words.filter(|_| command.starts_with("EVAL"))?;
        self.0.refused.fetch_add(1, Relaxed);
        Some(words.into())
    }
}

async fn server() -> (InMemoryRedis, Refusing, LockClient) {
    let (server, refusing) = (InMemoryRedis::new(), Refusing::default());
    server.set_faults(refusing.clone());
    let client = polling_client(&server).await;
    (server, refusing, client)
}

/// All kinds of locks, and groups: a dropped guard leaves nothing once the server has recovered.
#[tokio::test(start_paused = true)]
async fn dropped_guard_of_every_kind_is_released_when_the_server_recovers() {
    for subject in SUBJECTS {
        for words in WORDS {
            let (server, refusing, client) = server().await;
            let names = [(0, "a"), (0, "b")];
            for (side, make) in subject.sides {
                let lock = make(Asker {
                    clients: std::slice::from_ref(&client),
                    names: &names,
                    owner: Owner::new(),
                    lease: None,
                });
                let guard = lock.take(Wait::None).await.expect("the server is up");
                refusing.say(Some(words));
                drop(guard.expect("the lock is free"));
                sleep(OUTAGE).await;
                refusing.say(None);
                sleep(PAUSE).await;
                let held = [server.holders("a"), server.holders("b")].concat();
                assert!(
                    held.is_empty(),
                    "{} {side:?} {words}: {held:?}",
                    subject.name
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn unlock_of_a_server_that_recovers_in_time_succeeds() {
    for words in WORDS {
        let (server, refusing, client) = server().await;
        let lock = client.reentrant_lock("a").owned_by(&Owner::new());
        let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
        for (guard, left) in [
            (inner, Released::StillHeld { holds: 1 }),
            (outer, Released::Fully),
        ] {
            refusing.say(Some(words));
            let unlocking = tokio::spawn(guard.unlock());
            sleep(Duration::from_secs(1)).await;
            refusing.say(None);
            assert_eq!(unlocking.await.unwrap(), Ok(left), "{words}");
        }
        assert!(server.holders("a").is_empty());
    }
}

/// The caller gets the server's words after `command_wait`, and the client goes on.
#[tokio::test(start_paused = true)]
async fn unlock_that_is_refused_for_long_reports_the_words_and_goes_on() {
    for words in WORDS {
        let (server, refusing, client) = server().await;
        let guard = client.reentrant_lock("a").lock().await.unwrap();
        refusing.say(Some(words));
        let began = Instant::now();
        let error = guard.unlock().await.unwrap_err();
        assert_eq!(began.elapsed(), Config::default().command_wait, "{words}");
        assert!(
            matches!(error, Error::Redis { .. } | Error::Unavailable { .. }),
            "{error:?}"
        );
        assert!(format!("{error:?}").contains(words), "{error:?}");
        refusing.say(None);
        sleep(PAUSE).await;
        assert!(server.holders("a").is_empty(), "{words}");
    }
}

/// Nothing renews a hold whose release is refused (invariant 6). Its lease ends it, and its repetitions.
#[tokio::test(start_paused = true)]
async fn refused_release_ends_with_the_lease_and_is_not_renewed() {
    let certain = WORDS.map(|words| (words, false));
    // The client looks for its holds on a new connection, and repeats that after words of a passing state.
    let in_doubt = [
        "NOPERM this user has no permissions",
        "some words without a code",
    ];
    for (words, in_doubt) in certain
        .into_iter()
        .chain(in_doubt.map(|words| (words, true)))
    {
        let (lines, _keep) = LogLines::record(Level::WARN);
        let (server, refusing, client) = server().await;
        let other = polling_client(&server).await;
        let guard = client.reentrant_lock("a").lock().await.unwrap();
        refusing.say(Some(words));
        // A refusal on the next connection ends the doubt about the last one.
        refusing.0.cuts.store(in_doubt, Relaxed);
        drop(guard);
        sleep(LEASE / 2).await;
        let left = server.remaining_lease("a").expect("it is held");
        assert!(left <= LEASE / 2, "{words}: renewed, {left:?} left");
        assert_eq!(lines.with("the server refuses a release").len(), 1);
        sleep(LEASE / 2 + PAUSE).await;
        let sent = refusing.refused();
        assert!(sent < 28, "{words}: sent {sent} times");
        sleep(LEASE).await;
        assert_eq!(
            refusing.refused(),
            sent,
            "{words}: repeated after the lease"
        );
        refusing.say(None);
        let granted = timeout(SHORT, other.reentrant_lock("a").lock()).await;
        assert!(granted.expect("the lock is free").is_ok(), "{words}");
        assert!(client.shutdown().await.unreleased.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn refused_release_of_a_short_lease_is_a_loss() {
    let (_server, refusing, client) = server().await;
    let lock = client.reentrant_lock("a").with_lease(SHORT);
    for words in WORDS {
        let guard = lock.lock().await.unwrap();
        refusing.say(Some(words));
        let lost = guard.unlock().await.unwrap_err();
        refusing.say(None);
        let is_expired = matches!(
            lost,
            Error::Lost {
                reason: LostReason::Expired,
                ..
            }
        );
        assert!(is_expired, "{words}: {lost:?}");
    }
}

/// The owner's next acquisition follows the release, and does not find the old hold.
#[tokio::test(start_paused = true)]
async fn acquisition_after_a_refused_release_begins_a_new_hold() {
    let (server, refusing, client) = server().await;
    let lock = client.reentrant_lock("a").owned_by(&Owner::new());
    for words in WORDS {
        let guard = lock.lock().await.unwrap();
        refusing.say(Some(words));
        drop(guard);
        let next = tokio::spawn({
            let lock = lock.clone();
            async move { lock.lock().await }
        });
        sleep(OUTAGE).await;
        refusing.say(None);
        let next = next.await.unwrap().unwrap();
        assert_eq!(server.holders("a")[0].1, 1, "{words}");
        assert_eq!(next.unlock().await, Ok(Released::Fully));
    }
}

#[tokio::test(start_paused = true)]
async fn members_of_a_group_are_released_when_the_server_recovers() {
    for words in WORDS {
        let (server, refusing, client) = server().await;
        let group = GroupLock::<All>::of(["a", "b", "c"].map(|name| client.reentrant_lock(name)));
        let guard = group.lock().await.unwrap();
        refusing.say(Some(words));
        let unlocking = tokio::spawn(guard.unlock());
        sleep(OUTAGE).await;
        refusing.say(None);
        assert_eq!(unlocking.await.unwrap().unwrap(), Released::Fully);
        assert!(server.keys().is_empty(), "{words}: {:?}", server.keys());
    }
}

/// Permits without a lease are repeated however long it takes: nothing else gives them back.
#[tokio::test(start_paused = true)]
async fn permits_are_given_back_when_the_server_recovers() {
    for words in WORDS {
        let (_server, refusing, client) = server().await;
        let (pool, expiring) = (
            client.semaphore("pool"),
            client.permit_expirable_semaphore("expiring"),
        );
        pool.try_set_permits(2).await.unwrap();
        expiring.try_set_permits(2).await.unwrap();
        let [one, other] = [pool.acquire().await.unwrap(), pool.acquire().await.unwrap()];
        let long = Duration::from_secs(3_600);
        let permits = expiring.with_lease(long).acquire_many(2).await.unwrap();
        refusing.say(Some(words));
        drop((one, permits));
        let error = other.release().await.unwrap_err();
        assert!(format!("{error:?}").contains(words), "{error:?}");
        sleep(long / 2).await;
        refusing.say(None);
        sleep(PAUSE).await;
        let left = [
            pool.available_permits().await,
            expiring.available_permits().await,
        ];
        assert_eq!(left, [Ok(2), Ok(2)], "{words}");
    }
}

/// A place that stays would make the waiters behind it wait until it ends.
#[tokio::test(start_paused = true)]
async fn abandoned_place_in_a_fair_queue_is_removed_when_the_server_recovers() {
    for words in WORDS {
        let (_server, refusing, client) = server().await;
        let lock = client.fair_lock("a");
        let _holder = lock.lock().await.unwrap();
        let waiter = lock.owned_by(&Owner::new());
        let mut waiting = Box::pin(waiter.lock());
        parked(&mut waiting).await;
        refusing.say(Some(words));
        drop(waiting);
        sleep(OUTAGE).await;
        refusing.say(None);
        sleep(PAUSE).await;
        let waiters = lock.waiters().await.unwrap();
        assert!(waiters.is_empty(), "{words}: {waiters:?}");
    }
}

/// A shutdown waits for the release for a bounded time, and reports what stays.
#[tokio::test(start_paused = true)]
async fn shutdown_reports_a_release_that_is_refused_and_waits_for_one_that_recovers() {
    for words in WORDS {
        for recovers in [true, false] {
            let (server, refusing, client) = server().await;
            let guard = client.reentrant_lock("a").lock().await.unwrap();
            refusing.say(Some(words));
            drop(guard);
            let shutdown = tokio::spawn(async move { client.shutdown().await });
            until(|| refusing.refused() > 1).await;
            if recovers {
                refusing.say(None);
            }
            let left = shutdown.await.unwrap().unreleased.len();
            let expected = usize::from(!recovers);
            assert_eq!(
                (left, server.holders("a").len()),
                (expected, expected),
                "{words}"
            );
        }
    }
}

/// A refusal in words of a passing state that outlasts the time of each operation: its error has the words.
#[tokio::test(start_paused = true)]
async fn every_operation_reports_the_words_of_a_server_that_refuses_for_long() {
    const PASSING: [&str; 7] = [
        "NOREPLICAS Not enough good replicas to write.",
        "CLUSTERDOWN The cluster is down",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "READONLY You can't write against a read only replica.",
        "LOADING Redis is loading the dataset in memory",
        "BUSY Redis is busy running a script.",
        "ERR max requests limit exceeded. Limit: 500000, Usage: 500000.",
    ];
    for words in PASSING {
        let (_server, refusing, client) = server().await;
        let owner = Owner::new();
        let lock = client.reentrant_lock("a").owned_by(&owner);
        let fair = client.fair_lock("fair");
        let both = client.read_write_lock("both");
        let pool = client.semaphore("pool");
        let expiring = client.permit_expirable_semaphore("expiring");
        let latch = client.count_down_latch("latch");
        pool.try_set_permits(3).await.unwrap();
        expiring.try_set_permits(3).await.unwrap();
        latch.try_set_count(3).await.unwrap();
        let lease = Duration::from_secs(600);
        let (held, fairly) = (lock.lock().await.unwrap(), fair.lock().await.unwrap());
        let (reading, permit) = (
            both.read().lock().await.unwrap(),
            pool.acquire().await.unwrap(),
        );
        let expires = expiring.with_lease(lease).acquire().await.unwrap();
        let id = expires.id().to_owned();
        refusing.say(Some(words));

        let wait = Duration::from_secs(1);
        let other = client.reentrant_lock("b");
        let queue = client.fair_lock("c");
        let told: Vec<(&str, Option<Error>)> = vec![
            ("extend", held.extend(lease).await.err()),
            ("unlock", held.unlock().await.err()),
            ("behind an unlock", lock.try_lock().await.err()),
            ("unlock of fair", fairly.unlock().await.err()),
            ("unlock of read", reading.unlock().await.err()),
            ("try_lock", other.try_lock().await.err()),
            ("try_lock_for", other.try_lock_for(wait).await.err()),
            ("fair try_lock", queue.try_lock().await.err()),
            ("fair try_lock_for", queue.try_lock_for(wait).await.err()),
            ("is_locked", other.is_locked().await.err()),
            ("holders", other.holders().await.err()),
            ("waiters", queue.waiters().await.err()),
            ("force_unlock", other.force_unlock().await.err()),
            ("permit release", permit.release().await.err()),
            ("release", pool.release(1).await.err()),
            ("add_permits", pool.add_permits(1).await.err()),
            ("drain_permits", pool.drain_permits().await.err()),
            ("try_acquire", pool.try_acquire().await.err()),
            ("try_acquire_for", pool.try_acquire_for(wait).await.err()),
            ("available_permits", pool.available_permits().await.err()),
            (
                "update_lease",
                expiring.update_lease(&id, lease).await.err(),
            ),
            ("lease_left", expiring.lease_left(&id).await.err()),
            (
                "expiring try_acquire",
                expiring.with_lease(lease).try_acquire().await.err(),
            ),
            (
                "expiring try_acquire_for",
                expiring.with_lease(lease).try_acquire_for(wait).await.err(),
            ),
            ("expiring release", expires.release().await.err()),
            ("count_down", latch.count_down().await.err()),
            ("count", latch.count().await.err()),
            ("try_set_count", latch.try_set_count(1).await.err()),
            ("delete", latch.delete().await.err()),
        ];
        let missing: Vec<_> = told
            .iter()
            .filter(|(_, error)| {
                error
                    .as_ref()
                    .is_none_or(|error| !error.to_string().contains(words))
            })
            .collect();
        assert!(missing.is_empty(), "{words}: {missing:#?}");
    }
}

/// An operation that returned `Unavailable` once ran hours later, with all that its caller had begun meanwhile.
#[tokio::test(start_paused = true)]
async fn counts_and_releases_end_with_a_long_quota_and_wait_for_a_server_that_starts() {
    for (words, runs) in [
        ("MISCONF the disk is full", false),
        ("ERR max daily request limit exceeded", false),
        ("NOPERM no right", false),
        ("LOADING Redis is loading the dataset in memory", true),
        ("CLUSTERDOWN The cluster is down", true),
    ] {
        let (_server, refusing, client) = server().await;
        let (pool, latch) = (client.semaphore("pool"), client.count_down_latch("latch"));
        pool.try_set_permits(1).await.unwrap();
        latch.try_set_count(2).await.unwrap();
        refusing.say(Some(words));
        assert!(pool.release(1).await.is_err() && latch.count_down().await.is_err());
        sleep(2 * Config::default().outage_wait).await;
        let sent = refusing.refused();
        sleep(PAUSE + SHORT).await;
        assert_eq!(refusing.refused() > sent, runs, "{words}");
        refusing.say(None);
        sleep(PAUSE).await;
        let expected = if runs { (Ok(2), Ok(1)) } else { (Ok(1), Ok(2)) };
        let now = (pool.available_permits().await, latch.count().await);
        assert_eq!(now, expected, "{words}");
    }
}

/// A provider that limits requests counts those of a waiting call too.
#[tokio::test(start_paused = true)]
async fn acquisitions_and_queries_ask_a_provider_that_refuses_ever_more_seldom() {
    for (words, most) in [
        ("ERR max requests limit exceeded. Limit: 500000", 45),
        ("Too many requests", 45),
        ("MISCONF the disk is full", 45),
        // A failover ends in a moment.
        ("LOADING Redis is loading the dataset in memory", 1_250),
    ] {
        let (_server, refusing, client) = server().await;
        refusing.say(Some(words));
        let wait = Duration::from_secs(60);
        let lock = client.reentrant_lock("a");
        lock.try_lock_for(wait).await.unwrap_err();
        let sent = refusing.refused();
        assert!(sent > most / 2 && sent <= most, "{words}: {sent} requests");
    }
}
