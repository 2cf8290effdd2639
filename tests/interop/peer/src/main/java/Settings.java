import java.io.File;
import java.io.IOException;
import java.net.URI;
import java.util.stream.Stream;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.BaseConfig;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.SentinelServersConfig;
import org.redisson.config.SingleServerConfig;

/**
 * How the peer connects: Redisson's defaults, with small pools and a fast startup.
 *
 * <pre>
 * redis://[user:password@]host:port[/database]
 * redis-sentinel://host:port/master name[?node=host:port&amp;node=..]
 * redis-cluster://host:port[/database][?node=host:port&amp;node=..]
 * file:///path/of/redisson.yaml
 * </pre>
 */
final class Settings {

    private Settings() {}

    /** A watchdog timeout of 0, or a mode of null, stands for Redisson's own. */
    static Config of(String url, long watchdogTimeoutMs, String shardedSubscriptionMode) throws IOException {
        URI uri = URI.create(url);
        if (uri.getScheme().equals("file")) {
            return Config.fromYAML(new File(uri));
        }
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE).setThreads(4).setNettyThreads(4);
        if (watchdogTimeoutMs > 0) {
            config.setLockWatchdogTimeout(watchdogTimeoutMs);
        }
        switch (uri.getScheme()) {
            case "redis-sentinel":
                sentinels(config.useSentinelServers(), uri);
                break;
            case "redis-cluster":
                cluster(config.useClusterServers(), uri, shardedSubscriptionMode);
                break;
            default:
                single(config.useSingleServer(), uri);
        }
        return config;
    }

    private static void single(SingleServerConfig server, URI uri) {
        server.setAddress(uri.getScheme() + "://" + uri.getHost() + ":" + uri.getPort())
                .setConnectionPoolSize(16)
                .setConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionPoolSize(16)
                .setSubscriptionConnectionMinimumIdleSize(1)
                .setDnsMonitoringInterval(-1);
        if (!path(uri).isEmpty()) {
            server.setDatabase(Integer.parseInt(path(uri)));
        }
        identify(server, uri);
    }

    private static void sentinels(SentinelServersConfig servers, URI uri) {
        servers.setMasterName(path(uri)).addSentinelAddress(nodes(uri));
        several(servers, uri);
    }

    private static void cluster(ClusterServersConfig servers, URI uri, String shardedSubscriptionMode) {
        // The default of 5 s would be most of a failover's time.
        servers.setScanInterval(1000).addNodeAddress(nodes(uri));
        several(servers, uri);
        if (shardedSubscriptionMode != null) {
            setShardedSubscriptionMode(servers, shardedSubscriptionMode);
        }
        if (!path(uri).isEmpty()) {
            setDatabase(servers, Integer.parseInt(path(uri)));
        }
    }

    private static void several(BaseMasterSlaveServersConfig<?> servers, URI uri) {
        servers.setMasterConnectionPoolSize(16)
                .setMasterConnectionMinimumIdleSize(1)
                .setSlaveConnectionPoolSize(16)
                .setSlaveConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionPoolSize(16)
                .setSubscriptionConnectionMinimumIdleSize(1)
                .setDnsMonitoringInterval(-1);
        // "work" must read its own writes.
        servers.setReadMode(ReadMode.MASTER);
        identify(servers, uri);
    }

    /** By reflection, because this must compile with versions of Redisson that lack the setting. */
    @SuppressWarnings({"unchecked", "rawtypes"})
    private static void setShardedSubscriptionMode(ClusterServersConfig servers, String mode) {
        try {
            Class type = Class.forName("org.redisson.config.ShardedSubscriptionMode");
            ClusterServersConfig.class
                    .getMethod("setShardedSubscriptionMode", type)
                    .invoke(servers, Enum.valueOf(type, mode));
        } catch (ReflectiveOperationException e) {
            throw new UnsupportedOperationException("this Redisson has no shardedSubscriptionMode", e);
        }
    }

    /** By reflection, as above. */
    private static void setDatabase(ClusterServersConfig servers, int database) {
        try {
            ClusterServersConfig.class.getMethod("setDatabase", int.class).invoke(servers, database);
        } catch (ReflectiveOperationException e) {
            throw new UnsupportedOperationException("this Redisson has no databases of clusters", e);
        }
    }

    private static void identify(BaseConfig<?> servers, URI uri) {
        if (uri.getUserInfo() == null) {
            return;
        }
        String[] user = uri.getUserInfo().split(":", 2);
        if (!user[0].isEmpty()) {
            servers.setUsername(user[0]);
        }
        if (user.length > 1) {
            servers.setPassword(user[1]);
        }
    }

    private static String path(URI uri) {
        return uri.getPath() == null || uri.getPath().isEmpty() ? "" : uri.getPath().substring(1);
    }

    /** The URL's address and those of its query. */
    private static String[] nodes(URI uri) {
        String query = uri.getQuery() == null ? "" : uri.getQuery();
        Stream<String> further = Stream.of(query.split("&"))
                .filter(word -> word.startsWith("node="))
                .map(word -> word.substring("node=".length()));
        return Stream.concat(Stream.of(uri.getHost() + ":" + uri.getPort()), further)
                .map(address -> "redis://" + address)
                .toArray(String[]::new);
    }
}
