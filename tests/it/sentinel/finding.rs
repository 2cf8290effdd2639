//! The search for the master, and the errors when none is found.

use std::collections::HashMap;

use redisson_lock::{Error, LockClient};
use testbed::{Proxy, Server, Watched, eventually, unique_name};

use super::{config, connections, works};
use crate::hazards::stage::{GENEROUS, connect, exists, why};

const SECRETS: [&str; 3] = ["s3cret-of-servers", "s3cret-of-sentinels", "wr0ng"];

/// The error of a connection attempt. It contains no secret.
async fn refusal(url: &str) -> Error {
    let error = LockClient::connect(url)
        .await
        .expect_err("the call is refused");
    let said = format!("{error} {error:?}");
    assert!(
        SECRETS.iter().all(|secret| !said.contains(secret)),
        "{said}"
    );
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_master_is_found_by_any_sentinel_that_is_up() {
    let set_up = Watched::start().await;
    set_up.sentinels[0].kill();
    set_up.sentinels[1].pause();
    let client = connect(&set_up.url(), config()).await;
    let name = unique_name("found");
    let _guard = client.reentrant_lock(&name).lock().await.unwrap();
    assert!(exists(&set_up.replicated.servers[0], &name).await);
    set_up.sentinels[1].resume();
}

/// The URL names one sentinel. The client learns the rest from it, and works after its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_learns_of_the_other_sentinels() {
    let set_up = Watched::start().await;
    let first = &set_up.sentinels[0];
    let url = format!(
        "redis-sentinel://127.0.0.1:{}/{}",
        first.port(),
        Watched::SERVICE
    );
    let client = connect(&url, config()).await;
    for sentinel in &set_up.sentinels {
        eventually("the client asks the sentinel", GENEROUS, async || {
            connections(sentinel).await == 1
        })
        .await;
    }
    first.kill();
    set_up.replicated.servers[0].kill();
    works(&client, &unique_name("learned")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_service_and_silent_sentinels_are_errors() {
    let set_up = Watched::start().await;
    let url = set_up.url().replace(Watched::SERVICE, "another");
    let unknown = refusal(&url).await;
    assert!(
        ["another", "name"]
            .iter()
            .all(|told| why(&unknown).contains(told)),
        "{unknown:?}"
    );
    for sentinel in &set_up.sentinels {
        sentinel.kill();
    }
    let silent = refusal(&set_up.url()).await;
    assert!(why(&silent).contains("sentinels"), "{silent:?}");
    for sentinel in &set_up.sentinels {
        let address = format!("127.0.0.1:{}", sentinel.port());
        assert!(why(&silent).contains(&address), "{silent:?}");
    }
    assert!(why(&silent).contains("refused"), "{silent:?}");
    // One address of many is enough to find the mistake.
    let more: Vec<_> = (2..=9)
        .map(|port| format!("node=127.0.0.1:{port}"))
        .collect();
    let url = format!(
        "redis-sentinel://127.0.0.1:1/{}?{}",
        Watched::SERVICE,
        more.join("&")
    );
    let silent = refusal(&url).await;
    assert!(why(&silent).contains("127.0.0.1:5, 4 more"), "{silent:?}");
}

/// Servers and sentinels have different users and passwords.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_and_passwords_of_servers_and_sentinels() {
    let [of_servers, of_sentinels, wrong] = SECRETS;
    let set_up = Watched::start_as(
        &["--requirepass", of_servers, "--masterauth", of_servers],
        &["--requirepass", of_sentinels],
        &[("auth-pass", of_servers)],
    )
    .await;
    for server in set_up.replicated.servers.iter().chain(&set_up.sentinels) {
        let user = [
            "ACL",
            "SETUSER",
            "app",
            "on",
            ">s3cret-of-servers-and-sentinels",
        ];
        let rights = ["~*", "&*", "+@all"];
        server
            .command::<()>(&[&user[..], &rights[..]].concat())
            .await;
    }
    let url = |server: &str, sentinel: &str| {
        set_up.url().replace("://", &format!("://{server}@")) + sentinel
    };
    let both = format!("&sentinelPassword={of_sentinels}");
    let client = connect(&url(&format!(":{of_servers}"), &both), config()).await;
    let own = "s3cret-of-servers-and-sentinels";
    let users = format!("&sentinelUsername=app&sentinelPassword={own}");
    let as_user = connect(&url(&format!("app:{own}"), &users), config()).await;
    works(&as_user, &unique_name("user")).await;

    for (server, sentinel, setting) in [
        (of_servers, "", "sentinelPassword"),
        (of_servers, "&sentinelPassword=wr0ng", "sentinelPassword"),
        (
            of_servers,
            "&sentinelUsername=app&sentinelPassword=wr0ng",
            "sentinelPassword",
        ),
        (wrong, &*both, "password"),
    ] {
        let error = refusal(&url(&format!(":{server}"), sentinel)).await;
        assert!(
            matches!(&error, Error::Config { reason, .. } if reason.contains(setting)),
            "{server} {sentinel}: {error:?}"
        );
    }
    // The passwords serve after a failover too.
    set_up.replicated.servers[0].kill();
    works(&client, &unique_name("new")).await;
}

/// The error names the missing right, and not a missing service.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_the_right_to_ask() {
    let set_up = Watched::start().await;
    for sentinel in &set_up.sentinels {
        let user = [
            "ACL",
            "SETUSER",
            "mute",
            "on",
            ">s3cret-of-sentinels",
            "+hello",
            "+client",
        ];
        sentinel.command::<()>(&user).await;
    }
    let url = set_up.url() + "&sentinelUsername=mute&sentinelPassword=s3cret-of-sentinels";
    let error = refusal(&url).await;
    assert!(
        matches!(&error, Error::Config { reason, .. } if reason.contains("NOPERM")),
        "{error:?}"
    );
}

/// A NAT: announced addresses are reached at other ones, also after a failover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_addresses_are_mapped() {
    let set_up = Watched::start().await;
    let mut gateway = HashMap::new();
    for server in set_up.replicated.servers.iter().chain(&set_up.sentinels) {
        gateway.insert(server.port(), Proxy::start(server.port()).await);
    }
    let outside: HashMap<u16, u16> = gateway
        .iter()
        .map(|(port, proxy)| (*port, proxy.port()))
        .collect();
    let through = |server: &Server| gateway[&server.port()].faults().connections() as usize;
    let first = outside[&set_up.sentinels[0].port()];
    let client = LockClient::builder()
        .url(format!(
            "redis-sentinel://127.0.0.1:{first}/{}",
            Watched::SERVICE
        ))
        .address_map(move |host, port| (host.to_owned(), outside[&port]))
        .config(config())
        .build()
        .await
        .unwrap();
    works(&client, &unique_name("mapped")).await;
    for sentinel in &set_up.sentinels {
        eventually(
            "the client asks the sentinel through its proxy",
            GENEROUS,
            async || through(sentinel) == 1,
        )
        .await;
        assert_eq!(connections(sentinel).await, 1);
    }
    set_up.replicated.servers[0].kill();
    works(&client, &unique_name("mapped")).await;
    let new = &set_up.replicated.servers[set_up.fails_over_from(0).await];
    eventually("the client uses the proxy only", GENEROUS, async || {
        through(new) >= 2 && connections(new).await == through(new)
    })
    .await;
}
