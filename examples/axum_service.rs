//! A web service that pays each order once at a time, over all its instances: `cargo run --example axum_service`, then
//! `curl -X POST localhost:3000/orders/42/pay` in two terminals. Ctrl-C ends it after the pending requests, and after 20 s at most.
//!
//! The server is that of `REDIS_URL`, or `redis://127.0.0.1:6379`.

use std::{sync::Arc, time::Duration};

use axum::{Router, extract::Path, extract::State, http::StatusCode, routing::post};
use redisson_lock::{Error, LockClient};
use tokio::{net::TcpListener, sync::oneshot};

struct Service {
    locks: LockClient,
    /// The longest wait of a request for another one with the same order.
    patience: Duration,
    /// The duration of a payment.
    payment: Duration,
    /// The longest time of pending requests after the order to stop.
    shutdown: Duration,
}

/// When a client hangs up, axum drops this future: the wait ends, or the payment stops and the lock is released.
async fn pay(State(service): State<Arc<Service>>, Path(order): Path<u32>) -> (StatusCode, String) {
    let lock = service.locks.reentrant_lock(format!("order:{order}"));
    let payment = async |_guard: &_| {
        tokio::time::sleep(service.payment).await;
        format!("order {order} is paid\n")
    };
    match lock.try_run_for(service.patience, payment).await {
        Ok(Some(paid)) => (StatusCode::OK, paid),
        Ok(None) => (StatusCode::CONFLICT, "the order is being paid\n".into()),
        Err(error) => {
            // The text of an error has names of locks and servers: it belongs into the log.
            eprintln!("order {order}: {error}");
            let (status, told) = told(&error);
            (status, told.into())
        }
    }
}

/// What a caller is told about an error.
fn told(error: &Error) -> (StatusCode, &'static str) {
    match error {
        // The payment was made without the lock, perhaps a second time: an operator must check it.
        Error::Lost { .. } if error.take_result::<String>().is_some() => (
            StatusCode::INTERNAL_SERVER_ERROR,
            "the payment is checked\n",
        ),
        // The payment was stopped. So it is when a shutdown waits no longer.
        Error::Lost { .. } | Error::Closed => (StatusCode::SERVICE_UNAVAILABLE, "stopped\n"),
        _ if error.is_retryable() => (StatusCode::SERVICE_UNAVAILABLE, "try again later\n"),
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "internal error\n"),
    }
}

/// Serves until `stop`. The pending requests have some time then: after it their payments are stopped, and their locks released.
async fn serve(
    service: Service,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (locks, patience) = (service.locks.clone(), service.shutdown);
    let routes = Router::new()
        .route("/orders/{order}/pay", post(pay))
        .with_state(Arc::new(service));
    let (stopped, stopping) = oneshot::channel();
    let serving = axum::serve(listener, routes).with_graceful_shutdown(async {
        stop.await;
        let _ = stopped.send(());
    });
    let ending = async {
        // The server may also end by an error.
        let _ = stopping.await;
        locks.shutdown_within(patience).await
    };
    let (served, report) = tokio::join!(serving.into_future(), ending);
    for hold in report.unreleased {
        eprintln!("stays locked until its lease ends: {hold}");
    }
    served
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("REDIS_URL").unwrap_or("redis://127.0.0.1:6379".into());
    let service = Service {
        locks: LockClient::connect(url).await?,
        patience: Duration::from_secs(2),
        payment: Duration::from_secs(5),
        shutdown: Duration::from_secs(20),
    };
    let listener = TcpListener::bind("127.0.0.1:3000").await?;
    println!("listening on {}", listener.local_addr()?);
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(serve(service, listener, stop).await?)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use testbed::{Server, eventually};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpStream,
        task::JoinHandle,
    };

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    struct Running {
        redis: Server,
        at: SocketAddr,
        stop: oneshot::Sender<()>,
        served: JoinHandle<std::io::Result<()>>,
    }

    async fn run(patience: Duration, payment: Duration, shutdown: Duration) -> Running {
        let redis = Server::start().await;
        let service = Service {
            locks: LockClient::connect(redis.url()).await.unwrap(),
            patience,
            payment,
            shutdown,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let stopped = async { drop(stopped.await) };
        Running {
            redis,
            at,
            stop,
            served: tokio::spawn(serve(service, listener, stopped)),
        }
    }

    impl Running {
        async fn request(&self, order: u32) -> TcpStream {
            let mut stream = TcpStream::connect(self.at).await.unwrap();
            let head = format!(
                "POST /orders/{order}/pay HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream
        }

        async fn is_locked(&self, order: u32, locked: bool) {
            let name = format!("order:{order}");
            eventually("the lock is as expected", SOON, async || {
                (self.redis.command::<u32>(&["EXISTS", &name]).await == 1) == locked
            })
            .await;
        }
    }

    async fn answer(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        let read = stream.read_to_string(&mut answer);
        tokio::time::timeout(SOON, read).await.unwrap().unwrap();
        answer
    }

    #[tokio::test]
    async fn an_order_is_paid_once_at_a_time() {
        let service = run(Duration::from_millis(100), Duration::from_secs(2), SOON).await;
        let first = service.request(42).await;
        service.is_locked(42, true).await;
        let second = service.request(42).await;
        let other = service.request(43).await;
        assert!(answer(second).await.starts_with("HTTP/1.1 409"));
        assert!(answer(first).await.starts_with("HTTP/1.1 200"));
        assert!(answer(other).await.contains("order 43 is paid"));
        service.is_locked(42, false).await;
    }

    #[tokio::test]
    async fn a_request_that_hangs_up_holds_and_waits_no_more() {
        let service = run(SOON, Duration::from_secs(3600), SOON).await;
        let first = service.request(42).await;
        service.is_locked(42, true).await;
        let waits = service.request(42).await;
        drop(waits);
        drop(first);
        service.is_locked(42, false).await;
    }

    #[tokio::test]
    async fn a_shutdown_lets_requests_end() {
        let service = run(SOON, Duration::from_secs(1), SOON).await;
        let request = service.request(42).await;
        service.is_locked(42, true).await;
        service.stop.send(()).unwrap();
        assert!(answer(request).await.starts_with("HTTP/1.1 200"));
        let served = tokio::time::timeout(SOON, service.served).await;
        served.unwrap().unwrap().unwrap();
        assert_eq!(service.redis.command::<u32>(&["DBSIZE"]).await, 0);
    }

    #[tokio::test]
    async fn a_shutdown_stops_what_lasts_too_long() {
        let service = run(SOON, Duration::from_secs(3600), Duration::from_millis(100)).await;
        let request = service.request(42).await;
        service.is_locked(42, true).await;
        service.stop.send(()).unwrap();
        assert!(answer(request).await.starts_with("HTTP/1.1 503"));
        let served = tokio::time::timeout(SOON, service.served).await;
        served.unwrap().unwrap().unwrap();
        assert_eq!(service.redis.command::<u32>(&["DBSIZE"]).await, 0);
    }

    #[tokio::test]
    async fn an_answer_names_no_lock_and_no_server() {
        let service = run(Duration::from_millis(100), Duration::from_secs(1), SOON).await;
        service
            .redis
            .command::<()>(&["SET", "order:42", "foreign"])
            .await;
        let answer_of = async |order| answer(service.request(order).await).await;
        let refused = answer_of(42).await;
        assert!(refused.starts_with("HTTP/1.1 500"), "{refused}");
        service.redis.kill();
        let away = answer_of(43).await;
        assert!(away.starts_with("HTTP/1.1 503"), "{away}");
        for told in [refused, away] {
            assert!(
                !told.contains("order:") && !told.contains("127.0.0.1"),
                "{told}"
            );
        }
    }
}
