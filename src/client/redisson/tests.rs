use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use super::*;

/// What Redisson 4.7.0 writes: `tools/write-yaml.sh`.
macro_rules! written {
    ($name:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/yaml/",
            $name,
            ".yaml"
        ))
    };
}

fn read(text: &str) -> Result<RedissonConfig, Error> {
    RedissonConfig::read(text, &|name| match name {
        "HOST" => Some("redis.internal".into()),
        "PASSWORD" => Some("p: '#\"${x}".into()),
        _ => None,
    })
}

fn refusal(text: &str) -> String {
    let error = read(text).unwrap_err();
    assert!(matches!(error, Error::Config { .. }), "{error:?}");
    error.to_string()
}

/// The settings of a builder, without its passwords.
fn shown(redisson: &RedissonConfig) -> String {
    redisson.builder.shown()
}

#[test]
fn a_single_server() {
    let redisson = read(written!("single")).unwrap();
    assert_eq!(
        shown(&redisson),
        "Target(Tcp((\"127.0.0.1\", 6379)), database Some(3)) as Some(\"app\") with a password"
    );
    let seconds = |secs| Duration::from_secs(secs);
    let expected = Config {
        watchdog_lease: seconds(20),
        client_name: "billing".into(),
        fair_lock_wait: seconds(60),
        watchdog_batch_size: 50,
        replica_wait: Duration::from_millis(700),
        check_replicas: false,
        command_wait: Duration::from_millis(2_500),
        ..Config::default()
    };
    assert_eq!(*redisson.config(), expected);
    let ignored = redisson.ignored();
    for key in ["singleServerConfig.connectionPoolSize", "nettyThreads"] {
        assert!(ignored.iter().any(|name| name == key), "{ignored:?}");
    }
    for key in [
        "lockWatchdogTimeout",
        "singleServerConfig.timeout",
        "username",
    ] {
        assert!(!ignored.iter().any(|name| name == key), "{ignored:?}");
    }
    assert!(!format!("{redisson:?}").contains("s3cret"));
}

#[test]
fn redissons_defaults_are_ours() {
    let redisson = read(written!("defaults")).unwrap();
    assert_eq!(*redisson.config(), Config::default());
    assert!(
        shown(&redisson).ends_with("as None"),
        "{}",
        shown(&redisson)
    );
}

/// A command is repeated until its wait ends: no setting here corresponds to Redisson's number of attempts or its pause
/// between them.
#[test]
fn settings_of_retries_are_ignored() {
    for (section, text) in [
        ("singleServerConfig", written!("single")),
        ("sentinelServersConfig", written!("sentinel")),
    ] {
        let redisson = read(text).unwrap();
        for key in ["retryAttempts", "retryDelay", "reconnectionDelay"] {
            let path = format!("{section}.{key}");
            assert!(redisson.ignored().contains(&path), "{path}: {redisson:?}");
        }
    }
    let text = "
singleServerConfig:
  address: redis://a:1
  retryInterval: 1500
  retryDelay: !<org.redisson.config.ConstantDelay> { delay: PT1S }
";
    let ignored = ["retryInterval", "retryDelay"].map(|key| format!("singleServerConfig.{key}"));
    let redisson = read(text).unwrap();
    assert_eq!(redisson.ignored(), ignored);
    // Redisson 4.7.0 refuses it.
    assert_eq!(redisson.unknown(), ["singleServerConfig.retryInterval"]);
}

#[test]
fn every_section_says_where_to_connect() {
    let of = |text| shown(&read(text).unwrap());
    let sentinel = of(written!("sentinel"));
    for part in [
        "MasterOf(\"mymaster\")",
        "26379",
        "26380",
        "as None with a password",
    ] {
        assert!(sentinel.contains(part), "{sentinel}");
    }
    let replicated = of(written!("replicated"));
    for part in ["AreYou", "7000", "7001", "database Some(2)"] {
        assert!(replicated.contains(part), "{replicated}");
    }
    let cluster = "clusterServersConfig: { nodeAddresses: ['redis://a:1'], database: 3 }";
    assert!(of(cluster).contains("database Some(3)"), "{}", of(cluster));
    let master = of(written!("master-slave"));
    assert!(
        master.contains("7000") && !master.contains("7001"),
        "{master}"
    );
    let unread = read(written!("master-slave")).unwrap();
    let slaves = "masterSlaveServersConfig.slaveAddresses".to_owned();
    assert!(unread.ignored().contains(&slaves));
}

#[cfg(feature = "rustls")]
#[test]
fn a_cluster_over_tls() {
    // Redisson cannot write these itself.
    let stores =
        "\nsslTruststore: file:/etc/redis/ca.pem\nsslKeystore: file:///etc/redis/client.pem\n";
    let text = format!("{}{stores}", written!("cluster"));
    let cluster = shown(&read(&text).unwrap());
    for part in [
        "cluster of",
        "7000",
        "7001",
        "/etc/redis/ca.pem",
        "/etc/redis/client.pem",
    ] {
        assert!(cluster.contains(part), "{cluster}");
    }
    let plain = read(&format!("{}{stores}", written!("single"))).unwrap();
    assert!(plain.ignored().contains(&"sslTruststore".to_owned()));
    let remote = text.replace("file:/etc/redis/ca.pem", "https://there/ca.pem");
    assert!(refusal(&remote).contains("sslTruststore"));
    let unverified = shown(&read(written!("unverified")).unwrap());
    assert!(
        unverified.contains("verification: Some(None)"),
        "{unverified}"
    );
}

/// The modes are those that Redisson applies, whichever of both places and names the file uses.
#[cfg(feature = "rustls")]
#[test]
fn certificates_are_checked_as_the_file_says() {
    const OLD: &str = "sslEnableEndpointIdentification: false";
    for (inner, outer, mode) in [
        ("", "", "None"),
        ("sslVerificationMode: STRICT", "", "Some(Full)"),
        ("sslVerificationMode: CA_ONLY", "", "Some(Ca)"),
        ("", "sslVerificationMode: CA_ONLY", "Some(Ca)"),
        // Redisson writes STRICT into each section.
        (
            "sslVerificationMode: STRICT",
            "sslVerificationMode: NONE",
            "Some(None)",
        ),
        (
            "sslVerificationMode: NONE",
            "sslVerificationMode: STRICT",
            "Some(None)",
        ),
        (OLD, "", "Some(None)"),
        (OLD, "sslVerificationMode: CA_ONLY", "Some(None)"),
        (
            "sslEnableEndpointIdentification: true",
            "sslVerificationMode: CA_ONLY",
            "Some(Ca)",
        ),
        // Redisson trusts the authorities of a store in any mode.
        (OLD, "sslTruststore: file:/etc/redis/ca.pem", "Some(Ca)"),
    ] {
        let text = format!(
            "singleServerConfig:\n  address: rediss://a:1\n  clientName: app\n  {inner}\n{outer}\n"
        );
        let builder = format!("{:?}", read(&text).unwrap().into_builder());
        let expected = format!("verification: {mode},");
        assert!(builder.contains(&expected), "{text}{builder}");
    }
    let told = refusal("singleServerConfig: { address: 'rediss://a:1', sslVerificationMode: LAX }");
    assert!(
        told.contains("singleServerConfig.sslVerificationMode: the value must be STRICT"),
        "{told}"
    );
}

#[test]
fn variables_stand_for_the_environments() {
    let text = "
singleServerConfig:
  address: 'redis://${HOST}:${PORT:-6380}'
  database: ${DB:-4}
  password: ${PASSWORD}
nettyThreads: 8
";
    let redisson = read(text).unwrap();
    let shown = shown(&redisson);
    assert!(shown.contains("(\"redis.internal\", 6380)"), "{shown}");
    assert!(
        shown.contains("Some(4)") && shown.contains("with a password"),
        "{shown}"
    );
    assert_eq!(redisson.ignored(), ["nettyThreads"]);
    let told = refusal("singleServerConfig: { address: 'redis://${NONE}:1' }");
    assert!(
        told.contains("singleServerConfig.address") && told.contains("NONE"),
        "{told}"
    );
    assert!(refusal("singleServerConfig: { address: 'redis://${HOST' }").contains("`}`"));
    for settings in [
        "address: 'redis://a:1', password: 'p${s3cret}'",
        "address: 'redis://:p${s3cret}@a:1'",
    ] {
        let told = refusal(&format!("singleServerConfig: {{ {settings} }}"));
        assert!(
            told.contains("environment") && !told.contains("s3cret"),
            "{told}"
        );
    }
}

#[test]
fn mappers_that_are_known() {
    let text = "
nameMapper: !<com.example.Prefixing> { prefix: 'app:' }
sentinelServersConfig:
  masterName: m
  sentinelAddresses: ['redis://a:1', 'redis://b:2']
  natMapper: !<org.redisson.config.HostPortNatMapper>
    hostsPortMap:
      '10.0.0.1:6379': 'gateway:7001'
";
    let redisson = read(text).unwrap();
    assert_eq!(redisson.config().name_prefix, "app:");
    let tree = yaml::documents(text).unwrap().remove(0);
    let file = Section::new("", &tree, &|_| None).unwrap();
    let section = file.section("sentinelServersConfig").unwrap().unwrap();
    let (_, map) = addresses(&section).unwrap().unwrap();
    assert_eq!(map("10.0.0.1", 6379), ("gateway".into(), 7001));
    assert_eq!(map("10.0.0.2", 6379), ("10.0.0.2".into(), 6379));
    let single = |more: &str| {
        refusal(&format!(
            "singleServerConfig: {{ address: 'redis://a:1' }}\n{more}"
        ))
    };
    let text = "
clusterServersConfig:
  nodeAddresses: ['redis://a:1']
  natMapper: !<org.redisson.api.HostNatMapper> { hostsMap: { 10.0.0.1: '${HOST}' } }
";
    let tree = yaml::documents(text).unwrap().remove(0);
    let file = Section::new("", &tree, &|name| {
        (name == "HOST").then(|| "gateway".into())
    })
    .unwrap();
    let section = file.section("clusterServersConfig").unwrap().unwrap();
    let (_, map) = addresses(&section).unwrap().unwrap();
    assert_eq!(map("10.0.0.1", 6379), ("gateway".into(), 6379));
    assert_eq!(map("10.0.0.2", 6379), ("10.0.0.2".into(), 6379));
    let text = "singleServerConfig:\n  address: redis://a:1\n  natMap: { 'a:1': 'gateway:7001' }";
    let tree = yaml::documents(text).unwrap().remove(0);
    let file = Section::new("", &tree, &|_| None).unwrap();
    let section = file.section("singleServerConfig").unwrap().unwrap();
    let (_, map) = addresses(&section).unwrap().unwrap();
    assert_eq!(map("a", 1), ("gateway".into(), 7001));
    let told = single("nameMapper: { prefix: 'app:' }");
    assert!(
        told.contains("nameMapper: the class is missing"),
        "a prefix that is passed over would exclude no service: {told}"
    );
    let told = single("nameMapper: !<com.example.Upper> { }");
    assert!(
        told.contains("nameMapper") && told.contains("Upper"),
        "{told}"
    );
    let told = single("nameMapper: !<com.example.Both> { prefix: a, suffix: b }");
    assert!(told.contains("prefix"), "{told}");
    let told = single("commandMapper: !<com.example.Renamed> { }");
    assert!(told.contains("commandMapper"), "{told}");
    let cluster = |mapper: &str| {
        refusal(&format!(
            "clusterServersConfig:\n  nodeAddresses: ['redis://a:1']\n  natMapper: {mapper}"
        ))
    };
    let told = refusal(written!("nat"));
    assert!(
        told.contains("natMapper: the setting hostsPortMap of HostPortNatMapper is missing"),
        "{told}"
    );
    for mapper in [
        "!<com.example.Nat> {}",
        "{ hostsMap: { a: b } }",
        "!<org.redisson.config.HostNatMapper> { hostsMap: { a: b }, hostMap: { c: d } }",
        "!<org.redisson.config.HostPortNatMapper> {}",
        "!<org.redisson.config.HostPortNatMapper> { hostsPortMap: { 'a:1': b } }",
    ] {
        let told = cluster(mapper);
        assert!(told.contains("clusterServersConfig.natMapper"), "{told}");
    }
}

#[test]
fn a_misspelt_setting_is_refused() {
    let file = |inner: &str, outer: &str| {
        format!("singleServerConfig:\n  address: rediss://a:1\n  {inner}: 1\n{outer}: 1\n")
    };
    for (inner, outer, told) in [
        (
            "timeuot",
            "threads",
            "singleServerConfig.timeuot: unknown setting; did you mean timeout?",
        ),
        ("connectTimeOut", "threads", "did you mean connectTimeout?"),
        ("passwrd", "threads", "did you mean password?"),
        ("sslTrustore", "threads", "did you mean sslTruststore?"),
        (
            "keepAlive",
            "lockWatchDogTimeout",
            "lockWatchDogTimeout: unknown setting; did you mean lockWatchdogTimeout?",
        ),
        (
            "keepAlive",
            "timeout",
            "timeout: the setting belongs in singleServerConfig",
        ),
        (
            "lockWatchdogTimeout",
            "threads",
            "singleServerConfig.lockWatchdogTimeout: the setting belongs beside singleServerConfig, not in it",
        ),
    ] {
        let refused = refusal(&file(inner, outer));
        assert!(refused.contains(told), "{refused}");
    }
    let read = read(&file("keepAlive", "threads")).unwrap();
    assert_eq!(read.ignored(), ["threads", "singleServerConfig.keepAlive"]);
}

/// A setting of Redisson 4.7.0 is no mistake, even if its name resembles another one's.
#[test]
fn no_setting_of_redissons_is_taken_for_a_slip() {
    const GENERAL: &str = "addressResolverGroupFactory cleanUpKeysAmount codec connectionListener eventLoopGroup executor keepPubSubOrder \
        maxCleanUpDelay minCleanUpDelay nettyExecutor nettyHook nettyThreads referenceEnabled \
        reliableTopicWatchdogTimeout sslCiphers sslKeyManagerFactory sslKeystorePassword sslKeystoreType sslProtocols \
        sslProvider sslTrustManagerFactory sslTruststorePassword tcpKeepAlive tcpKeepAliveCount tcpKeepAliveIdle \
        tcpKeepAliveInterval tcpNoDelay tcpUserTimeout threads transportMode useScriptCache useThreadClassLoader \
        valkeyCapabilities";
    const OF_SERVERS: &str = "checkMasterLinkStatus checkSentinelsList checkSlaveStatusWithSyncing checkSlotsCoverage \
        connectionMinimumIdleSize connectionPoolSize dnsMonitoringInterval dnsMonitoringTimes failedSlaveCheckInterval \
        failedSlaveNodeDetector failedSlaveReconnectionInterval fallbackLoadingToMaster idleConnectionTimeout \
        keepAlive loadBalancer masterConnectionMinimumIdleSize masterConnectionPoolSize monitorIPChanges \
        pingConnectionInterval readMode reconnectionDelay retryAttempts retryDelay retryInterval scanInterval \
        sentinelsDiscovery slaveConnectionMinimumIdleSize slaveConnectionPoolSize sslCiphers sslKeyManagerFactory \
        sslKeystorePassword sslKeystoreType sslProtocols sslProvider sslTrustManagerFactory sslTruststorePassword \
        subscriptionConnectionMinimumIdleSize subscriptionConnectionPoolSize subscriptionMode subscriptionTimeout \
        subscriptionsPerConnection tcpKeepAliveCount tcpKeepAliveIdle tcpKeepAliveInterval tcpNoDelay tcpUserTimeout";
    for section in [
        "singleServerConfig:\n  address: rediss://a:1",
        "sentinelServersConfig:\n  masterName: a\n  sentinelAddresses: [rediss://a:1]",
        "clusterServersConfig:\n  nodeAddresses: [rediss://a:1]",
        "replicatedServersConfig:\n  nodeAddresses: [rediss://a:1]",
        "masterSlaveServersConfig:\n  masterAddress: rediss://a:1",
    ] {
        let inner: String = OF_SERVERS
            .split(' ')
            .map(|key| format!("  {key}: 1\n"))
            .collect();
        let outer: String = GENERAL
            .split(' ')
            .map(|key| format!("{key}: 1\n"))
            .collect();
        let read = read(&format!("{section}\n{inner}{outer}")).unwrap();
        assert_eq!(
            read.ignored().len(),
            inner.lines().count() + outer.lines().count()
        );
    }
}

#[test]
fn a_value_that_a_client_refuses_is_refused_under_the_name_in_the_file() {
    for (setting, told) in [
        ("lockWatchdogTimeout: 0", "lockWatchdogTimeout: "),
        ("lockWatchdogTimeout: 9", "lockWatchdogTimeout: "),
        ("lockWatchdogBatchSize: 0", "lockWatchdogBatchSize: "),
        ("lockWatchdogBatchSize: 10001", "lockWatchdogBatchSize: "),
        ("slavesSyncTimeout: 0", "slavesSyncTimeout: "),
        ("  timeout: 0", "singleServerConfig.timeout: "),
        ("  connectTimeout: 0", "singleServerConfig.connectTimeout: "),
        (
            "  clientName: s3cret app",
            "singleServerConfig.clientName: ",
        ),
        (
            "nameMapper: !<com.example.Prefixing> { prefix: \"s3cret\\n\" }",
            "nameMapper: ",
        ),
    ] {
        let text = refusal(&format!(
            "singleServerConfig:\n  address: redis://a:1\n{setting}\n"
        ));
        assert!(text.starts_with(told), "{setting}: {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
}

#[test]
fn a_setting_that_has_no_effect_on_these_servers_is_refused() {
    const MAPPER: &str = "natMapper: !<org.redisson.config.HostNatMapper> { hostsMap: { a: b } }";
    const UNMAPPED: &str = "natMapper: !<org.redisson.config.DefaultNatMapper> {}";
    let single = "singleServerConfig:\n  address: redis://a:1";
    let cluster = "clusterServersConfig:\n  nodeAddresses: [redis://a:1]";
    let replicated = "replicatedServersConfig:\n  nodeAddresses: [redis://a:1]";
    let master = "masterSlaveServersConfig:\n  masterAddress: redis://a:1";
    let sentinel = "sentinelServersConfig:\n  masterName: m\n  sentinelAddresses: [redis://a:1]";
    for section in [single, cluster, replicated, master] {
        for setting in ["sentinelUsername: s3cret", "sentinelPassword: s3cret"] {
            let told = refusal(&format!("{section}\n  {setting}"));
            let (key, _) = setting.split_once(':').unwrap();
            assert!(told.contains(&format!("Config.{key}: ")), "{told}");
            assert!(!told.contains("s3cret"), "{told}");
        }
    }
    for section in [single, replicated, master] {
        let told = refusal(&format!("{section}\n  {MAPPER}"));
        assert!(told.contains("Config.natMapper: "), "{told}");
        let told = refusal(&format!("{section}\n  natMap: {{ 'a:1': 'b:1' }}"));
        assert!(told.contains("Config.natMap: "), "{told}");
        read(&format!("{section}\n  {UNMAPPED}")).unwrap();
    }
    for section in [cluster, sentinel] {
        read(&format!("{section}\n  {MAPPER}")).unwrap();
    }
}

/// Keeps the fields of log lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let line = format!("{} {event:?}", event.metadata().level());
        self.0.lock().unwrap().push(line);
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::Id {
        tracing::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::Id, _: &tracing::Id) {}
    fn enter(&self, _: &tracing::Id) {}
    fn exit(&self, _: &tracing::Id) {}
}

#[tokio::test]
async fn a_client_of_a_file_logs_the_settings_without_effect() {
    let lines = Lines::default();
    let _guard = tracing::subscriber::set_default(lines.clone());
    let connect = async |more: &str| {
        let text = format!(
            "lazyInitialization: true\nsingleServerConfig:\n  address: redis+uds:///nowhere\n{more}"
        );
        let _ = LockClient::from_redisson_yaml(text).await;
    };
    let ignored = || {
        let lines = lines.0.lock().unwrap();
        let mut found = lines.iter().filter(|line| line.contains("no effect"));
        (found.next().cloned(), found.next().is_some())
    };
    connect("").await;
    assert_eq!(ignored(), (None, false));
    for _ in 0..3 {
        // The clients of one file say it once.
        connect("  keepAlive: s3cret\nthreads: 1\n").await;
    }
    let (Some(line), false) = ignored() else {
        panic!("not one line: {lines:?}", lines = lines.0);
    };
    assert!(line.starts_with("INFO"), "{line}");
    for setting in ["threads", "singleServerConfig.keepAlive"] {
        assert!(line.contains(setting), "{line}");
    }
    assert!(!line.contains("s3cret"), "{line}");
    // A file for an older Redisson is no mistake, and a typing error is one.
    let mistakes = || {
        let lines = lines.0.lock().unwrap();
        let mistakes = lines.iter().filter(|line| line.contains("does not know"));
        mistakes.cloned().collect::<Vec<_>>()
    };
    connect("  retryInterval: 1500\n").await;
    assert_eq!(mistakes(), [""; 0]);
    for _ in 0..3 {
        connect("  keepAlives: 1\nscanIntervall: 2\n").await;
    }
    let told = mistakes();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].starts_with("WARN") && told[0].contains("scanIntervall"),
        "{told:?}"
    );
}

/// Redisson prefers the login of an address, and does not log in as a user without a password.
#[test]
fn logins_are_those_of_redisson() {
    let shown =
        |settings: &str| shown(&read(&format!("singleServerConfig: {{ {settings} }}")).unwrap());
    let server = "Target(Tcp((\"a\", 1)), database None)";
    for (settings, login) in [
        ("address: 'redis://a:1', username: app", " as None"),
        ("address: 'redis://a:1', username: ''", " as None"),
        (
            "address: 'redis://a:1', username: app, password: p",
            " as Some(\"app\") with a password",
        ),
        // The address keeps its login.
        ("address: 'redis://app:s%2Ft@a:1', password: p", " as None"),
    ] {
        assert_eq!(shown(settings), format!("{server}{login}"), "{settings}");
    }
    read("sentinelServersConfig: { masterName: a, sentinelAddresses: ['redis://a:1'], sentinelUsername: b }")
        .unwrap();
}

/// The list has every setting that Redisson writes.
#[test]
fn unknown_settings_are_told_apart_from_those_without_effect() {
    for file in [
        written!("single"),
        written!("sentinel"),
        written!("cluster"),
        written!("replicated"),
        written!("master-slave"),
    ] {
        let read = read(file).unwrap();
        assert_eq!(read.unknown(), [""; 0]);
        assert!(!read.ignored().is_empty());
    }
    let text = "singleServerConfig: { address: 'redis://a:1', foo: 1, keepAlive: true }\nwatchdogTimeout: 1000";
    let read = read(text).unwrap();
    assert_eq!(
        read.unknown(),
        ["watchdogTimeout", "singleServerConfig.foo"]
    );
    assert_eq!(read.ignored(), ["singleServerConfig.keepAlive"]);
    let told = refusal("redisson.yaml");
    assert!(told.contains("not its path"), "{told}");
}

#[test]
fn errors_name_the_bad_setting_and_show_no_secret() {
    let single = |more: &str| {
        refusal(&format!(
            "singleServerConfig:\n  address: redis://a:1\n  {more}\n"
        ))
    };
    for (more, told) in [
        ("database: s3cret", "singleServerConfig.database"),
        ("timeout: s3cret", "singleServerConfig.timeout"),
        ("timeout: [1]", "singleServerConfig.timeout"),
        ("address: redis://b:1", "address occurs twice"),
        ("x: *s3cret", "line 3"),
        ("x: 's3cret", "line"),
    ] {
        let text = single(more);
        assert!(text.contains(told), "{more}: {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    for (text, told) in [
        ("", "empty"),
        ("a: 1\n---\nb: 2", "second document"),
        ("- a", "must contain settings"),
        ("threads: 1", "singleServerConfig"),
        ("singleServerConfig: {}", "singleServerConfig.address"),
        (
            "clusterServersConfig: { nodeAddresses: ['redis://:s3cret@a:1'] }",
            "clusterServersConfig.nodeAddresses",
        ),
        (
            "singleServerConfig: { address: 'nonsense' }",
            "singleServerConfig.address",
        ),
        (
            "sentinelServersConfig: { sentinelAddresses: ['redis://a:1'] }",
            "masterName",
        ),
        (
            "clusterServersConfig: { nodeAddresses: ['redis://a:1'], database: -1 }",
            "database",
        ),
        (
            "singleServerConfig: { address: 'redis://a:1' }\nclusterServersConfig: {}",
            "clusterServersConfig",
        ),
        (
            "singleServerConfig: { address: 'redis://a:1' }\ncheckLockSyncedSlaves: perhaps",
            "checkLockSyncedSlaves",
        ),
    ] {
        let refused = refusal(text);
        assert!(refused.contains(told), "{text}: {refused}");
        assert!(!refused.contains("s3cret"), "{refused}");
    }
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    assert!(refusal(&deep).contains("line"));
}

#[test]
fn a_resolver_of_credentials_is_an_error_that_names_the_method() {
    for (key, is_named) in [("credentialsResolver", true), ("commandMapper", false)] {
        let text = format!(
            "singleServerConfig:\n  address: redis://a:1\n  {key}: !<com.example.Mine> {{}}\n"
        );
        let told = refusal(&text);
        let named = told.contains("`LockClientBuilder::credentials_provider`");
        assert_eq!(named, is_named, "{told}");
    }
}
