import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import org.redisson.config.Config;
import org.redisson.config.ConstantDelay;
import org.redisson.config.HostPortNatMapper;
import org.redisson.config.ReadMode;
import org.redisson.config.SslVerificationMode;

/**
 * Writes the output of Redisson's {@code Config.toYAML()} into the given folder, a file for each section: the data of
 * src/client/redisson/tests.rs. {@code tools/write-yaml.sh} runs it.
 */
final class WriteYaml {

    private WriteYaml() {}

    public static void main(String[] arguments) throws IOException {
        Path folder = Path.of(arguments[0]);
        Config single = new Config();
        single.setLockWatchdogTimeout(20_000).setFairLockWaitTimeout(60_000).setLockWatchdogBatchSize(50);
        single.setSlavesSyncTimeout(700).setCheckLockSyncedSlaves(false);
        single.setUsername("app").setPassword("s3cret");
        single.useSingleServer()
                .setAddress("redis://127.0.0.1:6379")
                .setDatabase(3)
                .setClientName("billing")
                .setConnectTimeout(4_000)
                .setTimeout(2_500);
        write(folder, "single", single);
        Config defaults = new Config();
        defaults.useSingleServer().setAddress("redis://127.0.0.1:6379");
        write(folder, "defaults", defaults);
        Config sentinel = new Config();
        sentinel.useSentinelServers()
                .setMasterName("mymaster")
                .addSentinelAddress("redis://127.0.0.1:26379", "redis://127.0.0.1:26380")
                .setSentinelUsername("watch")
                .setSentinelPassword("w4tch")
                .setPassword("s3cret")
                .setReadMode(ReadMode.MASTER);
        write(folder, "sentinel", sentinel);
        Config cluster = new Config();
        cluster.useClusterServers()
                .addNodeAddress("rediss://127.0.0.1:7000", "rediss://127.0.0.1:7001");
        write(folder, "cluster", cluster);
        cluster.useClusterServers().setSslVerificationMode(SslVerificationMode.NONE);
        write(folder, "unverified", cluster);
        HostPortNatMapper ports = new HostPortNatMapper();
        ports.setHostsPortMap(Map.of("10.0.0.1:6379", "gateway:7001"));
        Config nat = new Config();
        nat.useClusterServers()
                .addNodeAddress("redis://127.0.0.1:7000")
                .setRetryAttempts(3)
                .setRetryDelay(new ConstantDelay(Duration.ofSeconds(1)))
                .setNatMapper(ports);
        write(folder, "nat", nat);
        Config replicated = new Config();
        replicated.useReplicatedServers()
                .addNodeAddress("redis://127.0.0.1:7000", "redis://127.0.0.1:7001")
                .setDatabase(2);
        write(folder, "replicated", replicated);
        Config masterSlave = new Config();
        masterSlave.useMasterSlaveServers()
                .setMasterAddress("redis://127.0.0.1:7000")
                .addSlaveAddress("redis://127.0.0.1:7001");
        write(folder, "master-slave", masterSlave);
    }

    private static void write(Path folder, String name, Config config) throws IOException {
        Files.writeString(folder.resolve(name + ".yaml"), config.toYAML());
    }
}
