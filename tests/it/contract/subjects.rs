//! The kinds of lock, and what the contract needs to know of each.

use redisson_lock::{Kind, Lock, LockClient};

/// A kind of lock, and its data on the server.
pub trait Subject: Send + Sync + 'static {
    type Kind: Kind;
    /// The kind that excludes this one under the same name, in both directions: itself, unless it
    /// is shared.
    type Rival: Subject;
    /// Part of the names of its locks.
    const NAME: &'static str;
    /// The `TYPE` of its key: a hash of owners and hold counts, or a string that names the owner.
    const TYPE: &'static str = "hash";
    /// The field `mode` of a read-write lock.
    const MODE: Option<&'static str> = None;
    /// Whether an owner may acquire it again.
    const REENTRANT: bool = true;
    /// Whether several owners may hold it at once.
    const SHARED: bool = false;
    /// Whether waiters subscribe to a channel or only poll.
    const LISTENS: bool = true;

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind>;

    /// The field of an owner in the hash.
    fn field(owner: &str) -> String {
        owner.to_owned()
    }

    /// The channel of its releases. The channel of a single owner begins with it.
    fn channel(name: &str) -> String {
        format!("redisson_lock__channel:{{{name}}}")
    }

    /// Further keys that live as long as one hold of `owner`.
    fn markers(_name: &str, _owner: &str) -> Vec<String> {
        Vec::new()
    }

    /// A key that outlives every hold.
    fn remains(_name: &str) -> Option<String> {
        None
    }
}

/// The commands that write a hold of `owner` on `name`, without expiry.
pub fn held_by<S: Subject>(name: &str, owner: &str) -> Vec<Vec<String>> {
    let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let field = S::field(owner);
    let held = match (S::TYPE, S::MODE) {
        ("string", _) => words(&["SET", name, owner]),
        (_, Some(mode)) => words(&["HSET", name, "mode", mode, &field, "1"]),
        _ => words(&["HSET", name, &field, "1"]),
    };
    let markers = S::markers(name, owner);
    let markers = markers.iter().map(|marker| words(&["SET", marker, "1"]));
    std::iter::once(held).chain(markers).collect()
}

/// Redisson's `getLock`.
pub struct Reentrant;

impl Subject for Reentrant {
    type Kind = redisson_lock::Reentrant;
    type Rival = Self;
    const NAME: &'static str = "reentrant";

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind> {
        client.reentrant_lock(name)
    }
}

/// Redisson's `getFairLock`.
pub struct Fair;

impl Subject for Fair {
    type Kind = redisson_lock::Fair;
    type Rival = Self;
    const NAME: &'static str = "fair";

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind> {
        client.fair_lock(name)
    }
}

/// Redisson's `getReadWriteLock(..).readLock()`.
pub struct Read;

impl Subject for Read {
    type Kind = redisson_lock::Read;
    type Rival = Write;
    const NAME: &'static str = "read";
    const SHARED: bool = true;
    const MODE: Option<&'static str> = Some("read");

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind> {
        client.read_write_lock(name).read().clone()
    }

    fn channel(name: &str) -> String {
        Write::channel(name)
    }

    fn markers(name: &str, owner: &str) -> Vec<String> {
        vec![format!("{{{name}}}:{owner}:rwlock_timeout:1")]
    }
}

/// Redisson's `getReadWriteLock(..).writeLock()`.
pub struct Write;

impl Subject for Write {
    type Kind = redisson_lock::Write;
    type Rival = Self;
    const NAME: &'static str = "write";
    const MODE: Option<&'static str> = Some("write");

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind> {
        client.read_write_lock(name).write().clone()
    }

    fn field(owner: &str) -> String {
        format!("{owner}:write")
    }

    fn channel(name: &str) -> String {
        format!("redisson_rwlock:{{{name}}}")
    }
}

/// Redisson's `getFencedLock`.
pub struct Fenced;

impl Subject for Fenced {
    type Kind = redisson_lock::Fenced;
    type Rival = Self;
    const NAME: &'static str = "fenced";

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind> {
        client.fenced_lock(name)
    }

    fn remains(name: &str) -> Option<String> {
        Some(format!("redisson_lock_token:{{{name}}}"))
    }
}

/// Redisson's `getSpinLock`.
pub struct Spin;

impl Subject for Spin {
    type Kind = redisson_lock::Spin;
    type Rival = Self;
    const NAME: &'static str = "spin";
    const LISTENS: bool = false;

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind> {
        client.spin_lock(name)
    }
}

/// Redisson's `getNonReentrantLock`.
pub struct NonReentrant;

impl Subject for NonReentrant {
    type Kind = redisson_lock::NonReentrant;
    type Rival = Self;
    const NAME: &'static str = "non-reentrant";
    const REENTRANT: bool = false;

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind> {
        client.non_reentrant_lock(name)
    }
}

/// Redisson's `getNonReentrantFairLock`.
pub struct NonReentrantFair;

impl Subject for NonReentrantFair {
    type Kind = redisson_lock::NonReentrantFair;
    type Rival = Self;
    const NAME: &'static str = "non-reentrant-fair";
    const REENTRANT: bool = false;

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind> {
        client.non_reentrant_fair_lock(name)
    }
}

/// A single string, which Redisson has no lock for.
pub struct Simple;

impl Subject for Simple {
    type Kind = redisson_lock::Simple;
    type Rival = Self;
    const NAME: &'static str = "simple";
    const REENTRANT: bool = false;
    const TYPE: &'static str = "string";

    fn lock(client: &LockClient, name: &str) -> Lock<Self::Kind> {
        client.simple_lock(name)
    }

    fn channel(name: &str) -> String {
        format!("simple_lock__channel:{{{name}}}")
    }
}
