//! `--map`: the addresses at which this machine reaches servers, instead of those that they announce.

use std::{net::IpAddr, net::Ipv6Addr, str::FromStr};

/// The host that stands for every host.
const ANY: &str = "*";
const FORM: &str =
    "write FROM=TO, each as host:port or as a host, such as 10.0.0.1:6379=127.0.0.1:7001";

/// One translation, `FROM=TO`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    from: Place,
    to: Place,
}

/// A host, or one port of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    host: String,
    port: Option<u16>,
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (from, to) = text.split_once('=').ok_or_else(|| FORM.to_owned())?;
        let (from, to) = (Place::read(from)?, Place::read(to)?);
        match &*to.host {
            ANY => {
                Err("`*` stands for announced hosts, so it has a meaning before `=` only".into())
            }
            _ => Ok(Self { from, to }),
        }
    }
}

impl Place {
    fn read(text: &str) -> Result<Self, String> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest
                    .split_once(']')
                    .ok_or("the `]` of an IPv6 address is missing")?;
                let port = rest.strip_prefix(':');
                if port.is_none() && !rest.is_empty() {
                    return Err(FORM.into());
                }
                (ipv6(host)?, port)
            }
            None if text.matches(':').count() > 1 => (ipv6(text)?, None),
            None => match text.split_once(':') {
                Some((host, port)) => (name(host)?, Some(port)),
                None => (name(text)?, None),
            },
        };
        let port = port.map(|port| match port.parse() {
            Ok(0) | Err(_) => Err(format!(
                "{port:?} is not a port: write a number from 1 to 65535"
            )),
            Ok(port) => Ok(port),
        });
        let port = port.transpose()?;
        Ok(Self { host, port })
    }

    fn is_of(&self, host: &str, port: u16) -> bool {
        let is_host = self.host == ANY || self.host == canonical(host);
        is_host && self.port.is_none_or(|own| own == port)
    }
}

fn ipv6(text: &str) -> Result<String, String> {
    match text.parse::<Ipv6Addr>() {
        Ok(address) => Ok(address.to_string()),
        Err(_) => Err(format!(
            "{text:?} is not an IPv6 address (with a port: [address]:port); {FORM}, without a scheme or a user"
        )),
    }
}

fn name(text: &str) -> Result<String, String> {
    let is_name = |text: &str| {
        text.chars()
            .all(|letter| letter.is_alphanumeric() || "-_.".contains(letter))
    };
    match text {
        "" => Err(format!("a host is missing: {FORM}")),
        text if text == ANY || is_name(text) => Ok(canonical(text)),
        text => Err(format!("{text:?} is not a host: {FORM}")),
    }
}

/// The same text for all texts of a host.
fn canonical(host: &str) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_string(),
        Err(_) => host.trim_end_matches('.').to_lowercase(),
    }
}

/// The address at which this machine reaches the server that announces this host and port. A rule for a port precedes one for a host,
/// which precedes one for every host.
pub fn mapped(rules: &[Rule], host: &str, port: u16) -> (String, u16) {
    let rules = rules.iter().filter(|rule| rule.from.is_of(host, port));
    match rules.max_by_key(|rule| (rule.from.port.is_some(), rule.from.host != ANY)) {
        Some(Rule { to, .. }) => (to.host.clone(), to.port.unwrap_or(port)),
        None => (host.to_owned(), port),
    }
}

/// Refuses two rules for one address.
pub fn check(rules: &[Rule]) -> Result<(), String> {
    for (index, rule) in rules.iter().enumerate() {
        let is_other = |other: &&Rule| other.from == rule.from && other.to != rule.to;
        if rules[..index].iter().find(is_other).is_some() {
            let Place { host, port } = &rule.from;
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            return Err(format!(
                "--map translates {host}{port} twice: give one translation for each address"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn the_narrowest_rule_translates() {
        let rules = rules(&[
            "*=gateway",
            "10.0.0.1=127.0.0.1",
            "10.0.0.1:6380=127.0.0.1:7001",
            "*:6390=other:1",
            "Node-1.Internal.=127.0.0.1:7002",
            "[FD00:0::1]:6379=[::1]:7003",
            "fd00::2=::1",
        ]);
        for ((host, port), (to, to_port)) in [
            (("10.0.0.1", 6380), ("127.0.0.1", 7001)),
            (("10.0.0.1", 6379), ("127.0.0.1", 6379)),
            (("10.0.0.2", 6379), ("gateway", 6379)),
            (("10.0.0.1", 6390), ("other", 1)),
            (("node-1.internal", 6379), ("127.0.0.1", 7002)),
            (("fd00::1", 6379), ("::1", 7003)),
            (("fd00:0:0::2", 6379), ("::1", 6379)),
        ] {
            assert_eq!(
                mapped(&rules, host, port),
                (to.to_owned(), to_port),
                "{host}:{port}"
            );
        }
        assert_eq!(mapped(&rules[1..2], "10.0.0.2", 1), ("10.0.0.2".into(), 1));
    }

    #[test]
    fn malformed_rules_are_refused_with_the_form() {
        for (text, says) in [
            ("", "FROM=TO"),
            ("10.0.0.1:6379", "FROM=TO"),
            ("=b", "host is missing"),
            ("a=", "host is missing"),
            ("a:=b", "not a port"),
            ("a:0=b", "1 to 65535"),
            ("a:65536=b", "1 to 65535"),
            ("a:x=b", "not a port"),
            ("a=b:-1", "not a port"),
            ("redis://a:1=b:2", "scheme"),
            ("user@a=b", "not a host"),
            ("a b=c", "not a host"),
            ("a=*", "before `=`"),
            ("[::1=b", "`]`"),
            ("[::1]x=b", "FROM=TO"),
            ("[a]:1=b", "IPv6"),
            ("::1:2:3:4:5:6:7:8:9=b", "IPv6"),
            ("a=b=c", "not a host"),
        ] {
            let refused = text.parse::<Rule>().expect_err(text);
            assert!(refused.contains(says), "{text:?}: {refused}");
        }
    }

    #[test]
    fn two_translations_of_one_address_are_refused() {
        assert!(check(&rules(&["a:1=b:2", "a=b", "a:1=b:2"])).is_ok());
        let refused = check(&rules(&["a:1=b:2", "A:1=b:3"])).unwrap_err();
        assert!(refused.contains("a:1"), "{refused}");
    }
}
