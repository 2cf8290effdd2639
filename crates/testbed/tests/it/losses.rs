//! Lost requests and lost replies.

use redis::Value;
use testbed::eventually;
use tokio::time::timeout;

use crate::SOON;
use crate::bed::{Bed, incr, ping};

#[tokio::test]
async fn a_lost_reply_belongs_to_a_script_that_ran() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.lose_next_reply();
    assert_eq!(
        ping(&mut connection).await.expect("only scripts are lost"),
        "PONG"
    );
    let (before, lost) = tokio::join!(async { ping(&mut connection.clone()).await }, async {
        incr(&mut connection.clone(), "x").await
    },);
    assert_eq!(before.expect("what was answered before arrives"), "PONG");
    let error = lost.expect_err("the reply is lost");
    assert!(error.is_connection_dropped(), "{error:?}");
    assert_eq!(bed.counted("x").await, 1);
    assert_eq!(
        (bed.faults.lost_replies(), bed.faults.lost_requests()),
        (1, 0)
    );
    assert_eq!(
        incr(&mut bed.connect().await, "x")
            .await
            .expect("once only"),
        2
    );
}

#[tokio::test]
async fn an_unknown_script_is_not_the_one_whose_reply_is_lost() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.lose_next_reply();
    let sha = "0123456789012345678901234567890123456789";
    let error = redis::cmd("EVALSHA")
        .arg(sha)
        .arg(0)
        .query_async::<Value>(&mut connection)
        .await;
    assert_eq!(
        error.expect_err("nobody has loaded it").code(),
        Some("NOSCRIPT")
    );
    // The loss is still due, beside a second one.
    bed.faults.lose_next_reply();
    assert!(incr(&mut connection, "x").await.is_err());
    assert!(incr(&mut bed.connect().await, "x").await.is_err());
    assert_eq!((bed.counted("x").await, bed.faults.lost_replies()), (2, 2));
}

#[tokio::test]
async fn a_lost_request_has_not_run() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.lose_next_request();
    let error = timeout(SOON, incr(&mut connection, "x"))
        .await
        .expect("the connection is cut");
    assert!(
        error
            .expect_err("the request is lost")
            .is_connection_dropped()
    );
    assert_eq!(bed.counted("x").await, 0);
    assert_eq!(
        (bed.faults.lost_replies(), bed.faults.lost_requests()),
        (0, 1)
    );
    assert_eq!(
        incr(&mut bed.connect().await, "x")
            .await
            .expect("once only"),
        1
    );
}

/// A client that is tired of waiting closes its connection before the reply comes.
#[tokio::test]
async fn a_reply_to_lose_is_lost_with_its_connection_too() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.lose_next_reply();
    bed.faults.stall_replies(true);
    let waiting = tokio::spawn(async move { incr(&mut connection, "x").await });
    eventually("the script runs", SOON, async || {
        bed.counted("x").await == 1
    })
    .await;
    assert_eq!(bed.faults.lost_replies(), 0);
    waiting.abort();
    let is_lost = async || bed.faults.lost_replies() == 1;
    eventually("its reply is lost", SOON, is_lost).await;
}

/// Sends scripts, connecting anew when cut, and returns which failed.
async fn failures(bed: &Bed, count: usize) -> Vec<bool> {
    let mut connection = bed.connect().await;
    let mut failures = Vec::new();
    for _ in 0..count {
        let failed = incr(&mut connection, "x").await.is_err();
        if failed {
            connection = bed.connect().await;
        }
        failures.push(failed);
    }
    failures
}

#[tokio::test]
async fn random_losses_are_as_frequent_as_asked_and_repeatable() {
    let bed = Bed::new().await;
    bed.faults.lose_replies(0.2);
    bed.faults.lose_requests(0.1);
    bed.faults.seed(7);
    let first = failures(&bed, 200).await;
    let lost = (bed.faults.lost_replies(), bed.faults.lost_requests());
    assert!(
        (20..60).contains(&lost.0) && (8..40).contains(&lost.1),
        "{lost:?}"
    );
    assert_eq!(bed.counted("x").await, 200 - lost.1);
    assert_eq!(
        first.iter().filter(|failed| **failed).count() as u64,
        lost.0 + lost.1
    );
    bed.faults.seed(7);
    assert_eq!(failures(&bed, 200).await, first);
    bed.faults.heal();
    assert_eq!(failures(&bed, 100).await, [false; 100]);
}

#[tokio::test]
async fn losses_can_be_limited_to_some_requests() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.only(Some("owner-2".to_owned()));
    bed.faults.lose_next_reply();
    assert_eq!(
        incr(&mut connection, "owner-1")
            .await
            .expect("another is not concerned"),
        1
    );
    assert!(incr(&mut connection, "owner-2").await.is_err());
    bed.faults.only(None);
    bed.faults.lose_next_reply();
    assert!(incr(&mut bed.connect().await, "owner-1").await.is_err());
}
