//! The read-write lock's scripts (docs/protocol.md, section 8).

use std::collections::BTreeMap;

use super::{Bed, Caller, LEASE, LOCK, Listener, Reply, THEM, US};

pub const CHANNEL: &str = "redisson_rwlock:{order:42}";
pub const BASE: &str = "{order:42}";
/// The keys of an acquisition of either side.
pub const KEYS: [&str; 2] = [LOCK, "{order:42}:write_intent"];
pub const READ_ACQUIRE: &str = script!("read_write", "expiry", "read_acquire");
pub const READ_RELEASE: &str = script!("read_write", "read_release");
pub const READ_RENEW: &str = script!("read_write", "expiry", "read_renew");
pub const READ_FORCE_RELEASE: &str = script!("read_force_release");
pub const READ_INSPECT: &str = script!("read_inspect");
pub const WRITE_ACQUIRE: &str = script!("expiry", "write_acquire");
pub const WRITE_RELEASE: &str = script!("read_write", "shorten", "write_release");
pub const WRITE_RENEW: &str = script!("expiry", "write_renew");
pub const WRITE_FORCE_RELEASE: &str = script!("write_force_release");
pub const WRITE_INSPECT: &str = script!("write_inspect");

/// A user of both sides' scripts.
pub struct Sides<'a>(pub &'a Caller);

impl Sides<'_> {
    pub async fn read(&self, owner: &str, holds: u32) -> Reply {
        self.read_for(LEASE, owner, holds).await
    }

    pub async fn read_for(&self, lease: i64, owner: &str, holds: u32) -> Reply {
        let (lease, holds) = (lease.to_string(), holds.to_string());
        let relies = if holds == "1" { "0" } else { "1" };
        let arguments = [owner, &lease, &holds, "0", relies, CHANNEL, BASE];
        self.0.run_on(READ_ACQUIRE, &KEYS, &arguments).await
    }

    /// Acquires a read hold inside a write hold of the same owner.
    pub async fn read_inside(&self, lease: i64, owner: &str, holds: u32) -> Reply {
        let (lease, holds) = (lease.to_string(), holds.to_string());
        let relies = if holds == "1" { "0" } else { "1" };
        let arguments = [owner, &lease, &holds, "1", relies, CHANNEL, BASE];
        self.0.run_on(READ_ACQUIRE, &KEYS, &arguments).await
    }

    pub async fn read_end(&self, owner: &str, holds: u32) -> Reply {
        let (lease, holds) = (LEASE.to_string(), holds.to_string());
        let arguments = [owner, &holds, &lease, CHANNEL, BASE];
        self.0.run(READ_RELEASE, &arguments).await
    }

    pub async fn read_renew(&self, owner: &str, lease: i64) -> Reply {
        let arguments = [owner, &lease.to_string(), BASE];
        self.0.run(READ_RENEW, &arguments).await
    }

    pub async fn write(&self, owner: &str, holds: u32) -> Reply {
        let (lease, holds) = (LEASE.to_string(), holds.to_string());
        let arguments = [owner, &lease, &holds, "0"];
        self.0.run_on(WRITE_ACQUIRE, &KEYS, &arguments).await
    }

    pub async fn write_end(&self, owner: &str, holds: u32) -> Reply {
        let (lease, holds) = (LEASE.to_string(), holds.to_string());
        let arguments = [owner, &holds, &lease, CHANNEL, BASE];
        self.0.run(WRITE_RELEASE, &arguments).await
    }

    pub async fn write_renew(&self, owner: &str, lease: i64) -> Reply {
        let arguments = [owner, &lease.to_string()];
        self.0.run(WRITE_RENEW, &arguments).await
    }
}

pub fn marker(owner: &str, hold: u32) -> String {
    format!("{BASE}:{owner}:rwlock_timeout:{hold}")
}

fn writer(owner: &str) -> String {
    format!("{owner}:write")
}

impl Bed {
    /// Fails unless the lock has these fields and this many markers.
    async fn stands(&self, fields: &[(&str, &str)], markers: usize) {
        let owned = |&(field, value): &(&str, &str)| (field.to_owned(), value.to_owned());
        let expected: BTreeMap<String, String> = fields.iter().map(owned).collect();
        assert_eq!(self.fields().await, expected);
        let keys: Vec<String> = self.ask(&["KEYS", "*:rwlock_timeout:*"]).await;
        assert_eq!(keys.len(), markers, "{keys:?}");
    }

    async fn marker_left(&self, owner: &str, hold: u32) -> i64 {
        self.ask(&["PTTL", &marker(owner, hold)]).await
    }
}

#[tokio::test]
async fn readers_share_and_writers_are_alone() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    assert_eq!(sides.read(US, 1).await, Reply::Done);
    bed.stands(&[("mode", "read"), (US, "1")], 1).await;
    bed.expires_in_about(LEASE).await;
    assert_eq!(sides.read(THEM, 1).await, Reply::Done);
    assert_eq!(sides.read(US, 2).await, Reply::Done);
    bed.stands(&[("mode", "read"), (US, "2"), (THEM, "1")], 3)
        .await;
    for writer in [US, THEM, "another"] {
        let answer = sides.write(writer, 1).await;
        assert!(matches!(answer, Reply::Busy(1..)), "{answer:?}");
        assert_eq!(sides.write(writer, 2).await, Reply::Absent);
    }
    assert_eq!(sides.read_end(US, 1).await, Reply::Done);
    assert_eq!(sides.read_end(THEM, 0).await, Reply::Done);
    bed.stands(&[("mode", "read"), (US, "1")], 1).await;
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    bed.is_free().await;

    assert_eq!(sides.write(US, 1).await, Reply::Done);
    bed.stands(&[("mode", "write"), (&writer(US), "1")], 0)
        .await;
    assert_eq!(sides.write(US, 2).await, Reply::Done);
    for answer in [sides.write(THEM, 1).await, sides.read(THEM, 1).await] {
        assert!(matches!(answer, Reply::Busy(1..)), "{answer:?}");
    }
    assert_eq!(sides.read(THEM, 2).await, Reply::Absent);
    assert_eq!(sides.write_end(US, 1).await, Reply::Done);
    assert_eq!(sides.write_end(US, 0).await, Reply::Done);
    bed.is_free().await;
}

#[tokio::test]
async fn a_writer_may_read_and_goes_on_reading() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    assert_eq!(sides.write(US, 1).await, Reply::Done);
    assert_eq!(sides.read_inside(LEASE, US, 1).await, Reply::Done);
    let both = writer(US);
    bed.stands(&[("mode", "write"), (US, "1"), (&both, "1")], 1)
        .await;
    // The read hold ends first.
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    bed.stands(&[("mode", "write"), (&both, "1")], 0).await;
    bed.expires_in_about(LEASE).await;
    assert_eq!(listener.messages().await, [""; 0]);
    // The write hold ends first. The script publishes it, and the rest lives as long as the read
    // hold's lease.
    assert_eq!(sides.read_inside(5 * LEASE, US, 1).await, Reply::Done);
    assert_eq!(sides.write_end(US, 0).await, Reply::Done);
    assert_eq!(listener.messages().await, ["1"]);
    bed.stands(&[("mode", "read"), (US, "1")], 1).await;
    bed.expires_in_about(5 * LEASE).await;
    assert_eq!(sides.read(THEM, 1).await, Reply::Done);
    assert!(matches!(sides.write(US, 1).await, Reply::Busy(_)));
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    let heard = listener.messages().await;
    assert_eq!(heard, ["0"], "waiters rely on the longer lease");
    // A read hold with nearly the same lease as the rest ends without a message.
    assert_eq!(sides.read(US, 1).await, Reply::Done);
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    assert_eq!(listener.messages().await, [""; 0]);
    assert_eq!(sides.read_end(THEM, 0).await, Reply::Counted(1));
    assert_eq!(listener.messages().await, ["0"]);
    bed.is_free().await;
}

/// The hash lives as long as the longest lease of its readers. A write hold's lease is never
/// shortened.
#[tokio::test]
async fn leases_of_readers_and_writer() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    assert_eq!(sides.read_for(5 * LEASE, US, 1).await, Reply::Done);
    assert_eq!(sides.read(THEM, 1).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    assert!(bed.marker_left(THEM, 1).await <= LEASE);
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    bed.expires_in_about(LEASE).await;
    // A dead reader counts until its lease ends.
    bed.ask::<()>(&["DEL", &marker(THEM, 1)]).await;
    assert_eq!(sides.read(US, 1).await, Reply::Done);
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    bed.is_free().await;
    // P-RW1, P-RW2.
    assert_eq!(sides.write(US, 1).await, Reply::Done);
    assert_eq!(sides.write(US, 2).await, Reply::Done);
    bed.expires_in_about(LEASE).await;
    assert_eq!(sides.read_inside(1000, US, 1).await, Reply::Done);
    assert_eq!(sides.read_inside(1000, US, 2).await, Reply::Done);
    for holds in [1, 0] {
        assert_eq!(sides.read_end(US, holds).await, Reply::Done);
        bed.expires_in_about(LEASE).await;
    }
    assert_eq!(sides.read_inside(9 * LEASE, US, 1).await, Reply::Done);
    assert_eq!(sides.write_end(US, 1).await, Reply::Done);
    bed.expires_in_about(9 * LEASE).await;
}

/// P-R3, P-R7: each side by itself, and of the readers only its own.
#[tokio::test]
async fn renewals_concern_one_side_only() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    assert_eq!(sides.write(US, 1).await, Reply::Done);
    assert_eq!(sides.read_renew(US, LEASE).await, Reply::Absent);
    assert_eq!(sides.write_renew(THEM, LEASE).await, Reply::Absent);
    assert_eq!(sides.read_inside(LEASE, US, 1).await, Reply::Done);
    assert_eq!(sides.read_inside(LEASE / 2, US, 2).await, Reply::Done);
    assert_eq!(sides.write_renew(US, 5 * LEASE).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    assert!(bed.marker_left(US, 1).await <= LEASE);
    assert_eq!(sides.read_renew(US, 2 * LEASE).await, Reply::Done);
    bed.expires_in_about(5 * LEASE).await;
    for hold in [1, 2] {
        let left = bed.marker_left(US, hold).await;
        assert!(left > LEASE && left <= 2 * LEASE, "{left}");
    }
    assert_eq!(sides.write_end(US, 0).await, Reply::Done);
    assert_eq!(sides.write_renew(US, LEASE).await, Reply::Absent);
    assert_eq!(sides.read(THEM, 1).await, Reply::Done);
    assert_eq!(sides.read_renew(US, 9 * LEASE).await, Reply::Done);
    assert!(
        bed.marker_left(THEM, 1).await <= LEASE,
        "another owner's lease was renewed"
    );
    assert_eq!(
        sides.read_renew(US, 0).await,
        Reply::Done,
        "a lease of 0 changes nothing"
    );
    bed.expires_in_about(9 * LEASE).await;
    // A reader without a marker has lost its lease, although its field exists.
    bed.ask::<()>(&["DEL", &marker(US, 2)]).await;
    assert_eq!(sides.read_renew(US, 0).await, Reply::Done);
    bed.ask::<()>(&["DEL", &marker(US, 1)]).await;
    assert_eq!(sides.read_renew(US, LEASE).await, Reply::Absent);
    assert_eq!(
        bed.marker_left(US, 1).await,
        -2,
        "the renewal restores no marker"
    );
}

#[tokio::test]
async fn force_release_and_inspect_concern_one_side_only() {
    let bed = Bed::new().await;
    let (sides, admin) = (Sides(&bed.admin), &bed.admin);
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    let look = async |script, owner| match admin.run(script, &[owner]).await {
        Reply::Told(told) => (told[0], told[1]),
        other => panic!("{other:?}"),
    };
    for script in [READ_INSPECT, WRITE_INSPECT] {
        assert_eq!(look(script, US).await, (-2, 0));
    }
    assert_eq!(sides.read(US, 1).await, Reply::Done);
    assert!(look(READ_INSPECT, US).await.0 > 0);
    assert_eq!(look(READ_INSPECT, THEM).await.1, 0);
    assert_eq!(look(WRITE_INSPECT, US).await, (-2, 0));
    assert_eq!(
        admin.run(WRITE_FORCE_RELEASE, &[CHANNEL]).await,
        Reply::Absent
    );
    assert_eq!(admin.run(READ_FORCE_RELEASE, &[CHANNEL]).await, Reply::Done);
    assert_eq!(listener.messages().await, ["0"]);
    bed.ask::<()>(&["FLUSHALL"]).await;
    assert_eq!(sides.write(US, 1).await, Reply::Done);
    assert_eq!(look(READ_INSPECT, US).await, (-2, 0), "no read hold");
    assert_eq!(look(WRITE_INSPECT, US).await.1, 1);
    assert_eq!(sides.read_inside(LEASE, US, 1).await, Reply::Done);
    assert_eq!(look(READ_INSPECT, US).await.1, 1);
    assert!(look(READ_INSPECT, THEM).await.0 > 0);
    assert_eq!(
        admin.run(READ_FORCE_RELEASE, &[CHANNEL]).await,
        Reply::Absent
    );
    assert_eq!(
        admin.run(WRITE_FORCE_RELEASE, &[CHANNEL]).await,
        Reply::Done
    );
    assert_eq!(listener.messages().await, ["1"]);
    assert!(bed.fields().await.is_empty());
    assert_eq!(
        admin.run(WRITE_FORCE_RELEASE, &[CHANNEL]).await,
        Reply::Absent
    );
    assert_eq!(listener.messages().await, [""; 0]);
}

/// A request with a lost reply and its repetition, on both sides.
#[tokio::test]
async fn a_repeated_read_or_write_request_is_executed_once() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    for holds in [1, 2] {
        for _ in 0..2 {
            assert_eq!(sides.write(US, holds).await, Reply::Done);
            assert_eq!(sides.read_inside(LEASE, US, holds).await, Reply::Done);
        }
    }
    let both = writer(US);
    bed.stands(&[("mode", "write"), (US, "2"), (&both, "2")], 2)
        .await;
    for _ in 0..2 {
        assert_eq!(sides.write_end(US, 1).await, Reply::Done);
        assert_eq!(sides.read_end(US, 1).await, Reply::Done);
        bed.stands(&[("mode", "write"), (US, "1"), (&both, "1")], 1)
            .await;
    }
    assert_eq!(sides.write_end(US, 0).await, Reply::Done);
    let before = bed.everything().await;
    assert_eq!(sides.write_end(US, 0).await, Reply::Absent);
    assert_eq!(listener.messages().await, ["1"]);
    assert_eq!(bed.everything().await, before);
    assert_eq!(sides.read(THEM, 1).await, Reply::Done);
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    assert_eq!(sides.read_end(US, 0).await, Reply::Absent);
    assert_eq!(sides.read_end(THEM, 0).await, Reply::Counted(1));
    assert_eq!(sides.read_end(THEM, 0).await, Reply::Absent);
    assert_eq!(listener.messages().await, ["0"]);
    bed.is_free().await;
}

/// A lost operation left a hold that its client does not count. The next acquisition replaces it.
#[tokio::test]
async fn uncounted_holds_of_the_owner_are_replaced() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    for holds in 1..=5 {
        assert_eq!(sides.read(US, holds).await, Reply::Done);
    }
    assert_eq!(sides.read(US, 2).await, Reply::Done);
    bed.stands(&[("mode", "read"), (US, "2")], 2).await;
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    bed.is_free().await;
    for holds in 1..=3 {
        assert_eq!(sides.write(US, holds).await, Reply::Done);
    }
    assert_eq!(sides.write(US, 1).await, Reply::Done);
    bed.stands(&[("mode", "write"), (&writer(US), "1")], 0)
        .await;
    assert_eq!(sides.write_end(US, 0).await, Reply::Done);
    bed.is_free().await;
}

/// Expired holds precede a live one, whose number falls when the owner adds a hold.
#[tokio::test]
async fn a_hold_with_a_short_lease_leaves_a_live_one_its_lease() {
    for ended in [1, 2] {
        let bed = Bed::new().await;
        let sides = Sides(&bed.admin);
        for holds in 1..=ended {
            assert_eq!(sides.read(US, holds).await, Reply::Done);
        }
        let live = ended + 1;
        assert_eq!(sides.read_for(9 * LEASE, US, live).await, Reply::Done);
        for hold in 1..=ended {
            bed.ask::<()>(&["DEL", &marker(US, hold)]).await;
        }
        assert_eq!(sides.read(US, 2).await, Reply::Done);
        // The release of another reader sets the expiry that the remaining readers need.
        assert_eq!(sides.read(THEM, 1).await, Reply::Done);
        assert_eq!(sides.read_end(THEM, 0).await, Reply::Done);
        bed.expires_in_about(9 * LEASE).await;
        bed.stands(&[("mode", "read"), (US, "2")], 1).await;
    }
}

/// The owner's clock has ended this write hold, and its key still exists.
#[tokio::test]
async fn a_read_acquisition_ends_an_expired_write_hold_of_its_owner() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    let mut listener = Listener::on(&bed.server, CHANNEL).await;
    assert_eq!(sides.write(US, 2).await, Reply::Absent);
    assert_eq!(sides.write(US, 1).await, Reply::Done);
    for _ in 0..2 {
        assert_eq!(sides.read(US, 1).await, Reply::Done);
        bed.stands(&[("mode", "read"), (US, "1")], 1).await;
    }
    assert_eq!(
        listener.messages().await,
        ["1"],
        "other owners may read now"
    );
    assert_eq!(sides.read(THEM, 1).await, Reply::Done);
    assert_eq!(sides.read_end(US, 0).await, Reply::Done);
    assert_eq!(sides.read_end(THEM, 0).await, Reply::Counted(1));
    bed.is_free().await;
    // Another owner's write hold stays.
    assert_eq!(sides.write(THEM, 1).await, Reply::Done);
    assert!(matches!(sides.read(US, 1).await, Reply::Busy(1..)));
    bed.stands(&[("mode", "write"), (&writer(THEM), "1")], 0)
        .await;
}

/// The commands of each operation.
#[tokio::test]
async fn the_commands_of_each_operation() {
    let bed = Bed::new().await;
    let sides = Sides(&bed.admin);
    let inner = async || {
        let calls = bed.inner_calls().await;
        bed.server.reset_calls().await;
        calls.values().sum::<u64>()
    };
    bed.server.reset_calls().await;
    assert_eq!(sides.read(US, 1).await, Reply::Done);
    assert!(
        inner().await <= 5,
        "pttl of the lock and of a writer's intent, set, hset, pexpire"
    );
    assert_eq!(sides.read(US, 2).await, Reply::Done);
    assert!(inner().await <= 5, "pttl, hmget, set, hset, pexpire");
    assert_eq!(sides.read_renew(US, LEASE).await, Reply::Done);
    assert!(
        inner().await <= 8,
        "hmget, and for each hold and the hash pttl and pexpire"
    );
    for number in 0..100 {
        assert_eq!(
            sides.read(&format!("reader:{number}"), 1).await,
            Reply::Done
        );
    }
    bed.server.reset_calls().await;
    assert_eq!(sides.read("one more", 1).await, Reply::Done);
    assert!(
        inner().await <= 6,
        "an acquisition, however many owners read"
    );
    assert_eq!(sides.read_end("one more", 0).await, Reply::Done);
    assert!(
        inner().await <= 101 + 6,
        "a release reads each reader's lease"
    );
    assert!(matches!(sides.write(THEM, 1).await, Reply::Busy(_)));
    assert!(inner().await <= 2, "pttl, hmget");
    bed.ask::<()>(&["FLUSHALL"]).await;
    bed.server.reset_calls().await;
    assert_eq!(sides.write(US, 1).await, Reply::Done);
    assert!(inner().await <= 3, "pttl, hset, pexpire");
    assert_eq!(sides.write_end(US, 0).await, Reply::Done);
    assert!(inner().await <= 4, "hmget, hgetall, publish, del");
}
