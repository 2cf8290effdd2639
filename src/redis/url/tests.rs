use super::*;
use crate::{
    credentials::Credentials,
    error::Error,
    redis::{
        locator::Question,
        target::{MasterLookup, Way},
    },
};

fn lookup(target: &Target) -> &MasterLookup {
    match &target.way {
        Way::Asked(asked) => asked,
        _ => panic!("no nodes are asked: {target:?}"),
    }
}

fn reason(url: &str) -> String {
    match parse(url) {
        Err(Error::Config { reason }) => reason,
        other => panic!("{url} gave {:?}", other.map(|_| "a configuration")),
    }
}

#[test]
fn urls_of_single_servers() {
    let server = parse("redis://app:s%40crt@cache.example:6380/3")
        .unwrap()
        .server;
    assert_eq!(
        server.endpoint,
        Endpoint::Tcp(("cache.example".into(), 6380))
    );
    assert_eq!(server.username.as_deref(), Some("app"));
    assert_eq!(server.password.as_deref(), Some("s@crt"));
    assert_eq!(server.database, Some(3));

    let server = parse("valkey://[::1]").unwrap().server;
    assert_eq!(server.endpoint, Endpoint::Tcp(("::1".into(), 6379)));

    let server = parse("unix://:pw@localhost/run/redis.sock?db=2")
        .unwrap()
        .server;
    assert_eq!(server.endpoint, Endpoint::Unix("/run/redis.sock".into()));
    assert_eq!(
        (server.password.as_deref(), server.database),
        (Some("pw"), Some(2))
    );
}

#[test]
fn empty_pairs_of_a_query_are_no_parameters() {
    for (query, sentinels, login) in [
        ("?", 1, (None, None)),
        ("?&", 1, (None, None)),
        ("?&&&", 1, (None, None)),
        ("?&node=two", 2, (None, None)),
        ("?node=two&", 2, (None, None)),
        ("?&&node=two&&node=three&&", 3, (None, None)),
        ("?&sentinelPassword=pw", 1, (None, Some("pw"))),
        (
            "?&sentinelUsername=app&&sentinelPassword=pw&",
            1,
            (Some("app"), Some("pw")),
        ),
    ] {
        let url = format!("redis-sentinel://one/mymaster{query}");
        let asked = lookup(&parse(&url).expect(&url)).clone();
        assert_eq!(asked.addresses.len(), sentinels, "{url}");
        let given = (&asked.server.username, &asked.server.password);
        assert_eq!((given.0.as_deref(), given.1.as_deref()), login, "{url}");
    }
    for url in [
        "redis://host/3?&",
        "redis-replicated://host?&node=two&",
        "redis-cluster://host?&&node=two",
        "unix:///run/redis.sock?&db=3&",
    ] {
        assert!(parse(url).is_ok(), "{url}");
    }
    // A pair without a name is a parameter, and so is one without a value.
    for url in ["redis-cluster://host?=two", "redis-cluster://host?node=&"] {
        assert!(reason(url).contains("node"), "{url}");
    }
    assert!(reason("redis://host?&node=two").contains("redis-cluster://"));
}

#[test]
fn bad_urls_say_what_to_do_and_keep_the_password() {
    for (url, hint) in [
        ("", "redis://"),
        ("localhost:6379", "write redis://host:port"),
        ("http://:s3cret@localhost", "scheme"),
        ("redis://:s3cret@", "redis://"),
        ("redis://:s3cret@host:99999", "redis://"),
        ("redis://:s3cret@host/three", "database"),
        ("unix://", "socket"),
        ("unix:///run/redis.sock?db=x", "db"),
        ("redis-cluster://:s3cret@host/three", "database"),
        ("redis-cluster://:s3cret@host/3/4", "database"),
        ("redis-cluster://:s3cret@host?node=", "node"),
        (
            "redis-cluster://:s3cret@host?nodes=other",
            "other than node",
        ),
        ("redis-sentinel://:s3cret@host", "service"),
        ("redis-sentinel://:s3cret@host/mymaster/three", "database"),
        ("redis-sentinel://:s3cret@host/mymaster?node=a:b:c", "node"),
        ("redis-sentinel://:s3cret@host/mymaster?node=", "node"),
        ("redis-sentinel://:s3cret@/mymaster", "redis://"),
        ("redis-sentinel://:s3cret@one:1,two:2/mymaster", "node="),
        (
            "redis-sentinel://host/mymaster?sentinelPasswort=s3cret",
            "sentinelPassword",
        ),
        ("redis-sentinel://host/m?sentinelPassword=the&s3cret", "%26"),
        ("redis-replicated://:s3cret@host/three", "database"),
        ("redis-replicated://:s3cret@host?node=a:99999", "node"),
        ("redis-replicated://host?sentinelPassword=s3cret", "node"),
        ("redis-replicated://host/1/s3cret", "database"),
        ("redis://host/1/s3cret", "database"),
        ("redis://host/+1", "database"),
        ("redis://host/4294967296", "database"),
        ("redis-sentinel://host/m/1/s3cret", "database"),
        (
            "redis-sentinel://host/m?sentinelUsername=s3cret",
            "sentinelPassword",
        ),
        (
            "redis-sentinel://host/m?sentinelPassword=s3cret&sentinelPassword=x",
            "more than one",
        ),
        ("redis-sentinel://host/%zz", "path"),
        (
            "redis-sentinel://host/m?sentinelPassword=s3cret%zz",
            "query",
        ),
        ("redis://:s3cret%zz@host/3", "password"),
        ("redis://:s3cret%2@host/3", "password"),
        ("redis://:%ffs3cret@host/3", "password"),
        ("redis://:s3\tcret@host", "%09"),
        ("redis://h?db=3", "redis://host/3"),
        #[cfg(feature = "rustls")]
        ("rediss://h?foo=s3cret", "%3F"),
        ("redis://h#s3cret", "%23"),
        ("redis-cluster://h#s3cret", "%23"),
        ("redis-sentinel://h/m#s3cret", "%23"),
        ("unix:///run/redis.sock#s3cret", "%23"),
        ("unix:///run/redis.sock?dbb=3", "other than db"),
        ("unix:///run/redis.sock?db=3&db=4", "db"),
        ("unix://run/redis.sock", "three slashes"),
    ] {
        let reason = reason(url);
        assert!(reason.contains(hint), "{url}: {reason}");
        assert!(!reason.contains("s3cret"), "{url}: {reason}");
    }
}

#[test]
fn a_parsed_url_is_shown_without_secrets() {
    for url in [
        "redis://app:s3cret@host/3",
        "redis-sentinel://app:s3cret@host/m?sentinelUsername=s3cret&sentinelPassword=s3cret",
        "redis-replicated://:s3cret@host?node=other",
        "redis-cluster://:s3cret@host?node=other",
    ] {
        let mut target = parse(url).unwrap();
        target.map_addresses(std::sync::Arc::new(|host, port| (host.into(), port)));
        let shown = format!("{target:?}");
        assert!(
            shown.contains("host") && !shown.contains("s3cret"),
            "{shown}"
        );
    }
}

#[test]
fn urls_of_sentinels() {
    let url = "redis-sentinel://app:pw@one:7001/my%20master/3?node=two:7002&node=[::1]\
               &sentinelUsername=guard&sentinelPassword=s%40crt";
    let target = parse(url).unwrap();
    assert_eq!(target.server.username.as_deref(), Some("app"));
    assert_eq!(target.server.database, Some(3));
    let asked = lookup(&target);
    assert_eq!(asked.question, Question::MasterOf("my master".into()));
    let expected = [("one", 7001), ("two", 7002), ("::1", 26379)];
    assert_eq!(
        asked.addresses,
        expected.map(|(host, port)| (host.to_owned(), port))
    );
    assert_eq!(asked.server.username.as_deref(), Some("guard"));
    assert_eq!(asked.server.password.as_deref(), Some("s@crt"));
    assert_eq!(asked.server.database, None);

    let url = "redis-sentinel://[::1]:7001/a%2Fb?sentinelPassword=1+2%262=%253";
    let asked = lookup(&parse(url).unwrap()).clone();
    assert_eq!(asked.addresses, [("::1".to_owned(), 7001)]);
    assert_eq!(asked.question, Question::MasterOf("a/b".into()));
    assert_eq!(asked.server.username, None);
    assert_eq!(asked.server.password.as_deref(), Some("1+2&2=%3"));

    let target = parse("valkey-sentinel://one?sentinelServiceName=mymaster").unwrap();
    assert_eq!(
        lookup(&target).question,
        Question::MasterOf("mymaster".into())
    );
    assert_eq!(target.server.password, None);
}

#[test]
fn urls_of_replicated_set_ups() {
    let target = parse("redis-replicated://:pw@one/2?node=two:7002").unwrap();
    let asked = lookup(&target);
    assert_eq!(asked.question, Question::AreYou);
    assert_eq!(
        asked.addresses,
        [("one".to_owned(), 6379), ("two".to_owned(), 7002)]
    );
    assert_eq!(asked.server.password.as_deref(), Some("pw"));
    assert_eq!(target.server.database, Some(2));
}

#[test]
fn nodes_that_are_given_one_by_one_are_as_in_a_url() {
    let target = of_nodes(
        "sentinel",
        Some("my/master"),
        ["a:1", "redis://[::1]:2", "c"],
    )
    .unwrap();
    let asked = lookup(&target);
    assert_eq!(asked.question, Question::MasterOf("my/master".into()));
    let at = |host: &str, port| (host.to_owned(), port);
    assert_eq!(asked.addresses, [at("a", 1), at("::1", 2), at("c", 26379)]);
    let target = of_nodes("cluster", None, ["a", "b:7"]).unwrap();
    let seeds = [at("a", 6379), at("b", 7)];
    assert!(matches!(&target.way, Way::Cluster(nodes) if *nodes == seeds));
    for bad in [
        &[][..],
        &[""],
        &["a", "u:s3cret@b"],
        &["http://a"],
        &["a/1"],
        &["a:x"],
    ] {
        let Err(Error::Config { reason }) = of_nodes("cluster", None, bad) else {
            panic!("{bad:?}");
        };
        assert!(!reason.contains("s3cret"), "{reason}");
    }
}

#[test]
fn credentials_go_to_the_server_they_are_for() {
    let mut target = parse("redis-sentinel://old:pw@a/s?sentinelPassword=x").unwrap();
    target.log_in_as(Credentials::new("app", "one")).unwrap();
    target
        .ask_sentinels_as(Credentials::new("", "two"))
        .unwrap();
    let asked = lookup(&target).server.clone();
    assert_eq!(target.server.username.as_deref(), Some("app"));
    assert_eq!(target.server.password.as_deref(), Some("one"));
    assert_eq!(
        (asked.username, asked.password.as_deref()),
        (None, Some("two"))
    );
    let mut target = parse("redis-replicated://a").unwrap();
    target.log_in_as(Credentials::new("app", "one")).unwrap();
    assert_eq!(lookup(&target).server.password.as_deref(), Some("one"));
}

#[cfg(not(feature = "rustls"))]
#[test]
fn without_tls_a_tls_url_is_refused() {
    for url in ["rediss://:s3cret@localhost", "valkeys://:s3cret@localhost"] {
        let reason = reason(url);
        assert!(
            reason.contains("rustls") && !reason.contains("s3cret"),
            "{reason}"
        );
    }
}

#[cfg(feature = "rustls")]
#[test]
fn a_tls_url_asks_for_tls() {
    assert!(
        parse("rediss://localhost")
            .unwrap()
            .server
            .opener
            .is_encrypted()
    );
    assert!(
        !parse("redis://localhost")
            .unwrap()
            .server
            .opener
            .is_encrypted()
    );
    let target = parse("rediss-sentinel://localhost/mymaster").unwrap();
    assert!(target.server.opener.is_encrypted());
    assert!(lookup(&target).server.opener.is_encrypted());
}

#[test]
fn a_user_has_a_password_even_if_it_is_empty() {
    for rest in ["host", "host/3", "host?node=other"] {
        for scheme in [
            "redis",
            "redis-cluster",
            "redis-replicated",
            "redis-sentinel",
        ] {
            let rest = match scheme {
                "redis-sentinel" => "host/m",
                "redis-cluster" | "redis-replicated" if rest == "host/3" => "host/0",
                "redis" if rest.contains('?') => continue,
                _ => rest,
            };
            let reason = reason(&format!("{scheme}://nosuchuser@{rest}"));
            assert!(reason.contains("without a password"), "{reason}");
            let server = parse(&format!("{scheme}://app:@{rest}")).unwrap().server;
            assert_eq!(server.username.as_deref(), Some("app"));
            assert_eq!(server.password.as_deref(), Some(""));
            for nobody in ["", ":@"] {
                let server = parse(&format!("{scheme}://{nobody}{rest}")).unwrap().server;
                assert_eq!((server.username, server.password), (None, None));
            }
        }
    }
    assert!(reason("unix://app@localhost/run/redis.sock").contains("without a password"));
}

#[test]
fn credentials_are_as_they_are_written() {
    for secret in [
        "a b",
        "a\tb",
        "a\r\nSET injected 1",
        "\"'",
        "p%w",
        "é",
        "a+b",
        "#?/:@&=",
        "app ",
    ] {
        let escaped: String = secret.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let server = parse(&format!("redis://{escaped}:{escaped}@host"))
            .unwrap()
            .server;
        assert_eq!(server.username.as_deref(), Some(secret));
        assert_eq!(server.password.as_deref(), Some(secret));
        let url = format!("redis-sentinel://host/m?sentinelPassword={escaped}");
        let asked = lookup(&parse(&url).unwrap()).clone();
        assert_eq!(asked.server.password.as_deref(), Some(secret));
    }
}

#[test]
fn a_cluster_has_databases() {
    for (url, database) in [
        ("redis-cluster://host/3", Some(3)),
        ("redis-cluster://:pw@host/15?node=two", Some(15)),
        ("redis-cluster://host/?node=two", None),
        ("redis-cluster://host", None),
    ] {
        let target = parse(url).expect(url);
        assert_eq!(target.server.database, database, "{url}");
        assert!(matches!(target.way, Way::Cluster(_)), "{url}");
    }
}

#[test]
fn database_0_needs_no_select() {
    for url in [
        "redis://host/0",
        "redis-cluster://host/0?node=two",
        "redis-sentinel://host/mymaster/0",
        "redis-replicated://host/00",
        "unix:///run/redis.sock?db=0",
    ] {
        assert_eq!(parse(url).expect(url).server.database, None, "{url}");
    }
}

#[test]
fn a_url_may_name_any_database_number() {
    assert_eq!(
        parse("redis://host/256").unwrap().server.database,
        Some(256)
    );
    assert_eq!(
        parse("unix:///a?db=70000").unwrap().server.database,
        Some(70_000)
    );
    assert_eq!(
        parse("unix:///a%20b").unwrap().server.endpoint,
        Endpoint::Unix("/a b".into())
    );
}

proptest::proptest! {
    #[test]
    fn no_url_panics_or_shows_its_secret(
        scheme in "(redis|rediss|unix|redis-sentinel|redis-cluster|redis-replicated|x)",
        text in "(s3cret|:|/|@|\\?|#|%|&|=|node|db|sentinelPassword|[a-z0-9\\[\\] ]|\\PC){0,12}",
    ) {
        if let Err(error) = parse(&format!("{scheme}://{text}")) {
            let shown = format!("{error} {error:?}");
            proptest::prop_assert!(!shown.contains("s3cret"), "{}", shown);
        }
    }
}

/// One scheme decides for all: a password must not go to the rest in the clear.
#[cfg(feature = "rustls")]
#[test]
fn nodes_with_and_without_tls_are_refused_together() {
    let of = |nodes: [&'static str; 2]| of_nodes("cluster", [], nodes).map(drop);
    for nodes in [["redis://a:1", "rediss://b:2"], ["valkeys://a:1", "b:2"]] {
        let refused = of(nodes).unwrap_err().to_string();
        assert!(refused.contains("TLS"), "{refused}");
    }
    assert!(of(["redis://a:1", "b:2"]).is_ok() && of(["rediss://a:1", "valkeys://b:2"]).is_ok());
}
