use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use testbed::{Server, eventually};
use tokio::time::timeout;

use crate::{A_WHILE, SOON};

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn a_server_answers_at_its_url_and_dies_with_its_handle() {
    let server = Server::start().await;
    let client = redis::Client::open(server.url()).expect("the URL is good");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("the server answers");
    let info: String = redis::cmd("INFO")
        .arg("server")
        .query_async(&mut connection)
        .await
        .expect("INFO works");
    assert!(
        info.contains(&format!("process_id:{}\r\n", server.pid())),
        "{info}"
    );
    let folder: Vec<String> = server.command(&["CONFIG", "GET", "dir"]).await;
    assert_eq!(Path::new(&folder[1]), server.dir());
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    server.pause();
    drop(server);
    assert!(!alive(pid) && !dir.exists());
}

#[tokio::test]
async fn options_reach_the_server() {
    let options = [
        "--requirepass",
        "secret",
        "--maxmemory",
        "1mb",
        "--unixsocket",
        "{dir}/own.sock",
    ];
    let server = Server::start_with(&options).await;
    let limit: Vec<String> = server.command(&["CONFIG", "GET", "maxmemory"]).await;
    assert_eq!(limit[1], "1048576");
    assert!(server.dir().join("own.sock").exists());
    let refused = redis::Client::open(server.url()).expect("the URL is good");
    let mut refused = refused
        .get_multiplexed_async_connection()
        .await
        .expect("connecting needs no password");
    assert!(
        redis::cmd("GET")
            .arg("x")
            .query_async::<()>(&mut refused)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_server_without_a_port_is_still_inspected() {
    let server = Server::start_with(&["--port", "0"]).await;
    assert_eq!(server.command::<String>(&["PING"]).await, "PONG");
    assert!(
        tokio::net::TcpStream::connect(("127.0.0.1", server.port()))
            .await
            .is_err()
    );
}

#[tokio::test]
#[should_panic(expected = "no-such-option")]
async fn a_server_that_does_not_start_shows_its_log() {
    Server::start_with(&["--no-such-option", "1"]).await;
}

/// What runs on another server would otherwise pass on this one.
#[tokio::test]
async fn the_environment_names_the_program() {
    let mut run = Command::new(std::env::current_exe().expect("this is a test binary"));
    run.args([
        "server::a_server_without_a_port_is_still_inspected",
        "--exact",
    ]);
    run.env("REDIS_SERVER", "/no/such/server");
    let output = tokio::task::spawn_blocking(move || run.output())
        .await
        .expect("it runs")
        .expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("there is no `/no/such/server`"), "{told}");
}

#[tokio::test]
async fn a_paused_server_answers_once_resumed() {
    let server = Server::start().await;
    let mut connection = server.admin().await;
    server.pause();
    let ping = redis::cmd("PING");
    let mut answer = std::pin::pin!(ping.query_async::<String>(&mut connection));
    assert!(
        timeout(A_WHILE, &mut answer).await.is_err(),
        "a paused server answered"
    );
    server.resume();
    assert_eq!(
        timeout(SOON, answer)
            .await
            .expect("it goes on")
            .expect("it answers"),
        "PONG"
    );
}

#[tokio::test]
async fn a_restarted_server_is_another_on_the_same_port_and_empty() {
    let server = Server::start().await;
    server.command::<()>(&["SET", "x", "1"]).await;
    let (port, pid) = (server.port(), server.pid());
    server.kill();
    assert!(!alive(pid));
    assert!(
        tokio::net::TcpStream::connect(("127.0.0.1", port))
            .await
            .is_err()
    );
    let other = tokio::net::TcpSocket::new_v4().expect("a socket can be made");
    let taken = other.bind(([127, 0, 0, 1], port).into());
    assert_eq!(
        taken.map_err(|error| error.kind()),
        Err(ErrorKind::AddrInUse),
        "the port stays reserved"
    );
    server.restart().await;
    assert_ne!(server.pid(), pid);
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).expect("the URL is good");
    let mut connection = client
        .get_multiplexed_async_connection()
        .await
        .expect("the same port answers");
    let found: Option<String> = redis::cmd("GET")
        .arg("x")
        .query_async(&mut connection)
        .await
        .expect("it answers");
    assert_eq!(found, None);
    server.restart().await;
    assert_eq!(server.command::<String>(&["PING"]).await, "PONG");
}

#[tokio::test]
async fn calls_and_processor_time_are_counted() {
    let server = Server::start().await;
    let before = server.cpu_seconds().await;
    for key in ["a", "b", "c"] {
        server.command::<()>(&["SET", key, "1"]).await;
    }
    assert_eq!(server.calls().await["set"], 3);
    server.reset_calls().await;
    let calls = server.calls().await;
    assert!(!calls.contains_key("set"), "{calls:?}");
    assert_eq!(calls["config|resetstat"], 1);
    server
        .command::<()>(&["EVAL", "for i = 1, 1000000 do end", "0"])
        .await;
    let after = server.cpu_seconds().await;
    assert!(after > before, "{before} {after}");
}

/// Holding a server in a static, or being killed, skips `Drop`. The test runs itself again as the process that forgets.
#[tokio::test]
async fn a_server_dies_with_a_process_that_does_not_drop_it() {
    if std::env::var_os(FORGETS).is_some() {
        return forget_a_paused_server().await;
    }
    let this = "server::a_server_dies_with_a_process_that_does_not_drop_it";
    let mut run = Command::new(std::env::current_exe().expect("this is a test binary"));
    run.args([this, "--exact", "--nocapture"]);
    run.env(FORGETS, "1");
    let output = tokio::task::spawn_blocking(move || run.output())
        .await
        .expect("it runs")
        .expect("it starts");
    let told = String::from_utf8_lossy(&output.stdout);
    let told = told.lines().find_map(|line| line.split_once("forgotten "));
    let (pid, dir) = told
        .and_then(|(_, told)| told.split_once(' '))
        .expect("it tells");
    let pid: u32 = pid.parse().expect("it is a number");
    eventually("the forgotten server is dead", SOON, async || {
        !alive(pid) || is_zombie(pid)
    })
    .await;
    eventually("its folder is gone", SOON, async || {
        !Path::new(dir).exists()
    })
    .await;
}

/// Set in the process that forgets its server.
const FORGETS: &str = "TESTBED_FORGETS_A_SERVER";

async fn forget_a_paused_server() {
    let server = Server::start().await;
    server.pause();
    println!("\nforgotten {} {}", server.pid(), server.dir().display());
    std::mem::forget(server);
}

/// In a container orphans may not be reaped.
fn is_zombie(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.contains("State:\tZ")
}
