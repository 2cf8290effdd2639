//! The man in the middle that tests program.

use redis::{AsyncConnectionConfig, Client, Value, aio::MultiplexedConnection};
use testbed::{Fate, Impostor, Part, Server, eventually};
use tokio::sync::mpsc::unbounded_channel;

use crate::SOON;

async fn connect(impostor: &Impostor, parameters: &str) -> MultiplexedConnection {
    let client = Client::open(format!("{}/{parameters}", impostor.url())).expect("a good URL");
    let connecting = client.get_multiplexed_async_connection();
    connecting.await.expect("the impostor lets us in")
}

async fn get(connection: &mut MultiplexedConnection, key: &str) -> String {
    let asking = redis::cmd("GET").arg(key).query_async(connection).await;
    asking.expect("it answers")
}

/// Sends commands about `b..` to another server, and makes replies upper case.
struct TwoServers(u16);

impl Part for TwoServers {
    fn command(&self, _connection: usize, words: &[&[u8]]) -> Fate {
        match words {
            [_, key, ..] if key.starts_with(b"b") => Fate::PassTo(self.0),
            _ => Fate::Pass,
        }
    }

    fn reply(&self, _connection: usize, words: &[&[u8]], reply: Vec<u8>) -> Vec<u8> {
        match words {
            [b"GET", ..] => reply.to_ascii_uppercase(),
            _ => reply,
        }
    }
}

#[tokio::test]
async fn commands_go_where_the_part_sends_them_and_replies_pass_through_it() {
    let servers = [Server::start().await, Server::start().await];
    for (server, text) in servers.iter().zip(["one", "two"]) {
        server.command::<()>(&["MSET", "a", text, "b", text]).await;
    }
    let [first, second] = servers.each_ref().map(Server::port);
    let impostor = Impostor::play(Some(first), TwoServers(second)).await;
    let mut connection = connect(&impostor, "").await;
    assert_eq!(get(&mut connection, "a").await, "ONE");
    assert_eq!(get(&mut connection, "b").await, "TWO");
    assert_eq!(impostor.connections(), 1);
}

#[tokio::test]
async fn messages_reach_the_client_beside_replies() {
    let server = Server::start().await;
    let impostor = Impostor::start(Some(server.port()), |_: &[&[u8]]| Fate::Pass).await;
    let url = format!("{}/?protocol=resp3", impostor.url());
    let client = Client::open(url).expect("a good URL");
    let (push, mut pushed) = unbounded_channel();
    let config = AsyncConnectionConfig::new().set_push_sender(push);
    let connecting = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connecting.await.expect("the impostor lets us in");
    connection.subscribe("news").await.expect("it subscribes");
    eventually("the server knows the listener", SOON, async || {
        server.command::<u32>(&["PUBLISH", "news", "x"]).await == 1
    })
    .await;
    while let Some(push) = pushed.recv().await {
        if push.kind == redis::PushKind::Message {
            assert_eq!(push.data[1], Value::BulkString(b"x".to_vec()));
            break;
        }
    }
    let answer: String = redis::cmd("PING")
        .query_async(&mut connection)
        .await
        .unwrap();
    assert_eq!(answer, "PONG");
}

#[tokio::test]
async fn the_last_answer_arrives_before_the_connection_closes() {
    let server = Server::start().await;
    let part = |words: &[&[u8]]| match words {
        [b"GET", ..] => Fate::LastAnswer(b"$4\r\nlast\r\n".to_vec()),
        _ => Fate::Pass,
    };
    let impostor = Impostor::start(Some(server.port()), part).await;
    let mut connection = connect(&impostor, "").await;
    assert_eq!(get(&mut connection, "a").await, "last");
    let again: redis::RedisResult<String> = redis::cmd("GET")
        .arg("a")
        .query_async(&mut connection)
        .await;
    assert!(again.is_err());
}
