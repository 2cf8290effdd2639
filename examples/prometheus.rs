//! A service with metrics of its locks for Prometheus: docs/metrics.md lists them, and docs/grafana-dashboard.json is a dashboard.
//!
//! ```text
//! REDIS_URL=redis://127.0.0.1:6379 cargo run --example prometheus --features metrics
//! curl http://127.0.0.1:9000/metrics
//! ```

use std::{error::Error, io, time::Duration};

use axum::{Router, routing::get};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use redisson_lock::LockClient;
use tokio::{net::TcpListener, time::sleep};

type Failure = Box<dyn Error + Send + Sync>;

/// Waits and holds, in seconds: from a round trip to an hour.
const SECONDS: [f64; 12] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0,
];
/// Operations in one call.
const OPERATIONS: [f64; 8] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0];

/// Installed before the first client connects: a client keeps the recorder that it finds then.
fn recorder() -> Result<PrometheusHandle, Failure> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_operations".into()), &OPERATIONS)?;
    Ok(builder.install_recorder()?)
}

async fn serve(listener: TcpListener, handle: PrometheusHandle) -> io::Result<()> {
    // Aggregates the histogram samples, which would otherwise pile up.
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            sleep(Duration::from_secs(5)).await;
            upkeep.run_upkeep();
        }
    });
    let metrics = get(move || async move { handle.render() });
    axum::serve(listener, Router::new().route("/metrics", metrics)).await
}

/// The work of the service.
async fn work(client: &LockClient) -> Result<(), redisson_lock::Error> {
    let guard = client.reentrant_lock("report").lock().await?;
    sleep(Duration::from_millis(50)).await;
    guard.unlock().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let handle = recorder()?;
    let url = std::env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1:6379".into());
    let client = LockClient::connect(&url).await?;
    let listener = TcpListener::bind("127.0.0.1:9000").await?;
    println!("http://{}/metrics", listener.local_addr()?);
    let works = tokio::spawn(async move {
        loop {
            if let Err(error) = work(&client).await {
                eprintln!("{error}");
                sleep(Duration::from_secs(1)).await;
            }
        }
    });
    serve(listener, handle).await?;
    works.abort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use testbed::Server;
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
    };

    use super::*;

    #[tokio::test]
    async fn a_prometheus_server_reads_the_gauges_of_the_locks() {
        let handle = recorder().unwrap();
        let redis = Server::start().await;
        let client = LockClient::connect(redis.url()).await.unwrap();
        work(&client).await.unwrap();
        work(&client).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, handle));
        let mut stream = TcpStream::connect(at).await.unwrap();
        let request = "GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        for line in [
            "redisson_lock_acquisitions_total{kind=\"reentrant\",outcome=\"acquired\"} 2",
            "redisson_lock_holders{kind=\"reentrant\"} 0",
            "redisson_lock_hold_seconds_bucket{kind=\"reentrant\",le=\"0.01\"} 0",
            "redisson_lock_hold_seconds_count{kind=\"reentrant\"} 2",
        ] {
            assert!(page.contains(line), "{line} in\n{page}");
        }
    }
}
