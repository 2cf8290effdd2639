//! The rights that docs/operations.md lists are enough, and each is needed (P-T8). The contract
//! runs under them too.

mod lists;
mod needed;
mod optional;
mod set_ups;
pub mod steps;
mod synchronizers;

use testbed::Server;

const DOCS: &str = include_str!("../../docs/operations.md");
/// The heading of the rights that every client needs.
const EVERY_CLIENT: &str = "every client";
const PASSWORD: &str = "secret";

/// The words behind `ACL SETUSER app` under a heading that names `part`: a kind of lock, or a
/// deployment.
pub fn rights(part: &str) -> Vec<String> {
    let block = DOCS
        .split("```")
        .skip(1)
        .step_by(2)
        .find(|block| block.contains("ACL SETUSER"))
        .expect("the page lists the rights");
    let sections = block.split("# ").skip(1);
    let mut lines = sections.filter_map(|section| {
        let (heading, lines) = section.split_once('\n')?;
        let mut parts = heading.split(", ");
        parts.any(|named| named == part).then_some(lines)
    });
    let lines = lines
        .next()
        .unwrap_or_else(|| panic!("the page has no rights for {part}"));
    let words = lines.lines().filter(|line| !line.is_empty()).map(|line| {
        line.strip_prefix("ACL SETUSER app ")
            .unwrap_or_else(|| panic!("not an ACL command: {line}"))
            .split(' ')
    });
    words.flatten().map(str::to_owned).collect()
}

/// The rights of every client and those of `parts`.
fn all_rights(parts: &[&str]) -> Vec<String> {
    let mut parts = parts.to_vec();
    parts.insert(0, EVERY_CLIENT);
    parts.into_iter().flat_map(rights).collect()
}

/// Gives `user` on `server` these rights only, and returns the URL for that user.
async fn admit_with(server: &Server, user: &str, rights: &[String]) -> String {
    // One command: a user that loses a channel for a moment loses its connections.
    let mut words = vec!["ACL", "SETUSER", user, "reset"];
    words.extend(rights.iter().map(String::as_str));
    server.command::<()>(&words).await;
    with_user(&server.url(), user)
}

fn with_user(url: &str, user: &str) -> String {
    url.replacen("://", &format!("://{user}:{PASSWORD}@"), 1)
}

/// Whether the server predates Redis 7, and so lacks rights to channels and later commands.
async fn is_before_redis_7(server: &Server) -> bool {
    let version = &server.info("server").await["redis_version"];
    let major = version
        .split('.')
        .next()
        .and_then(|major| major.parse().ok());
    major.is_some_and(|major: u32| major < 7)
}

/// A user of several servers that has the rights of the page for some kinds, and no further ones.
pub struct Admitted(String);

impl Admitted {
    /// Creates the user on `servers`, for `kinds` in this deployment. Before Redis 7 the user has
    /// all rights.
    pub async fn to(servers: &[Server], kinds: &[&str], set_up: &[&str]) -> Self {
        let user = kinds.join(".");
        let of_database = servers[0].database().map(|_| "another database");
        let parts = [kinds, set_up, &["holders"], of_database.as_slice()].concat();
        let mut rights = all_rights(&parts);
        if is_before_redis_7(&servers[0]).await {
            let all = ["on", ">secret", "~*", "+@all"];
            rights = all.map(str::to_owned).to_vec();
        }
        for server in servers {
            admit_with(server, &user, &rights).await;
        }
        Self(user)
    }

    pub fn url(&self, url: &str) -> String {
        with_user(url, &self.0)
    }

    /// Creates the user on the sentinels too.
    pub async fn to_sentinels(&self, sentinels: &[Server], url: &str) -> String {
        let rights = rights("sentinel: on every sentinel");
        for sentinel in sentinels {
            admit_with(sentinel, &self.0, &rights).await;
        }
        let (url, user) = (self.url(url), &self.0);
        format!("{url}&sentinelUsername={user}&sentinelPassword={PASSWORD}")
    }
}
