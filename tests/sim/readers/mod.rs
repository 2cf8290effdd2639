//! Read-write locks.

mod lent_fields;
mod shared_holds;
mod writers;
