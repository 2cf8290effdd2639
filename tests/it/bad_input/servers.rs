//! Servers that refuse.

use redisson_lock::{Config, Error, LockClient, Released};
use testbed::Server;

use super::SECRET;

/// The error of connecting to `url`.
async fn refusal(url: &str) -> Error {
    let connected = tokio::time::timeout(super::SOON, LockClient::connect(url)).await;
    let error = connected
        .expect("the call ends in time")
        .expect_err("the call is refused");
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    error
}

#[tokio::test]
async fn wrong_and_missing_passwords() {
    let server = Server::start_with(&["--requirepass", "right"]).await;
    server
        .command::<()>(&["ACL", "SETUSER", "off", "off", ">s3cret", "~*", "+@all"])
        .await;
    let port = server.port();
    for url in [
        format!("redis://:s3cret@127.0.0.1:{port}"),
        format!("redis://default:s3cret@127.0.0.1:{port}"),
        format!("redis://nobody:s3cret@127.0.0.1:{port}"),
        format!("redis://off:s3cret@127.0.0.1:{port}"),
        format!("redis://127.0.0.1:{port}"),
    ] {
        let error = refusal(&url).await;
        assert!(matches!(error, Error::Config { .. }), "{url}: {error:?}");
        let text = crate::in_full(&error);
        assert!(
            text.contains("password") && text.contains("check"),
            "{url}: {text}"
        );
    }
    // A file and a builder have no URL.
    let file =
        format!("singleServerConfig: {{ address: 'redis://127.0.0.1:{port}', password: s3cret }}");
    let of_file = LockClient::from_redisson_yaml(file).await;
    let builder = LockClient::builder().url(format!("redis://127.0.0.1:{port}"));
    let of_builder = builder.credentials("default", "s3cret").build().await;
    for error in [of_file, of_builder].map(Result::unwrap_err) {
        let text = crate::in_full(&error);
        assert!(text.contains("wherever they are set"), "{text}");
        assert!(!text.contains(SECRET), "{text}");
    }
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
}

/// The server admits every client. A needless password most likely means that servers were mixed
/// up.
#[tokio::test]
async fn a_password_for_a_server_without_one() {
    let server = Server::start().await;
    let error = refusal(&format!("redis://app:s3cret@127.0.0.1:{}", server.port())).await;
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
}

#[tokio::test]
async fn a_database_that_the_server_does_not_have() {
    let server = Server::start_with(&["--databases", "4"]).await;
    let error = refusal(&format!("redis://127.0.0.1:{}/9", server.port())).await;
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    let text = crate::in_full(&error);
    assert!(text.contains("database"), "{text}");
}

#[tokio::test]
async fn rights_that_the_user_lacks() {
    let server = Server::start().await;
    let rules = [
        "ACL", "SETUSER", "app", "on", ">s3cret", "~app:*", "&*", "+@all",
    ];
    server.command::<()>(&rules).await;
    let url = format!("redis://app:s3cret@127.0.0.1:{}", server.port());
    let client = LockClient::connect(&url).await.unwrap();
    let error = client.reentrant_lock("order:42").lock().await.unwrap_err();
    assert!(matches!(error, Error::Redis { .. }), "{error:?}");
    assert!(error.to_string().contains("permission"), "{error}");
    assert_eq!(server.command::<u32>(&["DBSIZE"]).await, 0);
    assert!(
        client
            .reentrant_lock("app:42")
            .try_lock()
            .await
            .unwrap()
            .is_some()
    );
}

/// Redis before 6, or a server that speaks its protocol.
#[tokio::test]
async fn a_server_without_resp3() {
    let server = Server::start_with(&["--rename-command", "HELLO", ""]).await;
    let mut config = Config::default();
    config.max_poll_interval = 30 * super::SOON;
    let builder = LockClient::builder().url(server.url()).config(config);
    let client = builder.build().await.unwrap();
    let lock = client.reentrant_lock("order:42");
    let guard = lock.lock().await.unwrap();
    assert_eq!(lock.hold_count().await, Ok(1));
    server.reset_calls().await;
    let other = lock.owned_by(&redisson_lock::Owner::new());
    let waiter = tokio::spawn(async move { other.lock().await.map(drop) });
    let parked = async || server.calls().await.get("evalsha") >= Some(&2);
    testbed::eventually("the task waits", super::SOON, parked).await;
    assert_eq!(guard.unlock().await, Ok(Released::Fully));
    let woken = tokio::time::timeout(super::SOON, waiter).await;
    woken.expect("a message wakes the waiter").unwrap().unwrap();
}
