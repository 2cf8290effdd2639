import java.util.Arrays;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.IntFunction;
import org.redisson.api.RLock;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Threads that take and release locks for a given time. */
final class Rounds {
    /** Every so many turns of a mixed round write, the others read. */
    private static final int WRITES_EVERY = 10;

    private final Clients clients;

    Rounds(Clients clients) {
        this.clients = clients;
    }

    String pair(String kind, int tasks, double seconds, double warmUp) throws Exception {
        RedissonClient client = clients.forRound(tasks);
        return round(tasks, seconds, warmUp, task -> {
            RLock lock = Clients.lock(client, kind, "bench:redisson:" + task);
            return turn -> lock;
        });
    }

    String contend(String name, int tasks, double seconds, double warmUp) throws Exception {
        RLock lock = clients.forRound(tasks).getLock(name);
        return round(tasks, seconds, warmUp, task -> turn -> lock);
    }

    String mixed(int tasks, int names, double seconds, double warmUp) throws Exception {
        RedissonClient client = clients.forRound(tasks);
        RReadWriteLock[] locks = new RReadWriteLock[names];
        Arrays.setAll(locks, i -> client.getReadWriteLock("bench:redisson:mixed:" + i));
        return round(tasks, seconds, warmUp, task -> turn -> {
            RReadWriteLock lock = locks[(task + turn) % names];
            return (task + turn) % WRITES_EVERY == 0 ? lock.writeLock() : lock.readLock();
        });
    }

    String permits(int tasks, int permits, double seconds, double warmUp) throws Exception {
        RSemaphore semaphore = clients.forRound(tasks).getSemaphore("bench:redisson:permits");
        semaphore.drainPermits();
        semaphore.addPermits(permits);
        return roundOf(tasks, seconds, warmUp, task -> turn -> {
            semaphore.acquire();
            semaphore.release();
        });
    }

    /** What a task does again and again. */
    private interface Pair {
        void run(int turn) throws Exception;
    }

    /** What the tasks of one round share. */
    private static final class Round {
        final CountDownLatch go = new CountDownLatch(1);
        final AtomicReference<Throwable> failure = new AtomicReference<>();
        long begin;
        long end;
    }

    /** One thread of a round, and what it has measured. */
    private static final class Task extends Thread {
        final Samples samples = new Samples();
        long all;
        private final Round round;
        private final Pair pair;

        Task(Round round, Pair pair) {
            this.round = round;
            this.pair = pair;
        }

        @Override
        public void run() {
            try {
                round.go.await();
                for (long from = System.nanoTime(); from - round.end < 0; ) {
                    pair.run((int) all);
                    long to = System.nanoTime();
                    all++;
                    if (from - round.begin >= 0 && to - round.end <= 0) {
                        samples.add(to - from);
                    }
                    from = to;
                }
            } catch (Throwable e) {
                round.failure.compareAndSet(null, e);
            }
        }
    }

    /** {@code locks} tells for each task the lock of each of its turns. */
    private static String round(int count, double seconds, double warmUp, IntFunction<IntFunction<RLock>> locks)
            throws Exception {
        return roundOf(count, seconds, warmUp, task -> {
            IntFunction<RLock> own = locks.apply(task);
            return turn -> {
                RLock lock = own.apply(turn);
                lock.lock();
                lock.unlock();
            };
        });
    }

    private static String roundOf(int count, double seconds, double warmUp, IntFunction<Pair> pairs)
            throws Exception {
        Round round = new Round();
        Task[] tasks = new Task[count];
        Arrays.setAll(tasks, i -> new Task(round, pairs.apply(i)));
        for (Task task : tasks) {
            task.start();
        }
        round.begin = System.nanoTime() + (long) (warmUp * 1e9);
        round.end = round.begin + (long) (seconds * 1e9);
        round.go.countDown();
        for (Task task : tasks) {
            task.join();
        }
        if (round.failure.get() != null) {
            throw new Exception("a task failed: " + round.failure.get(), round.failure.get());
        }
        long[] sorted = Samples.sorted(tasks, task -> task.samples);
        return String.format(
                Locale.ROOT,
                "{\"count\":%d,\"all\":%d,\"seconds\":%.3f,\"p50_us\":%.1f,\"p99_us\":%.1f}",
                sorted.length,
                Arrays.stream(tasks).mapToLong(task -> task.all).sum(),
                seconds,
                Samples.micros(sorted, 0.50),
                Samples.micros(sorted, 0.99));
    }
}
