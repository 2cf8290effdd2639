//! Compares docs/from-redisson.md with Redisson's classes: every method has a row, and every row a
//! method.

use std::collections::BTreeSet;

use testbed::Server;

use crate::stage::Version;

const PAGE: &str = include_str!("../../docs/from-redisson.md");

/// The methods in the first columns of a section's tables.
fn named(section: &str) -> BTreeSet<String> {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let first = rows.filter_map(|row| row.split(" | ").next());
    // Every second part is in backticks.
    first
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .map(str::to_owned)
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_method_of_redisson_4_7_0_has_a_row() {
    let server = Server::start().await;
    let file = server.dir().join("redisson.yaml");
    let text = format!(
        "singleServerConfig: {{ address: \"{}\", connectionMinimumIdleSize: 1 }}",
        server.url()
    );
    std::fs::write(&file, text).unwrap();
    let java = Version::newest().that_is_built().java_peer_of(&file).await;
    let sections = PAGE.split("\n## `").skip(1);
    let mut checked = 0;
    for section in sections {
        let (class, text) = section.split_once('`').unwrap();
        // A section without a class lists no methods.
        let text = text.split("\n## ").next().unwrap_or_default();
        let regex = match class.rsplit('.').next() {
            Some("RedissonClient") => ".*(Lock|Semaphore|Latch)",
            Some("Config") => "set(.*Lock.*|SlavesSync.*|NameMapper)",
            _ => ".*",
        };
        let methods = java.ask("a", &["methods", class, regex]).await.unwrap();
        let methods: BTreeSet<_> = methods.into_iter().collect();
        let named = named(text);
        let missing: Vec<_> = methods.difference(&named).collect();
        let unknown: Vec<_> = named.difference(&methods).collect();
        assert!(
            missing.is_empty(),
            "{class}: methods without a row: {missing:#?}"
        );
        assert!(
            unknown.is_empty(),
            "{class}: rows without a method: {unknown:#?}"
        );
        checked += methods.len();
    }
    assert!(checked > 100, "{checked} methods in all");
}
