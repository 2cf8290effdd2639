//! Checks docker-compose.yml: its head names each profile with a URL whose port a service publishes, README.md names the first of them, and
//! README.md lists the version of each server as tested.

use std::collections::BTreeSet;

use crate::tree::Tree;

const FILE: &str = "docker-compose.yml";
const README: &str = "README.md";

/// A line of the head: `#   docker compose --profile NAME up -d --wait   URL`.
struct Command<'a> {
    profile: &'a str,
    url: &'a str,
}

pub fn check(tree: &Tree) -> Vec<String> {
    let (Some(text), Some(readme)) = (tree.text(FILE), tree.text(README)) else {
        return vec![format!("{FILE} or {README} is missing")];
    };
    let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
    let commands: Vec<_> = text.lines().filter_map(command).collect();
    let named: BTreeSet<_> = commands.iter().map(|command| command.profile).collect();
    let used: BTreeSet<_> = values(text, "profiles: ").collect();
    let mut problems = Vec::new();
    for profile in named.symmetric_difference(&used) {
        problems.push(format!(
            "{FILE}: only the head or only the services have the profile {profile}"
        ));
    }
    for Command { url, .. } in &commands {
        if !port_of(url)
            .is_some_and(|port| ports(text).any(|(first, last)| (first..=last).contains(&port)))
        {
            problems.push(format!("{FILE}: no service publishes the port of {url}"));
        }
    }
    if let Some(Command { profile, url }) = commands.first() {
        for needed in [
            &format!("docker compose --profile {profile} up -d --wait"),
            *url,
        ] {
            if !readme.contains(needed) {
                problems.push(format!("{README} lacks `{needed}` of {FILE}"));
            }
        }
    }
    for image in values(text, "image: ") {
        if !server_of(image).is_some_and(|server| is_tested(&readme, &server)) {
            problems.push(format!("{FILE}: {README} lists no tests on {image}"));
        }
    }
    problems
}

fn command(line: &str) -> Option<Command<'_>> {
    let words: Vec<_> = line.strip_prefix('#')?.split_whitespace().collect();
    match words[..] {
        [
            "docker",
            "compose",
            "--profile",
            profile,
            "up",
            "-d",
            "--wait",
            url,
        ] => Some(Command { profile, url }),
        _ => None,
    }
}

/// What follows `key` on its lines, without the brackets of a list.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    let values = text
        .lines()
        .filter_map(move |line| line.trim().strip_prefix(key));
    values.map(|value| value.trim_matches(['[', ']']))
}

/// The first and last published port of each range, `"127.0.0.1:6401-6403:6401-6403"` or `"127.0.0.1:6379:6379"`.
fn ports(text: &str) -> impl Iterator<Item = (u16, u16)> {
    text.split('"').filter_map(|quoted| {
        let (ports, _) = quoted.strip_prefix("127.0.0.1:")?.split_once(':')?;
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        Some((first.parse().ok()?, last.parse().ok()?))
    })
}

fn port_of(url: &str) -> Option<u16> {
    let (_, address) = url.split_once("://")?;
    address.split('/').next()?.rsplit_once(':')?.1.parse().ok()
}

/// The name in README.md and the version of the server in an image such as `valkey/valkey:8.0.1-alpine`.
fn server_of(image: &str) -> Option<(&'static str, &str)> {
    let (name, tag) = image.split_once(':')?;
    let name = match name {
        "redis" => "Redis",
        "valkey/valkey" => "Valkey",
        _ => return None,
    };
    Some((name, tag.split('-').next()?))
}

/// Whether a list such as `Valkey 8.0.1, 8.1.1 and 9.1.2` has the server.
fn is_tested(readme: &str, (name, version): &(&str, &str)) -> bool {
    let mut lists = readme.split(name).skip(1);
    lists.any(|list| {
        let words = list
            .split_whitespace()
            .map(|word| word.trim_end_matches([',', '.']));
        let is_listed = |word: &&str| *word == "and" || word.starts_with(char::is_numeric);
        words.take_while(is_listed).any(|word| word == *version)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
#   docker compose --profile single  up -d --wait    redis://127.0.0.1:6379
#   docker compose --profile cluster up -d --wait    redis-cluster://127.0.0.1:7001
#   docker compose --profile '*' down -v
services:
  redis:
    image: redis:7.0.15-alpine
    profiles: [single]
    ports: [\"127.0.0.1:6379:6379\"]
  cluster-net:
    image: valkey/valkey:9.1.2-alpine
    profiles: [cluster]
    ports:
      - \"127.0.0.1:7001-7006:7001-7006\"
";

    fn problems(change: (&str, &str)) -> Vec<String> {
        let readme = "Start it by `docker compose --profile single up -d --wait`: redis://127.0.0.1:6379. \
                      All tests run on Redis 7.0.15, with\nRedisson 4.7.0. Valkey 8.1.1\nand 9.1.2, and Redict 7.3.6";
        let text = GOOD.replace(change.0, change.1);
        check(&Tree::of(&[(FILE, &text), (README, readme)]))
    }

    #[test]
    fn a_file_that_agrees_with_the_readme_has_no_problem() {
        assert_eq!(problems(("", "")), Vec::<String>::new());
    }

    #[test]
    fn what_disagrees_is_found() {
        for (change, told) in [
            (
                ("profiles: [cluster]", "profiles: [clusters]"),
                "profile cluster",
            ),
            (
                ("--profile cluster ", "--profile clusters "),
                "profile cluster",
            ),
            (
                ("7001-7006:7001", "7002-7006:7002"),
                "redis-cluster://127.0.0.1:7001",
            ),
            (
                ("127.0.0.1:6379:6379", "127.0.0.1:6380:6379"),
                "redis://127.0.0.1:6379",
            ),
            (("redis:7.0.15", "redis:7.2.7"), "redis:7.2.7-alpine"),
            (("redis:7.0.15", "redis:4.7.0"), "redis:4.7.0-alpine"),
            (("valkey:9.1.2", "valkey:7.3.6"), "valkey:7.3.6-alpine"),
            (("redis:7.0.15", "keydb:7.0.15"), "keydb:7.0.15-alpine"),
            (
                ("profile single ", "profile single -p one "),
                "profile single",
            ),
            (("127.0.0.1:6379\n", "127.0.0.1:6379/\n"), "lacks"),
        ] {
            let problems = problems(change);
            assert!(
                problems.iter().any(|problem| problem.contains(told)),
                "{change:?}: {problems:?}"
            );
        }
        assert!(!check(&Tree::default()).is_empty());
    }
}
