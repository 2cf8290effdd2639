//! What the guard of a group reports, and what it leaves behind. One arranged case per test, under a paused clock.

use std::{pin::pin, time::Duration};

use redisson_lock::{All, GroupLock, LostReason, Owner, test_util::InMemoryRedis};
use tokio::{
    runtime::{Builder, Runtime},
    time::{Instant, sleep, timeout},
};

use crate::network::{self, SHORT};

fn runtime() -> Runtime {
    let mut builder = Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().unwrap()
}

/// The client of the second member has a runtime of its own, which stops once the group is held. The first client's runs on.
#[test]
fn a_holder_learns_of_a_loss_although_the_runtime_of_a_member_is_blocked() {
    let (one, other) = (runtime(), runtime());
    let servers = [(); 2].map(|()| InMemoryRedis::new());
    let client = one.block_on(network::client(&servers[0]));
    let blocked = other.block_on(network::client(&servers[1]));
    let brief = blocked.reentrant_lock("b").with_lease(SHORT);
    let locks = [client.reentrant_lock("a"), brief];
    let group = GroupLock::<All>::of(locks).owned_by(&Owner::new());
    let moment = Duration::from_millis(1);
    let mut locking = pin!(group.lock());
    let guard = loop {
        let locked = one.block_on(async { timeout(moment, &mut locking).await });
        match locked {
            Ok(guard) => break guard.unwrap(),
            Err(_) => other.block_on(async { sleep(moment).await }),
        }
    };
    one.block_on(async {
        let token = guard.cancellation_token();
        assert!(!guard.is_lost());
        let since = Instant::now();
        let lost = timeout(2 * SHORT, guard.lost()).await;
        assert_eq!(lost, Ok(LostReason::Expired));
        assert!(since.elapsed() <= SHORT, "{:?}", since.elapsed());
        timeout(SHORT, token.cancelled()).await.unwrap();
    });
}
