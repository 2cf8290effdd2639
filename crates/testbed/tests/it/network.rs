//! What happens to connections, and to time.

use std::time::{Duration, Instant};

use redis::ErrorKind;
use testbed::eventually;
use tokio::{net::TcpStream, time::timeout};

use crate::bed::{Bed, incr, ping};
use crate::{A_WHILE, SOON};

/// Twenty of them, one after the other, take twice as long as a test allows.
const LATENCY: Duration = Duration::from_millis(500);

#[tokio::test]
async fn without_faults_everything_passes_and_is_counted() {
    let bed = Bed::new().await;
    for parameters in ["", "?protocol=resp3"] {
        let mut connection = bed
            .connect_with(parameters)
            .await
            .expect("the proxy lets us in");
        let before = bed.faults.requests();
        for n in 0..100 {
            let text = "x".repeat(n * n * 10);
            let echo: String = redis::cmd("ECHO")
                .arg(&text)
                .query_async(&mut connection)
                .await
                .expect("it answers");
            assert_eq!(echo, text);
        }
        assert_eq!(bed.faults.requests() - before, 100);
        assert_eq!(bed.faults.connections(), 1);
        drop(connection);
        eventually("the connection is closed", SOON, async || {
            bed.faults.connections() == 0
        })
        .await;
    }
    assert_eq!(
        (bed.faults.lost_replies(), bed.faults.lost_requests()),
        (0, 0)
    );
}

#[tokio::test]
async fn cutting_closes_present_connections_only() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.stall(true);
    let mut late = std::pin::pin!(ping(&mut connection));
    assert!(timeout(A_WHILE, &mut late).await.is_err(), "nothing moves");
    bed.faults.cut_all();
    let cut = timeout(SOON, late)
        .await
        .expect("a cut ends a stall")
        .expect_err("the connection is closed");
    assert!(cut.is_connection_dropped());
    eventually("no connection is open", SOON, async || {
        bed.faults.connections() == 0
    })
    .await;
    bed.faults.stall(false);
    assert_eq!(
        ping(&mut bed.connect().await).await.expect("new ones work"),
        "PONG"
    );
}

#[tokio::test]
async fn forgotten_connections_are_silent_and_stay_open() {
    let bed = Bed::new().await;
    let mut old = bed.connect().await;
    bed.faults.forget_all();
    let mut late = std::pin::pin!(ping(&mut old));
    assert!(timeout(A_WHILE, &mut late).await.is_err(), "nothing moves");
    let mut new = bed.connect().await;
    assert_eq!(ping(&mut new).await.expect("new ones work"), "PONG");
    assert_eq!(bed.faults.connections(), 2);
    bed.faults.heal();
    assert!(timeout(A_WHILE, &mut late).await.is_err(), "nothing moves");
    bed.faults.cut_all();
    let cut = timeout(SOON, late).await.expect("a cut ends the silence");
    assert!(cut.expect_err("it is closed").is_connection_dropped());
}

#[tokio::test]
async fn refusing_concerns_new_connections_only() {
    let bed = Bed::new().await;
    let mut old = bed.connect().await;
    bed.faults.refuse(true);
    assert!(bed.connect_with("").await.is_err());
    assert_eq!(ping(&mut old).await.expect("the old one stays"), "PONG");
    bed.faults.refuse(false);
    assert_eq!(
        ping(&mut bed.connect().await).await.expect("new ones work"),
        "PONG"
    );
}

#[tokio::test]
async fn a_stall_holds_requests_back_until_it_ends() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.stall(true);
    let mut script = std::pin::pin!(incr(&mut connection, "x"));
    assert!(timeout(A_WHILE, &mut script).await.is_err(), "a reply came");
    let newcomer = timeout(A_WHILE, async {
        bed.connect_with("?protocol=resp3").await.is_ok()
    });
    assert!(newcomer.await.is_err(), "a new connection was answered");
    assert_eq!(bed.counted("x").await, 0);
    eventually("the proxy accepts the newcomer", SOON, async || {
        bed.faults.connections() == 2
    })
    .await;
    bed.faults.stall(false);
    assert_eq!(
        timeout(SOON, script)
            .await
            .expect("it goes on")
            .expect("nothing is lost"),
        1
    );
}

#[tokio::test]
async fn a_stall_delivers_requests_of_a_closed_connection_when_it_ends() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.stall(true);
    assert!(
        timeout(A_WHILE, incr(&mut connection, "x")).await.is_err(),
        "a reply came"
    );
    drop(connection);
    bed.faults.stall(false);
    eventually("the late script runs", SOON, async || {
        bed.counted("x").await == 1
    })
    .await;
}

#[tokio::test]
async fn stalled_replies_let_scripts_run() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.stall_replies(true);
    let mut script = std::pin::pin!(incr(&mut connection, "x"));
    assert!(timeout(A_WHILE, &mut script).await.is_err(), "a reply came");
    eventually("the script runs", SOON, async || {
        bed.counted("x").await == 1
    })
    .await;
    bed.faults.stall_replies(false);
    assert_eq!(
        timeout(SOON, script)
            .await
            .expect("it goes on")
            .expect("nothing is lost"),
        1
    );
}

#[tokio::test]
async fn delayed_requests_do_not_wait_for_each_other() {
    let bed = Bed::new().await;
    let connection = bed.connect().await;
    bed.faults.delay(LATENCY);
    let start = Instant::now();
    let pings: Vec<_> = (0..20)
        .map(|n| {
            let mut connection = connection.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(n)).await;
                ping(&mut connection).await
            })
        })
        .collect();
    for ping in pings {
        ping.await.expect("it ends").expect("nothing is lost");
    }
    let took = start.elapsed();
    assert!((LATENCY..10 * LATENCY).contains(&took), "{took:?}");
}

#[tokio::test]
async fn delayed_replies_let_scripts_run_and_do_not_wait_for_each_other() {
    let bed = Bed::new().await;
    let connection = bed.connect().await;
    bed.faults.delay_replies(LATENCY);
    let start = Instant::now();
    let scripts: Vec<_> = (0..20)
        .map(|n| {
            let mut connection = connection.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(n)).await;
                incr(&mut connection, "x").await
            })
        })
        .collect();
    eventually("all scripts run", SOON, async || {
        bed.counted("x").await == 20
    })
    .await;
    for script in scripts {
        script.await.expect("it ends").expect("nothing is lost");
    }
    let took = start.elapsed();
    assert!((LATENCY..10 * LATENCY).contains(&took), "{took:?}");
    bed.faults.heal();
    eventually("the latency has ended", SOON, async || {
        let start = Instant::now();
        ping(&mut connection.clone()).await.expect("it answers");
        start.elapsed() < LATENCY
    })
    .await;
}

#[tokio::test]
async fn a_dead_server_closes_connections_and_refuses_new_ones() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.server.kill();
    assert!(ping(&mut connection).await.is_err());
    let refused = timeout(SOON / 2, bed.connect_with("")).await;
    let error = refused.expect("at once").expect_err("nobody answers");
    assert_eq!(error.kind(), ErrorKind::Io);
    bed.server.restart().await;
    assert_eq!(
        ping(&mut bed.connect().await).await.expect("it is back"),
        "PONG"
    );
}

#[tokio::test]
async fn a_dropped_proxy_closes_everything() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    let port = bed.proxy.port();
    drop(bed.proxy);
    assert!(ping(&mut connection).await.is_err());
    assert_eq!(bed.faults.connections(), 0);
    // Another program may take the port for a moment: the source port of a connection, even of this
    // one, which then connects to itself.
    let refused = async || TcpStream::connect(("127.0.0.1", port)).await.is_err();
    eventually("a new connection is refused", SOON, refused).await;
}

#[tokio::test]
async fn a_lost_segment_is_late_and_not_lost() {
    let bed = Bed::new().await;
    let mut connection = bed.connect().await;
    bed.faults.lose_segments(1.0);
    let start = Instant::now();
    let pong = ping(&mut connection).await;
    assert_eq!(pong.expect("nothing is cut"), "PONG");
    // Once on the way to the server, and once on the way back.
    assert!(start.elapsed() >= Duration::from_millis(400));
    assert_eq!(bed.faults.connections(), 1);
}
