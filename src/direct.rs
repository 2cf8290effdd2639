//! The trait of servers above connections and frames, which the simulator implements.

pub use crate::{
    redis::{
        Answered, BoxFuture, CallError, ClientNames, EventSender, HashSlot, Redis, direct::Server,
    },
    wire::{
        Reply,
        reply::Detail,
        script::{Operation, Script},
    },
};
