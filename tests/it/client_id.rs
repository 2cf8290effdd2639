//! The client's id, the first part of each owner (P-T10).

use std::collections::HashSet;

use redisson_lock::LockClient;
use testbed::Server;

/// The id comes from the operating system when the client connects. A copy of a process thus gets
/// its own id, even if it has the same state of random numbers.
#[tokio::test]
async fn p_t10_copies_of_a_process_get_distinct_client_ids() {
    let server = Server::start().await;
    let mut ids = HashSet::new();
    for _ in 0..3 {
        fastrand::seed(1);
        let client = LockClient::connect(&server.url()).await.unwrap();
        ids.insert(client.id().to_string());
    }
    assert_eq!(ids.len(), 3, "{ids:?}");
}
