#![doc = include_str!("../README.md")]

mod back_off;
mod client;
mod config;
mod engine;
mod error;
mod guard;
mod inspect;
mod lock;
mod owner;
mod read_write_lock;
mod redis;
mod wire;

pub use back_off::BackOff;
pub use client::{LockClient, LockClientBuilder, ShutdownReport, Unreleased};
pub use config::Config;
pub use error::{Error, LostReason};
pub use guard::Guard;
pub use lock::{
    FairLock, FencedLock, Lock, NonReentrantFairLock, NonReentrantLock, ReentrantLock, SimpleLock,
    SpinLock,
};
pub use owner::{Owner, OwnerId};
pub use read_write_lock::ReadWriteLock;
pub use wire::{
    Kind, Released,
    fair::Fair,
    fenced::Fenced,
    non_reentrant::{NonReentrant, NonReentrantFair},
    read::Read,
    reentrant::Reentrant,
    simple::Simple,
    spin::Spin,
    write::Write,
};
