//! Whose a hold is (P-T10).

use std::collections::HashSet;

use redisson_lock::LockClient;
use testbed::Server;

/// The id comes from the operating system when the client connects: a process that is a copy of another, down to the state of
/// its random numbers, gets one of its own.
#[tokio::test]
async fn p_t10_copies_of_a_process_that_connect_get_ids_of_their_own() {
    let server = Server::start().await;
    let mut ids = HashSet::new();
    for _ in 0..3 {
        fastrand::seed(1);
        let client = LockClient::connect(&server.url()).await.unwrap();
        ids.insert(client.id().to_string());
    }
    assert_eq!(ids.len(), 3, "{ids:?}");
}
