import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * Threads that stand in the queue of one fair lock, one turn each. The harness has the same number wait in another JVM,
 * lets the holder go when all are in line, and makes hand-offs of the times of both.
 *
 * <pre>
 *   hold &lt;name&gt;             takes the lock: true
 *   wait &lt;name&gt; &lt;threads&gt;   as many call lock(), and unlock() as soon as they have it: true, at once
 *   free                   unlocks what is held: when, just before
 *   times                  when each of the waiters had the lock
 * </pre>
 *
 * Times are in nanoseconds since 1970, a clock that both JVMs share.
 */
final class Line {
    private final RedissonClient client;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final List<Future<Long>> waiting = new ArrayList<>();
    private RLock held;

    Line(RedissonClient client) {
        this.client = client;
    }

    String run(String[] words) throws Exception {
        switch (words[0]) {
            case "hold":
                held = client.getFairLock(words[1]);
                held.lock();
                return "true";
            case "wait":
                RLock lock = client.getFairLock(words[1]);
                for (int i = 0; i < Integer.parseInt(words[2]); i++) {
                    waiting.add(threads.submit(() -> turn(lock)));
                }
                return "true";
            case "free":
                return Long.toString(turnEnds(held));
            case "times":
                List<Long> times = new ArrayList<>();
                for (Future<Long> turn : waiting) {
                    times.add(turn.get(60, TimeUnit.SECONDS));
                }
                waiting.clear();
                return times.toString();
            default:
                throw new IllegalArgumentException("no such command: " + words[0]);
        }
    }

    void close() {
        threads.shutdownNow();
        client.shutdown();
    }

    private static long turn(RLock lock) {
        lock.lock();
        return turnEnds(lock);
    }

    private static long turnEnds(RLock lock) {
        Instant now = Instant.now();
        lock.unlock();
        return TimeUnit.SECONDS.toNanos(now.getEpochSecond()) + now.getNano();
    }
}
