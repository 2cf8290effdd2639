//! Clusters behind tunnels: what their nodes announce leads nowhere, and `--map` translates it.

use testbed::{Clustered, Forwarder, Server, eventually};

use crate::{GENEROUS, code, done, done_at, rlock_at, text, tls::make_certificates};

const HELD: [&str; 3] = ["HSET", "2da5e3c1-0000-4000-8000-000000000000:1", "1"];

/// A cluster, a tunnel to each node, and the options that lead through them.
struct Tunnelled {
    cluster: Clustered,
    /// In the order of the nodes.
    tunnels: Vec<Forwarder>,
    map: Vec<String>,
    /// The name of a lock of each node.
    names: Vec<String>,
}

impl Tunnelled {
    async fn start(options: &[&str]) -> Self {
        let cluster = Clustered::start_with(3, false, options).await;
        let (mut tunnels, mut map, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for node in 0..cluster.servers.len() {
            names.push(cluster.name_on(node, "job").await);
        }
        for (node, server) in cluster.servers.iter().enumerate() {
            let (dead, bus) = ((node + 1).to_string(), (server.port() + 10_000).to_string());
            for (setting, port) in [
                ("cluster-announce-bus-port", &bus),
                ("cluster-announce-tls-port", &dead),
                ("cluster-announce-port", &dead),
            ] {
                server
                    .command::<()>(&["CONFIG", "SET", setting, port])
                    .await;
            }
            let tunnel = Forwarder::start(server.port()).await;
            map.push(format!("127.0.0.1:{dead}=127.0.0.1:{}", tunnel.port()));
            tunnels.push(tunnel);
        }
        let real: Vec<_> = cluster.servers.iter().map(Server::port).collect();
        eventually("all nodes announce the dead ports", GENEROUS, async || {
            for server in &cluster.servers {
                let nodes: String = server.command(&["CLUSTER", "NODES"]).await;
                if real.iter().any(|port| nodes.contains(&format!(":{port}@"))) {
                    return false;
                }
            }
            true
        })
        .await;
        Self {
            cluster,
            tunnels,
            map,
            names,
        }
    }

    fn url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}", self.tunnels[0].port())
    }

    fn map(&self) -> Vec<&str> {
        self.map.iter().flat_map(|rule| ["--map", rule]).collect()
    }

    /// Each verb works on the locks of each node.
    async fn serves(&self, url: &str, options: &[&str]) {
        let all = [options, &self.map()].concat();
        for (server, name) in self.cluster.servers.iter().zip(&self.names) {
            let held = [HELD[0], name, HELD[1], HELD[2]];
            server.command::<u32>(&held).await;
        }
        let output = done_at(url, &[&all[..], &["ls"]].concat()).await;
        let listed = text(&output.stdout);
        let told = text(&output.stderr);
        assert!(
            self.names.iter().all(|name| listed.contains(name)),
            "{listed} {told}"
        );
        for name in &self.names {
            for words in [
                &["show", name][..],
                &["unlock", name, "--force", "--yes"],
                &["run", name, "--", "true"],
            ] {
                let output = done_at(url, &[&all[..], words].concat()).await;
                assert_eq!(
                    code(&output),
                    Some(0),
                    "{words:?}: {}",
                    text(&output.stderr)
                );
            }
        }
        let output = done_at(url, &[&all[..], &["doctor"]].concat()).await;
        let printed = text(&output.stdout);
        for part in [
            "3 masters, all slots served",
            "a release woke a waiter of another client",
        ] {
            assert!(printed.contains(part), "{printed} {}", text(&output.stderr));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_behind_a_tunnel_is_reached_by_its_map() {
    let tunnelled = Tunnelled::start(&[]).await;
    let url = tunnelled.url("redis-cluster");
    tunnelled.serves(&url, &[]).await;
    let mut by_variable = rlock_at(&url, &["ls"]);
    by_variable.env("RLOCK_MAP", tunnelled.map.join(","));
    let output = by_variable.output().await.unwrap();
    assert_eq!(code(&output), Some(0), "{}", text(&output.stderr));
    for words in [&["ls"][..], &["run", "job", "--", "true"]] {
        let output = done_at(&url, words).await;
        let told = text(&output.stderr);
        assert_eq!(code(&output), Some(69), "{told}");
        assert!(
            told.contains("--map") && !told.contains("address_map"),
            "{told}"
        );
    }
}

/// Behind TLS that wants a client certificate, and a login.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_behind_a_tunnel_may_want_a_certificate_and_a_login() {
    let files = Server::start().await;
    make_certificates(files.dir());
    let of_server = ["ca.crt", "server.crt", "server.key"];
    let secure = testbed::tls_only(files.dir(), "yes", of_server);
    let options = ["--tls-cluster", "yes", "--requirepass", "s3cr3t"];
    let tunnelled = Tunnelled::start(&[&secure[..], &options].concat()).await;
    for server in &tunnelled.cluster.servers {
        let user = ["ACL", "SETUSER", "app", "on", ">pa55", "~*", "&*", "+@all"];
        server.command::<()>(&user).await;
    }
    let file = |name: &str| files.dir().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("password"), "pa55\n").unwrap();
    let (ca, certificate, key) = (file("ca.crt"), file("client.crt"), file("client.key"));
    let password = file("password");
    let tls = ["--cacert", &ca, "--cert", &certificate, "--key", &key];
    let login = ["--user", "app", "--password-file", &password];
    let url = tunnelled.url("rediss-cluster");
    let options = [&tls[..], &login, &["--sni", "redis.internal"]].concat();
    tunnelled.serves(&url, &options).await;
}

#[tokio::test]
async fn maps_that_cannot_be_are_refused_and_say_what_to_do() {
    let server = Server::start().await;
    let output = done(&server, &["--map", "a=b", "ls"]).await;
    assert_eq!(code(&output), Some(64));
    assert!(text(&output.stderr).contains("sentinels and nodes of a cluster"));
    for (words, says) in [
        (&["--map", "10.0.0.1:6379"][..], "FROM=TO"),
        (&["--map", "a:0=b"], "65535"),
        (&["--map", "a:1=b:1", "--map", "a:1=c:1"], "twice"),
    ] {
        let words = [words, &["ls"]].concat();
        let output = done_at("redis-cluster://127.0.0.1:1", &words).await;
        let told = text(&output.stderr);
        assert_eq!(code(&output), Some(64), "{words:?}: {told}");
        assert!(told.contains(says), "{words:?}: {told}");
    }
}
