//! Clients of clusters and of replicated servers.

mod clusters;
mod hanging_nodes;
mod replicas;
