//! The environment of the tests, the demo and the benchmarks of `redisson-lock`. It has real servers
//! ([`Server`]), a proxy with faults ([`Proxy`], [`Faults`]) and child processes ([`Child`]).
//!
//! Functions panic with a clear message instead of returning errors, because their callers are tests.

mod black_hole;
mod children;
mod cluster;
mod conversation;
mod documented;
mod eventually;
mod faults;
mod forwarder;
mod impostor;
pub mod java;
pub mod peer;
mod process;
mod proxy;
pub mod resp;
mod server;
mod set_ups;
mod tls;

pub use black_hole::BlackHole;
pub use children::{Child, Silence};
pub use cluster::{Clustered, Move, slot_of};
pub use documented::{has_documented_shape, is_documented};
pub use eventually::{eventually, unique_name};
pub use faults::Faults;
pub use forwarder::Forwarder;
pub use impostor::{Fate, Impostor, Part};
pub use peer::{Peer, Refused};
pub use process::cpu_time;
pub use proxy::Proxy;
pub use server::Server;
pub use set_ups::{Replicated, Watched};
pub use tls::{make_certificates, run_in, tls_only};
