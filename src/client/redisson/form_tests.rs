//! Forms of YAML 1.1, addresses with paths, and blocks in files of Spring Boot. `tests/interop/yaml.rs` gives such files to
//! Redisson too.

use std::time::Duration;

use super::*;

fn read(text: &str) -> Result<RedissonConfig, Error> {
    RedissonConfig::read(text, &|name| match name {
        "REDIS_HOST" => Some("redis.internal".into()),
        "LEASE" => Some("4_000".into()),
        _ => None,
    })
}

fn single(more: &str) -> String {
    format!("singleServerConfig:\n  address: redis://a:1\n{more}\n")
}

#[test]
fn numbers_are_those_of_yaml_1_1() {
    for (number, millis) in [
        ("3_000", 3_000),
        ("'3_000'", 3_000),
        ("+3000", 3_000),
        ("0x7d0", 2_000),
        ("0x7_d0", 2_000),
        ("03720", 2_000),
        ("0b11111010000", 2_000),
        ("1:30", 90),
        ("1:00:00", 3_600),
        ("_300_", 300),
        ("${LEASE}", 4_000),
        ("${NONE:-5_000}", 5_000),
        ("2s", 2_000),
    ] {
        let redisson = read(&single(&format!("  timeout: {number}"))).unwrap();
        let expected = Duration::from_millis(millis);
        assert_eq!(redisson.config().command_wait, expected, "{number}");
    }
    for odd in [
        "1e3",
        "1.5",
        "3,000",
        "0o17",
        "08",
        "0x",
        "0b2",
        "0xg",
        "1:",
        ":1",
        "1:-1",
        "-5",
        "++5",
        "_",
        "99999999999999999999",
        "9999999999999999999:0",
        "PT3S",
    ] {
        let refused = read(&single(&format!("  timeout: '{odd}'"))).unwrap_err();
        assert!(refused.to_string().contains("timeout"), "{odd}: {refused}");
    }
    for (flag, expected) in [
        ("yes", true),
        ("On", true),
        ("TRUE", true),
        ("'true'", true),
        ("no", false),
        ("OFF", false),
        ("False", false),
    ] {
        let redisson = read(&single(&format!("checkLockSyncedSlaves: {flag}"))).unwrap();
        assert_eq!(redisson.config().check_replicas, expected, "{flag}");
    }
    assert!(read(&single("checkLockSyncedSlaves: y")).is_err());
}

#[test]
fn texts_stay_as_they_are_written() {
    for name in ["1_000", "0x10", "yes", "1e3", "010"] {
        let redisson = read(&single(&format!("  clientName: {name}"))).unwrap();
        assert_eq!(redisson.config().client_name, name);
    }
}

#[test]
fn aliases_and_merged_maps() {
    let merged = "
singleServerConfig:
  address: &address redis://a:1
  clientName: *address
  <<: [{ timeout: 2000 }, { timeout: 1, database: 4 }]
";
    let redisson = read(merged).unwrap();
    assert_eq!(redisson.config().client_name, "redis://a:1");
    assert_eq!(redisson.config().command_wait, Duration::from_secs(2));
    assert!(redisson.builder.shown().contains("database Some(4)"));
    let own = single("  timeout: 3000\n  <<: { timeout: 2000 }");
    assert_eq!(
        read(&own).unwrap().config().command_wait,
        Duration::from_secs(3)
    );
    for refused in [
        single("  <<: 1"),
        single("  <<: [1]"),
        single("  clientName: *unknown"),
        single("  x: &x [*x]"),
    ] {
        assert!(read(&refused).is_err(), "{refused}");
    }
    // Each line has ten times the values of the line before.
    let mut bomb = "a0: &a0 x\n".to_owned();
    for line in 1..10 {
        let aliases = vec![format!("*a{}", line - 1); 10].join(", ");
        bomb.push_str(&format!("a{line}: &a{line} [{aliases}]\n"));
    }
    let refused = read(&bomb).unwrap_err().to_string();
    assert!(refused.contains("too many values"), "{refused}");
}

#[test]
fn files_may_begin_with_marks_and_end_their_document() {
    for text in [
        format!("\u{feff}{}", single("")),
        format!("%YAML 1.1\n---\n{}", single("")),
        format!("---\n{}...\n", single("")),
        single("").replace('\n', "\r\n"),
        r#"{"singleServerConfig": {"address": "redis://a:1"}}"#.to_owned(),
    ] {
        let redisson = read(&text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert!(redisson.builder.shown().contains("(\"a\", 1)"));
    }
}

/// Redisson reads the host and the port of an address, and no more.
#[test]
fn an_address_may_have_a_path() {
    for (address, is_ignored) in [
        ("redis://a:1/", false),
        ("redis://a:1/3", false),
        ("redis://a:1/0", true),
        ("redis://a:1/0/1", true),
        ("redis://a:1?x=1", true),
        ("redis://a:1#f", true),
        ("redis://user:secret@a:1/5", true),
    ] {
        let text = format!("singleServerConfig: {{ address: '{address}', database: 3 }}");
        let redisson = read(&text).unwrap_or_else(|error| panic!("{address}: {error}"));
        let shown = redisson.builder.shown();
        assert!(shown.contains("((\"a\", 1)), database Some(3)"), "{shown}");
        let expected: &[&str] = match is_ignored {
            true => &["singleServerConfig.address (the path)"],
            false => &[],
        };
        assert_eq!(redisson.ignored(), expected, "{address}");
    }
    let nodes = "clusterServersConfig: { nodeAddresses: ['redis://a:1/0', 'redis://b:2/'] }";
    assert!(read(nodes).is_ok());
    for refused in ["redis://:pa/ss@a:1", "redis://:p?w@a:1", "redis://a:1/x@y"] {
        let text = format!("singleServerConfig: {{ address: '{refused}' }}");
        assert!(read(&text).is_err(), "{refused}");
    }
}

#[test]
fn blocks_in_files_of_spring_boot() {
    let block = "
            singleServerConfig:
              address: redis://${REDIS_HOST:localhost}:${app.redis.port}
              timeout: ${NONE:${ALSO_NONE:1_500}}
              clientName: ${redis.host}
";
    for head in [
        "spring:\n  redis:\n    redisson:\n      config: |",
        "spring:\n  data:\n    redis:\n      redisson:\n        config: |",
        "spring.redis.redisson.config: |",
        "spring:\n  redis.redisson:\n      config: |",
        "spring:\n  redis:\n    host: a\nspring.redis:\n  redisson.config: |",
    ] {
        for tail in ["", "---\nspring.config.activate.on-profile: prod\n"] {
            let text = format!("app:\n  redis.port: 7000\nserver.port: 8080\n{head}{block}{tail}");
            let redisson = read(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let shown = redisson.builder.shown();
            assert!(shown.contains("(\"redis.internal\", 7000)"), "{shown}");
            assert_eq!(redisson.config().client_name, "redis.internal");
            assert_eq!(redisson.config().command_wait, Duration::from_millis(1_500));
            assert_eq!(redisson.unknown(), [""; 0]);
        }
    }
    let within = |block: &str| format!("spring.redis.redisson.config: |\n  {block}\n");
    let address = "singleServerConfig: { address: 'redis://a:1' }";
    for (text, told) in [
        (
            within("singleServerConfig: { address: 'redis://${s3cret}:1' }"),
            "environment variable",
        ),
        (within("x: ${a}\na: ${b}\nb: ${a}"), "environment variable"),
        (
            format!("{}---\n{}", within(address), within(address)),
            "second block",
        ),
        (
            "spring.redis.redisson.file: classpath:redisson.yaml".into(),
            "another file",
        ),
        (
            "spring.redis.redisson.config: classpath:redisson.yaml".into(),
            "another file",
        ),
        (
            format!("spring.redis.redisson.config: {{ {address} }}"),
            "`config: |`",
        ),
        (within("singleServerConfig: 1"), "singleServerConfig"),
        (
            "spring:\n  redis:\n    host: a".into(),
            "no section of servers",
        ),
        (format!("{address}\n---\n{address}"), "second document"),
    ] {
        let refused = read(&text).unwrap_err().to_string();
        assert!(refused.contains(told), "{text}: {refused}");
        assert!(!refused.contains("s3cret"), "{refused}");
    }
}
