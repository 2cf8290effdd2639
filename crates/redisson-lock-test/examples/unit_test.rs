//! A service that uses a lock, with tests that need no server: `cargo test --example unit_test`.

use redisson_lock::{Error, LockClient};

/// Bills each customer once at a time.
struct Billing {
    locks: LockClient,
}

#[derive(Debug, PartialEq, Eq)]
enum Billed {
    Done,
    /// Another instance is billing this customer.
    Elsewhere,
    /// The lock was lost, and the work was stopped.
    Stopped,
}

impl Billing {
    async fn bill(&self, customer: &str, work: impl Future<Output = ()>) -> Result<Billed, Error> {
        let lock = self.locks.reentrant_lock(format!("billing:{customer}"));
        let Some(guard) = lock.try_lock().await? else {
            return Ok(Billed::Elsewhere);
        };
        tokio::select! {
            biased;
            _ = guard.lost() => return Ok(Billed::Stopped),
            () = work => {}
        }
        guard.unlock().await?;
        Ok(Billed::Done)
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Error> {
    let server = redisson_lock_test::InMemoryRedis::new();
    let billing = Billing {
        locks: server.client().await?,
    };
    println!("{:?}", billing.bill("42", async {}).await?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redisson_lock_test::InMemoryRedis;
    use tokio::time::sleep;

    use super::*;

    async fn billing(server: &InMemoryRedis) -> Billing {
        let locks = server.client().await.unwrap();
        Billing { locks }
    }

    #[tokio::test(start_paused = true)]
    async fn a_customer_is_billed_by_one_instance_at_a_time() {
        let server = InMemoryRedis::new();
        let (one, other) = (billing(&server).await, billing(&server).await);
        let first = one.bill("42", async {
            assert_eq!(server.holders("billing:42").len(), 1);
            assert_eq!(other.bill("42", async {}).await, Ok(Billed::Elsewhere));
            assert_eq!(other.bill("43", async {}).await, Ok(Billed::Done));
        });
        assert_eq!(first.await, Ok(Billed::Done));
        assert_eq!(server.keys(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn long_work_keeps_its_lock() {
        let server = InMemoryRedis::new();
        let billing = billing(&server).await;
        let work = sleep(Duration::from_secs(3_600));
        assert_eq!(billing.bill("42", work).await, Ok(Billed::Done));
    }

    #[tokio::test(start_paused = true)]
    async fn work_stops_when_its_lock_is_lost() {
        let server = InMemoryRedis::new();
        let billing = billing(&server).await;
        let work = async {
            server.delete("billing:42");
            sleep(Duration::from_secs(3_600)).await;
        };
        assert_eq!(billing.bill("42", work).await, Ok(Billed::Stopped));
    }

    #[tokio::test(start_paused = true)]
    async fn an_instance_that_is_cut_off_stops_before_another_can_begin() {
        let server = InMemoryRedis::new();
        let billing = billing(&server).await;
        let work = async {
            server.stop();
            sleep(Duration::from_secs(3_600)).await;
        };
        assert_eq!(billing.bill("42", work).await, Ok(Billed::Stopped));
        assert_ne!(server.remaining_lease("billing:42"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_the_server_refuses_is_an_error() {
        let server = InMemoryRedis::new();
        let billing = billing(&server).await;
        server.fail_next(1);
        let refused = billing.bill("42", async {}).await;
        assert!(matches!(refused, Err(Error::Redis { .. })), "{refused:?}");
        assert_eq!(billing.bill("42", async {}).await, Ok(Billed::Done));
    }
}
