//! Commands and answers that are lost, late or refused, and connections that break.

mod broken_connections;
mod elections;
mod full_servers;
mod late_answers;
mod lost_answers;
mod refused_releases;
mod silent_connections;
mod transports;
