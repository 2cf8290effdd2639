//! The kinds of locks, for signatures that name one: `Guard<kind::Fair>`.

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
