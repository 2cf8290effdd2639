//! Waiting for conditions, and unique names.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

const POLL: Duration = Duration::from_millis(5);

/// Checks `condition` every 5 ms until it is true. Panics with `what` after `limit`.
pub async fn eventually(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    let mut asked = 0_u64;
    loop {
        // A condition that hangs (a command to a stopped server) must fail by name too.
        match timeout_at(deadline, condition()).await {
            Ok(true) => return,
            Ok(false) if Instant::now() < deadline => asked += 1,
            Ok(false) => panic!("not within {limit:?} (asked {} times): {what}", asked + 1),
            Err(_) => panic!("not within {limit:?} (still asking after {asked} times): {what}"),
        }
        sleep(POLL).await;
    }
}

/// `prefix` made unique: among the tests of this process, and among runs against one server.
pub fn unique_name(prefix: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{prefix}:{:08x}:{number}", fastrand::u32(..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_is_asked_until_it_is_true() {
        let mut asked = 0;
        eventually("asked three times", Duration::from_secs(5), async || {
            asked += 1;
            asked == 3
        })
        .await;
        assert_eq!(asked, 3);
    }

    #[tokio::test]
    #[should_panic(expected = "pigs fly")]
    async fn a_condition_that_never_comes_true_is_named() {
        eventually("pigs fly", Duration::from_millis(20), async || false).await;
    }

    #[tokio::test]
    #[should_panic(expected = "the dead answer")]
    async fn a_condition_that_hangs_is_named() {
        let limit = Duration::from_millis(20);
        eventually("the dead answer", limit, async || {
            std::future::pending().await
        })
        .await;
    }

    #[test]
    fn names_differ() {
        let (one, other) = (unique_name("order"), unique_name("order"));
        assert_ne!(one, other);
        assert!(one.starts_with("order:"));
    }
}
