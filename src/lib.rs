#![doc = include_str!("../README.md")]

mod client;
mod config;
mod engine;
mod error;
mod guard;
mod inspect;
mod lock;
mod owner;
mod redis;
mod wire;

pub use client::{LockClient, LockClientBuilder, ShutdownReport, Unreleased};
pub use config::Config;
pub use error::{Error, LostReason};
pub use guard::Guard;
pub use lock::{Lock, ReentrantLock};
pub use owner::{Owner, OwnerId};
pub use wire::{Kind, Released, reentrant::Reentrant};
