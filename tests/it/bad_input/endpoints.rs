//! Endpoints that are not Redis servers.

use std::net::{Ipv4Addr, SocketAddr};

use redisson_lock::{Error, LockClient};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket},
    task::JoinHandle,
};

use super::{SECRET, SOON};

/// Sends `greeting` on each connection, then closes it or falls silent.
async fn endpoint(greeting: &'static [u8], hangs_up: bool) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut connections = Vec::new();
        while let Ok((mut connection, _)) = listener.accept().await {
            // Like a server, it reads a request before it answers.
            let _ = connection.read(&mut [0; 256]).await;
            let _ = connection.write_all(greeting).await;
            if !hangs_up {
                connections.push(connection);
            }
        }
    });
    (address, task)
}

/// Connecting fails in time. The error says what to do, without the secret.
async fn is_unavailable(address: SocketAddr) {
    let url = format!("redis://:s3cret@{address}");
    let connected = tokio::time::timeout(SOON, LockClient::connect(&url)).await;
    let error = connected
        .expect("the call ends in time")
        .expect_err("the endpoint is not Redis");
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("check"), "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
}

#[tokio::test]
async fn a_closed_port() {
    // Bound, so that no other program takes the port, and not listening.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    is_unavailable(socket.local_addr().unwrap()).await;
}

#[tokio::test]
async fn an_unknown_host() {
    let connected = LockClient::connect("redis://:s3cret@redis.invalid:6379");
    let connected = tokio::time::timeout(SOON, connected).await;
    let error = connected.expect("the call ends in time").unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("check"), "{error}");
}

#[tokio::test]
async fn a_socket_that_is_not_there() {
    let error = LockClient::connect("unix:///nowhere/redis.sock")
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("check"), "{error}");
}

#[tokio::test]
async fn a_port_that_says_nothing() {
    let (address, task) = endpoint(b"", false).await;
    is_unavailable(address).await;
    task.abort();
}

#[tokio::test]
async fn a_port_that_hangs_up() {
    let (address, task) = endpoint(b"", true).await;
    is_unavailable(address).await;
    task.abort();
}

#[tokio::test]
async fn a_web_server() {
    let greeting = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    for hangs_up in [true, false] {
        let (address, task) = endpoint(greeting, hangs_up).await;
        is_unavailable(address).await;
        task.abort();
    }
}

#[tokio::test]
async fn a_secure_shell() {
    let (address, task) = endpoint(b"SSH-2.0-OpenSSH_9.2p1\r\n", false).await;
    is_unavailable(address).await;
    task.abort();
}
