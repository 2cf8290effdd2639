//! Clients of clusters and of replicated servers.

mod clusters;
mod replicas;
