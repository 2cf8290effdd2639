import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;

/** Threads that wait for one lock, one turn each, and the holder that lets them begin: one process's part of a queue. */
final class Line {
    private static final int TURNS_WITHIN_SECONDS = 60;

    private final Clients clients;
    private final ExecutorService threads = Executors.newCachedThreadPool();
    private final List<Future<Long>> waiting = new ArrayList<>();
    private RLock held;

    Line(Clients clients) {
        this.clients = clients;
    }

    String hold(String kind, String name) {
        RLock lock = Clients.lock(clients.usual(), kind, name);
        lock.lock();
        held = lock;
        return "true";
    }

    String join(String kind, String name, int tasks) {
        RLock lock = Clients.lock(clients.usual(), kind, name);
        for (int i = 0; i < tasks; i++) {
            waiting.add(threads.submit(() -> {
                lock.lock();
                return turnEnds(lock);
            }));
        }
        return "true";
    }

    String free() {
        if (held == null) {
            throw new IllegalStateException("nothing is held");
        }
        RLock lock = held;
        held = null;
        return Long.toString(turnEnds(lock));
    }

    String times() throws Exception {
        List<Future<Long>> turns = new ArrayList<>(waiting);
        waiting.clear();
        List<Long> times = new ArrayList<>();
        for (Future<Long> turn : turns) {
            times.add(turn.get(TURNS_WITHIN_SECONDS, TimeUnit.SECONDS));
        }
        return times.toString();
    }

    /** When it ended, in nanoseconds of a clock that all processes share. */
    private static long turnEnds(RLock lock) {
        Instant now = Instant.now();
        lock.unlock();
        return TimeUnit.SECONDS.toNanos(now.getEpochSecond()) + now.getNano();
    }
}
