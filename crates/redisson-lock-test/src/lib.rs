#![doc = include_str!("../README.md")]

mod cluster;
mod command;
mod commands;
mod data;
mod faults;
mod fields;
mod glob;
mod in_memory_cluster;
mod in_memory_redis;
mod interpreter;
mod key_space;
mod line;
// The feature is this repository's alone: the package has neither the models nor the scripts' sources.
#[cfg(all(test, feature = "__simulation"))]
mod model_tests;
mod network;
mod number;
mod pipe;
mod raw;
mod replicated;
mod replication;
mod sentinels;
mod server;
mod sorted_set;
mod subscriptions;
mod succession;

use std::borrow::Cow;

use bytes::Bytes;

pub(crate) use data::Data;
pub use in_memory_redis::InMemoryRedis;
pub(crate) use key_space::Value;
pub(crate) use redisson_lock::transport::Frame;
pub(crate) use server::{Role, Server, Settings};

/// Used by the simulator of redisson-lock. May change at any time.
#[doc(hidden)]
pub mod simulation {
    pub use super::faults::{Calm, Delivering, Ending, Executed, Fate, Faults, MasterChange};
    pub use super::in_memory_cluster::{Cluster, Move};
    pub use super::raw::RawConnection;
    pub use super::replicated::Replicated;
    #[cfg(feature = "__simulation")]
    pub use redisson_lock::simulation::count_owners_from;
    pub use redisson_lock::transport::{Frame, Pushed, TransportError};
}

/// A host and a port.
type Address = (String, u16);

/// The message of an error reply.
type Failure = Cow<'static, str>;

/// The reply to a command.
type Outcome = Result<Frame, Failure>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// A connection to a server: its `CLIENT ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ConnectionId(pub(crate) u64);

/// A message on its way to one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) connection: ConnectionId,
    pub(crate) channel: Bytes,
    /// The pattern that the channel matched, for a subscription by pattern.
    pub(crate) pattern: Option<Bytes>,
    pub(crate) payload: Bytes,
}

/// A state in which the server returns errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The server is a replica: writes are refused.
    ReadOnly,
    /// Commands that may need memory are refused.
    OutOfMemory,
    /// The server is a replica without its master, and serves no stale data.
    MasterDown,
    /// The server has fewer replicas than it needs for writes.
    NoReplicas,
    /// A test lets scripts fail.
    Requested,
}

impl Refusal {
    /// The server's error.
    fn message(self) -> &'static str {
        match self {
            Self::ReadOnly => "READONLY You can't write against a read only replica.",
            Self::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.",
            Self::MasterDown => {
                "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."
            }
            Self::NoReplicas => "NOREPLICAS Not enough good replicas to write.",
            Self::Requested => "ERR failure requested by a test",
        }
    }

    /// Whether this state refuses a command of a connection.
    fn refuses(self, command: &command::Command) -> bool {
        match self {
            Self::ReadOnly | Self::NoReplicas => command.has(command::WRITE),
            Self::OutOfMemory => command.has(command::DENY_OOM),
            Self::MasterDown => !command.has(command::STALE),
            Self::Requested => false,
        }
    }

    /// Whether this state refuses a command of a script. A script that has written once may continue.
    fn refuses_in_script(self, command: &command::Command, wrote: bool) -> bool {
        match self {
            Self::ReadOnly | Self::NoReplicas => !wrote && command.has(command::WRITE),
            Self::OutOfMemory => !wrote && command.has(command::DENY_OOM),
            Self::Requested => true,
            Self::MasterDown => false,
        }
    }
}

/// The reply for a connection of RESP2, which has no maps.
fn without_maps(frame: Frame) -> Frame {
    match frame {
        Frame::Map(pairs) => {
            let flat = pairs.into_iter().flat_map(|(name, value)| [name, value]);
            Frame::List(flat.map(without_maps).collect())
        }
        Frame::List(frames) => Frame::List(frames.into_iter().map(without_maps).collect()),
        frame => frame,
    }
}

/// A text reply.
fn text_of(frame: &Frame) -> Option<String> {
    match frame {
        Frame::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    }
}
