//! The settings that Redisson knows, and where.

use super::servers::Kind;

/// The places of settings: the file itself, and its sections of servers.
const FILE: u8 = 1;
const SINGLE: u8 = 1 << 1;
const SENTINEL: u8 = 1 << 2;
const CLUSTER: u8 = 1 << 3;
const REPLICATED: u8 = 1 << 4;
const MASTER_SLAVE: u8 = 1 << 5;
const SEVERAL: u8 = SENTINEL | CLUSTER | REPLICATED | MASTER_SLAVE;
const SERVERS: u8 = SINGLE | SEVERAL;

/// The settings of Redisson 4.7.0 by their places. A test compares them with that version (tests/interop/yaml.rs).
const OF_4_7: [(u8, &str); 12] = [
    (
        FILE,
        "addressResolverGroupFactory checkLockSyncedSlaves cleanUpKeysAmount clusterServersConfig codec connectionListener
         eventLoopGroup executor fairLockWaitTimeout keepPubSubOrder lazyInitialization lockWatchdogBatchSize
         lockWatchdogTimeout masterSlaveServersConfig maxCleanUpDelay minCleanUpDelay nettyExecutor nettyHook nettyThreads
         protocol referenceEnabled reliableTopicWatchdogTimeout replicatedServersConfig sentinelServersConfig
         singleServerConfig slavesSyncTimeout tcpKeepAlive threads transportMode useScriptCache useThreadClassLoader
         valkeyCapabilities",
    ),
    (
        FILE | SERVERS,
        "commandMapper credentialsResolver nameMapper password sslCiphers sslKeystore sslKeystorePassword sslKeystoreType
         sslProtocols sslProvider sslTruststore sslTruststorePassword sslVerificationMode tcpKeepAliveCount tcpKeepAliveIdle
         tcpKeepAliveInterval tcpNoDelay tcpUserTimeout username",
    ),
    (
        SERVERS,
        "clientName connectTimeout database dnsMonitoringInterval dnsMonitoringTimes idleConnectionTimeout keepAlive
         pingConnectionInterval reconnectionDelay retryAttempts retryDelay sslEnableEndpointIdentification
         subscriptionConnectionMinimumIdleSize subscriptionConnectionPoolSize subscriptionTimeout subscriptionsPerConnection
         timeout",
    ),
    (
        SEVERAL,
        "failedSlaveCheckInterval failedSlaveNodeDetector failedSlaveReconnectionInterval fallbackLoadingToMaster loadBalancer
         masterConnectionMinimumIdleSize masterConnectionPoolSize readMode slaveConnectionMinimumIdleSize
         slaveConnectionPoolSize subscriptionMode",
    ),
    (SINGLE, "address connectionMinimumIdleSize connectionPoolSize"),
    (
        SENTINEL,
        "checkSentinelsList checkSlaveStatusWithSyncing masterName sentinelAddresses sentinelPassword sentinelUsername
         sentinelsDiscovery",
    ),
    (
        CLUSTER,
        "checkMasterLinkStatus checkSlotsCoverage shardedSubscriptionMode",
    ),
    (REPLICATED, "monitorIPChanges"),
    (MASTER_SLAVE, "masterAddress slaveAddresses"),
    (CLUSTER | REPLICATED, "nodeAddresses"),
    (SENTINEL | CLUSTER, "natMap"),
    (SENTINEL | CLUSTER | REPLICATED, "natMapper scanInterval"),
];

/// Settings of Redisson 3.10 to 4.6 that 4.7.0 has not.
const OF_OTHERS: &str = "credentialsReapplyInterval decodeInExecutor failedAttempts pingTimeout reconnectionTimeout retryInterval
    retryIntervalMax slaveFailsInterval sslKeyManagerFactory sslTrustManagerFactory useLinuxNativeEpoll";

/// Whether Redisson 4.7.0 accepts the setting in this section, or in the file itself.
pub(super) fn is_accepted(section: Option<Kind>, name: &str) -> bool {
    let here = match section {
        None => FILE,
        Some(Kind::Single) => SINGLE,
        Some(Kind::Sentinel) => SENTINEL,
        Some(Kind::Cluster) => CLUSTER,
        Some(Kind::Replicated) => REPLICATED,
        Some(Kind::MasterSlave) => MASTER_SLAVE,
    };
    let is_here = |(places, names): &(u8, &str)| places & here != 0 && has(names, name);
    OF_4_7.iter().any(is_here)
}

/// Whether any version of Redisson has the setting, anywhere.
pub(super) fn is_known(path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or_default();
    has(OF_OTHERS, name) || OF_4_7.iter().any(|(_, names)| has(names, name))
}

fn has(names: &str, name: &str) -> bool {
    names.split_whitespace().any(|known| known == name)
}
