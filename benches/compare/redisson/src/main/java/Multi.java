import java.util.Arrays;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** A lock of many names at once. */
final class Multi {
    private final Clients clients;
    private RLock held;

    Multi(Clients clients) {
        this.clients = clients;
    }

    String take(String[] names) {
        RedissonClient client = clients.usual();
        RLock lock = client.getMultiLock(Arrays.stream(names).map(client::getLock).toArray(RLock[]::new));
        long from = System.nanoTime();
        lock.lock();
        String took = Clients.micros(System.nanoTime() - from);
        held = lock;
        return took;
    }

    String release() {
        if (held == null) {
            throw new IllegalStateException("nothing is taken");
        }
        RLock lock = held;
        held = null;
        long from = System.nanoTime();
        lock.unlock();
        return Clients.micros(System.nanoTime() - from);
    }
}
