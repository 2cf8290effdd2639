#![doc = include_str!("../README.md")]
// docs.rs shows which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod any_lock;
mod back_off;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod client_builder;
mod config;
mod count_down_latch;
mod durability;
mod election;
mod engine;
mod error;
mod gauges;
mod guard;
pub mod guide;
mod hash;
mod held_lock;
mod inspect;
mod lease;
mod lock;
mod multi_guard;
mod multi_lock;
mod owner;
mod permit_expirable_semaphore;
mod quorum;
mod read_write_lock;
mod redis;
#[cfg(feature = "redisson-yaml")]
mod redisson;
mod run;
mod seldom;
mod semaphore;
mod server_text;
mod sync;
#[cfg(feature = "test-util")]
pub mod test_util;
mod wire;

/// The kinds of locks, for signatures that name one: `Guard<kind::Fair>`.
pub mod kind {
    pub use crate::wire::{
        Dyn,
        fair::Fair,
        fenced::Fenced,
        non_reentrant::{NonReentrant, NonReentrantFair},
        read::Read,
        reentrant::Reentrant,
        simple::Simple,
        spin::Spin,
        write::Write,
    };
}

pub use any_lock::AnyLock;
pub use back_off::BackOff;
pub use client::LockClient;
pub use client_builder::LockClientBuilder;
pub use config::{Config, ShardedPubSub};
pub use count_down_latch::CountDownLatch;
pub use durability::Durability;
pub use election::{Election, Leader, Term};
pub use error::{Cause, Error, LostReason, Unprotected};
pub use guard::{DynGuard, Guard};
pub use held_lock::{HeldLock, ShutdownReport, Unreleased};
pub use lock::{
    DynLock, FairLock, FencedLock, Lock, NonReentrantFairLock, NonReentrantLock, ReentrantLock,
    SimpleLock, SpinLock,
};
pub use multi_guard::MultiGuard;
pub use multi_lock::{GroupLock, MultiLock, RedLock};
pub use owner::{Owner, OwnerId};
pub use permit_expirable_semaphore::{ExpirablePermit, PermitExpirableSemaphore};
pub use quorum::{All, Majority, Quorum};
pub use read_write_lock::ReadWriteLock;
#[doc(hidden)]
pub use redis::probe;
#[cfg(feature = "redisson-yaml")]
pub use redisson::RedissonConfig;
pub use semaphore::{Permit, Semaphore};
pub use wire::{
    Kind, Queued, Released,
    fair::Fair,
    fenced::Fenced,
    holders::{Holder, Waiter},
    non_reentrant::{NonReentrant, NonReentrantFair},
    read::Read,
    reentrant::Reentrant,
    simple::Simple,
    spin::Spin,
    write::Write,
};
