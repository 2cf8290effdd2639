//! Clients of clusters and of replicated servers.

mod clusters;
mod hanging_nodes;
mod lost_writes;
mod replicas;

use redisson_lock_test::simulation::Cluster;

/// A name whose slot is owned by this node.
fn name_on(cluster: &Cluster, node: usize, word: &str) -> String {
    let names = (0..).map(|number| format!("{word}{number}"));
    let mut names = names.filter(|name| cluster.owner(Cluster::slot_of(name)) == Some(node));
    names.next().expect("each node owns slots")
}
