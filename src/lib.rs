#![doc = include_str!("../README.md")]
// docs.rs shows which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod back_off;
#[cfg(feature = "blocking")]
pub mod blocking;
mod client;
mod config;
#[cfg(test)]
#[expect(
    dead_code,
    reason = "the engine does not run on it yet, and crates/explorer asks for more than its tests"
)]
mod core;
mod count_down_latch;
mod credentials;
#[cfg(feature = "__simulation")]
#[doc(hidden)]
pub mod direct;
mod durability;
mod election;
mod endpoint_kind;
mod engine;
mod error;
mod gauges;
mod guard;
pub mod guide;
mod hash;
mod held_lock;
mod lease;
mod lock;
mod owner;
mod protocol;
mod rate_limit;
mod redis;
mod semaphore;
mod server_text;
#[cfg(not(feature = "__simulation"))]
mod simulation;
#[cfg(feature = "__simulation")]
#[doc(hidden)]
pub mod simulation;
mod since;
mod sync;
mod timers;
mod tls_verification;
#[cfg(not(feature = "transport"))]
mod transport;
#[cfg(feature = "transport")]
pub mod transport;
mod wire;

pub use back_off::BackOff;
#[cfg(feature = "redisson-yaml")]
pub use client::RedissonConfig;
pub use client::{LockClient, LockClientBuilder};
pub use config::{Config, ShardedPubSub};
pub use count_down_latch::CountDownLatch;
pub use credentials::{Credentials, CredentialsRequest};
pub use durability::Durability;
pub use election::{Election, Leader, Term};
pub use endpoint_kind::EndpointKind;
pub use error::{Cause, Error, LostReason, Unprotected};
pub use guard::{DynGuard, Guard, MultiGuard};
pub use held_lock::{HeldLock, ShutdownReport, Unreleased};
pub use lock::{
    All, AnyLock, AtLeast, DynLock, FairLock, FencedLock, GroupLock, JobOutcome, Lock, Majority,
    MultiLock, NonReentrantFairLock, NonReentrantLock, Quorum, ReadWriteLock, RedLock,
    ReentrantLock, SimpleLock, SpinLock, kind,
};
pub use owner::{Owner, OwnerId};
pub use protocol::Protocol;
#[doc(hidden)]
pub use redis::probe;
pub use semaphore::{ExpirablePermit, Permit, PermitExpirableSemaphore, Semaphore};
pub use since::Since;
pub use tls_verification::TlsVerification;
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
