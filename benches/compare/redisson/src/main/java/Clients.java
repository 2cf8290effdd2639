import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/**
 * Redisson's clients with their defaults, but for
 *
 * <ul>
 *   <li>longer time limits and more attempts, so that no round fails on a busy machine;
 *   <li>the connection pool of a round: a connection per thread where the 64 of the default are fewer;
 *   <li>the subscriptions per connection of wait-many: the defaults end at 250 names;
 *   <li>several clients in one process: they share their threads, and each keeps one idle connection instead of 24.
 * </ul>
 */
final class Clients {
    /** Redisson's default. */
    private static final int CONNECTIONS = 64;
    /** By the default of 50 connections for subscriptions: as many names as any workload has, and some to spare. */
    private static final int SUBSCRIPTIONS_PER_CONNECTION = 400;
    /** Redisson's defaults for one client, here of all that share a process. */
    private static final int LOOPS = 32;
    private static final int THREADS = 16;
    private static final int LIMIT_MILLIS = 30_000;

    private final String url;
    private RedissonClient usual;
    private RedissonClient roundsClient;
    private int roundsTasks;
    private final List<RedissonClient> several = new ArrayList<>();
    private EventLoopGroup severalLoops;
    private ExecutorService severalThreads;

    Clients(String url) {
        this.url = url;
    }

    /** The one that all commands share which need no more. */
    RedissonClient usual() {
        if (usual == null) {
            usual = Redisson.create(config(CONNECTIONS));
        }
        return usual;
    }

    /** One with a connection per task. */
    RedissonClient forRound(int tasks) {
        if (roundsTasks != tasks) {
            // Idle connections of an earlier shape would only disturb the next.
            if (roundsClient != null) {
                roundsClient.shutdown();
            }
            roundsClient = Redisson.create(config(Math.max(CONNECTIONS, tasks)));
            roundsTasks = tasks;
        }
        return roundsClient;
    }

    /** So many with a connection per task; more than one share their threads. */
    List<RedissonClient> forTurns(int count, int tasks) {
        if (count == 1) {
            return List.of(forRound(tasks));
        }
        if (severalLoops == null) {
            severalLoops = new MultiThreadIoEventLoopGroup(LOOPS, NioIoHandler.newFactory());
            severalThreads = Executors.newFixedThreadPool(THREADS);
        }
        while (several.size() < count) {
            Config config = config(Math.max(CONNECTIONS, tasks));
            config.setEventLoopGroup(severalLoops).setExecutor(severalThreads);
            server(config).setConnectionMinimumIdleSize(1);
            several.add(Redisson.create(config));
        }
        return several.subList(0, count);
    }

    /** A new one that can subscribe to many names. */
    RedissonClient forManyNames() {
        Config config = config(CONNECTIONS);
        server(config).setSubscriptionsPerConnection(SUBSCRIPTIONS_PER_CONNECTION);
        return Redisson.create(config);
    }

    /** How long a new client needs until it has a lock. */
    String start() {
        long from = System.nanoTime();
        RedissonClient client = Redisson.create(config(CONNECTIONS));
        try {
            RLock lock = client.getLock("bench:redisson:start");
            lock.lock();
            long to = System.nanoTime();
            lock.unlock();
            return micros(to - from);
        } finally {
            client.shutdown();
        }
    }

    static String micros(long nanos) {
        return String.format(Locale.ROOT, "%.1f", nanos / 1e3);
    }

    static RLock lock(RedissonClient client, String kind, String name) {
        switch (kind) {
            case "reentrant":
                return client.getLock(name);
            case "fair":
                return client.getFairLock(name);
            case "read":
                return client.getReadWriteLock(name).readLock();
            case "write":
                return client.getReadWriteLock(name).writeLock();
            case "fenced":
                return client.getFencedLock(name);
            default:
                throw new IllegalArgumentException("no such kind: " + kind);
        }
    }

    private Config config(int connections) {
        Config config = new Config();
        server(config)
                .setAddress(url)
                .setConnectionPoolSize(connections)
                .setTimeout(LIMIT_MILLIS)
                .setConnectTimeout(LIMIT_MILLIS)
                .setSubscriptionTimeout(LIMIT_MILLIS)
                .setRetryAttempts(10);
        return config;
    }

    private static SingleServerConfig server(Config config) {
        return config.useSingleServer();
    }
}
