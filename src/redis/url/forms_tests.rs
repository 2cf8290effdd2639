//! What each form of a URL and of a list of nodes means: `forms.txt`, a form per line.
//!
//! A form is in JSON: the text of a URL, or a set-up, a path and nodes. Behind the arrow stands its meaning, or the beginning of
//! the sentence that refuses it. A failure prints the lines as they would be right.

use serde_json::{Value, from_value};

use super::*;
use crate::redis::{locator::Question, target::Way};

#[test]
fn forms_keep_their_meaning() {
    let lines = include_str!("forms.txt").lines();
    let forms = lines.filter(|line| !line.starts_with('#'));
    let mut changed = Vec::new();
    for line in forms.filter(|line| cfg!(feature = "rustls") || !is_encrypted(line)) {
        let (form, meaning) = line.rsplit_once(" -> ").expect(line);
        let now = meaning_of(serde_json::from_str(form).expect(line));
        assert!(!now.contains("s3cret") || !now.contains("refused"), "{now}");
        if now != meaning {
            changed.push(format!("{form} -> {now}"));
        }
    }
    assert!(changed.is_empty(), "{}", changed.join("\n"));
}

fn is_encrypted(line: &str) -> bool {
    let line = line.to_lowercase();
    line.contains("rediss") || line.contains("valkeys")
}

fn meaning_of(form: Value) -> String {
    let target = match form {
        Value::String(url) => parse(&url),
        list => {
            let (set_up, path, nodes): (String, Vec<String>, Vec<String>) =
                from_value(list).expect("a list of nodes");
            of_nodes(&set_up, path.iter().map(String::as_str), nodes)
        }
    };
    match target {
        Ok(target) => words(&target),
        Err(Error::Config { reason }) => {
            let end = reason.find([':', '(']).unwrap_or(reason.len());
            format!("refused, {}", reason[..end].trim_end())
        }
        Err(other) => panic!("{other}"),
    }
}

fn words(target: &Target) -> String {
    let server = &target.server;
    let mut words = match &target.way {
        Way::Asked(asked) => {
            let question = match &asked.question {
                Question::MasterOf(service) => format!("{service:?} of sentinels"),
                Question::AreYou => "replicated".to_owned(),
            };
            let login = login("asks as", &asked.server);
            format!("{question} {}{login}", addresses(&asked.addresses))
        }
        Way::Cluster(seeds) => format!("cluster {}", addresses(seeds)),
        _ => match &server.endpoint {
            Endpoint::Tcp((host, port)) => format!("server {host:?} {port}"),
            Endpoint::Unix(path) => format!("socket {path:?}"),
        },
    };
    if server.opener.is_encrypted() {
        words.insert_str(0, "TLS ");
    }
    words += &login("logs in as", server);
    if let Some(database) = server.database {
        words += &format!(", database {database}");
    }
    format!(
        "{words}, {:?}, {:?}",
        server.protocol,
        target.endpoint_kind()
    )
}

fn addresses(addresses: &[(String, u16)]) -> String {
    let shown = addresses
        .iter()
        .map(|(host, port)| format!("{host:?} {port}"));
    shown.collect::<Vec<_>>().join(" ")
}

fn login(how: &str, server: &ServerConfig) -> String {
    match (&server.username, &server.password) {
        (None, None) => String::new(),
        (user, password) => format!(", {how} {user:?} {password:?}"),
    }
}
