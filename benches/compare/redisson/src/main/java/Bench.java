import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Locale;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * The Redisson row of the benchmark: one JVM that stays up and runs a round per line of stdin, so that the other
 * rows' rounds can alternate with its own and it pays for its warm-up once.
 *
 * <pre>
 * Bench &lt;redis url&gt;
 *
 * prints "ready", then one line of JSON per round:
 *   pair &lt;kind&gt; &lt;tasks&gt; &lt;seconds&gt; &lt;warm-up seconds&gt;
 *                      lock() and unlock() by that many threads, each on a key of its own; a kind is one of
 *                      reentrant, fair, read, write, fenced
 *   handoff &lt;seconds&gt; &lt;warm-up seconds&gt;
 *                      unlock() by one client until the lock() that waits in another returns
 *   hold, wait, free, times
 *                      {@link Line}: one JVM's part of a queue
 *   take &lt;name&gt;...     getMultiLock of the names, lock(): how long it took, in microseconds
 *   release            its unlock(): likewise
 *   quit
 * </pre>
 *
 * The warm-up is not measured.
 * A round that fails prints {"peer":"redisson","error":"..."}. Redisson's settings are its defaults, except the
 * connection pool (as many connections as threads) and longer time limits, so that no round fails on a busy machine.
 */
public final class Bench {
    /** How long a holder keeps the lock in a hand-off: enough for the other to have subscribed and be waiting. */
    private static final long HANDOFF_HOLD_NANOS = TimeUnit.MILLISECONDS.toNanos(3);

    private final String url;
    private RedissonClient pairClient;
    private int pairTasks;
    private RedissonClient[] handoffClients;
    private Line line;
    private RedissonClient multiClient;
    private RLock multiLock;

    private Bench(String url) {
        this.url = url;
    }

    public static void main(String[] argv) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        if (argv.length != 1) {
            System.err.println("usage: Bench <redis url>");
            System.exit(2);
        }
        Bench bench = new Bench(argv[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        out.println("ready");
        for (String line = in.readLine(); line != null && !line.trim().equals("quit"); line = in.readLine()) {
            if (line.isBlank()) {
                continue;
            }
            try {
                out.println(bench.round(line.trim().split(" +")));
            } catch (Throwable e) {
                e.printStackTrace();
                out.println("{\"peer\":\"redisson\",\"error\":\""
                        + e.toString().replaceAll("[\\\\\"\\p{Cntrl}]", " ") + "\"}");
            }
        }
        bench.close();
        System.exit(0);
    }

    private String round(String[] words) throws Exception {
        switch (words[0]) {
            case "pair":
                return pair(words[1], Integer.parseInt(words[2]), seconds(words[3]), seconds(words[4]));
            case "handoff":
                return handoff(seconds(words[1]), seconds(words[2]));
            case "take":
                return take(Arrays.copyOfRange(words, 1, words.length));
            case "release":
                return release();
            default:
                if (line == null) {
                    line = new Line(client(64));
                }
                return line.run(words);
        }
    }

    private static double seconds(String word) {
        return Double.parseDouble(word);
    }

    private RedissonClient client(int connections) {
        Config config = new Config();
        config.useSingleServer()
                .setAddress(url)
                .setConnectionPoolSize(connections)
                .setTimeout(30_000)
                .setConnectTimeout(30_000)
                .setRetryAttempts(10);
        return Redisson.create(config);
    }

    private void close() {
        if (pairClient != null) {
            pairClient.shutdown();
        }
        if (handoffClients != null) {
            handoffClients[0].shutdown();
            handoffClients[1].shutdown();
        }
        if (line != null) {
            line.close();
        }
        if (multiClient != null) {
            multiClient.shutdown();
        }
    }

    private static RLock lock(RedissonClient client, String kind, String key) {
        switch (kind) {
            case "reentrant":
                return client.getLock(key);
            case "fair":
                return client.getFairLock(key);
            case "read":
                return client.getReadWriteLock(key).readLock();
            case "write":
                return client.getReadWriteLock(key).writeLock();
            case "fenced":
                return client.getFencedLock(key);
            default:
                throw new IllegalArgumentException("no such kind: " + kind);
        }
    }

    private String take(String[] names) {
        if (multiClient == null) {
            multiClient = client(64);
        }
        multiLock = multiClient.getMultiLock(
                Arrays.stream(names).map(multiClient::getLock).toArray(RLock[]::new));
        long from = System.nanoTime();
        multiLock.lock();
        return Double.toString((System.nanoTime() - from) / 1e3);
    }

    private String release() {
        long from = System.nanoTime();
        multiLock.unlock();
        return Double.toString((System.nanoTime() - from) / 1e3);
    }

    private String pair(String kind, int tasks, double seconds, double warmUpSeconds) throws Exception {
        if (pairTasks != tasks) {
            // Idle connections of an earlier shape would only disturb the next.
            if (pairClient != null) {
                pairClient.shutdown();
            }
            pairClient = client(Math.max(64, tasks));
            pairTasks = tasks;
        }
        Thread[] threads = new Thread[tasks];
        Samples[] samples = new Samples[tasks];
        long[] allPairs = new long[tasks];
        AtomicReference<Throwable> failure = new AtomicReference<>();
        CountDownLatch go = new CountDownLatch(1);
        long[] window = new long[2];
        for (int i = 0; i < tasks; i++) {
            int task = i;
            RLock lock = lock(pairClient, kind, "bench:" + i);
            samples[i] = new Samples();
            threads[i] = new Thread(() -> {
                try {
                    go.await();
                    long begin = window[0];
                    long end = window[1];
                    for (long from = System.nanoTime(); from - end < 0; ) {
                        lock.lock();
                        lock.unlock();
                        long to = System.nanoTime();
                        allPairs[task]++;
                        if (from - begin >= 0 && to - end <= 0) {
                            samples[task].add(to - from);
                        }
                        from = to;
                    }
                } catch (Throwable e) {
                    failure.compareAndSet(null, e);
                }
            });
            threads[i].start();
        }
        window[0] = System.nanoTime() + (long) (warmUpSeconds * 1e9);
        window[1] = window[0] + (long) (seconds * 1e9);
        go.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        if (failure.get() != null) {
            throw new Exception("a task failed", failure.get());
        }
        long[] sorted = Samples.sorted(samples);
        return String.format(
                Locale.ROOT,
                "{\"peer\":\"redisson\",\"workload\":\"pair\",\"tasks\":%d,\"pairs\":%d,\"seconds\":%.3f,"
                        + "\"p50_us\":%.1f,\"p99_us\":%.1f,\"all_pairs\":%d}",
                tasks,
                sorted.length,
                seconds,
                micros(sorted, 0.50),
                micros(sorted, 0.99),
                Arrays.stream(allPairs).sum()); // warm-up and stragglers included: what the server's counters saw
    }

    private String handoff(double seconds, double warmUpSeconds) throws Exception {
        if (handoffClients == null) {
            handoffClients = new RedissonClient[] {client(64), client(64)};
        }
        String key = "bench:handoff:" + UUID.randomUUID();
        ExecutorService[] threads = {Executors.newSingleThreadExecutor(), Executors.newSingleThreadExecutor()};
        RLock[] locks = {handoffClients[0].getLock(key), handoffClients[1].getLock(key)};
        Samples samples = new Samples();
        long all = 0;
        try {
            long begin = System.nanoTime() + (long) (warmUpSeconds * 1e9);
            long end = begin + (long) (seconds * 1e9);
            threads[0].submit(timedLock(locks[0])).get(60, TimeUnit.SECONDS);
            int holder = 0;
            while (System.nanoTime() - end < 0) {
                int waiter = 1 - holder;
                Future<Long> inside = threads[waiter].submit(timedLock(locks[waiter]));
                TimeUnit.NANOSECONDS.sleep(HANDOFF_HOLD_NANOS);
                RLock held = locks[holder];
                long from = threads[holder]
                        .submit(() -> {
                            long before = System.nanoTime();
                            held.unlock();
                            return before;
                        })
                        .get(60, TimeUnit.SECONDS);
                long to = inside.get(60, TimeUnit.SECONDS);
                all++;
                if (from - begin >= 0 && to - end <= 0) {
                    samples.add(to - from);
                }
                holder = waiter;
            }
            RLock last = locks[holder];
            threads[holder].submit(last::unlock).get(60, TimeUnit.SECONDS);
        } finally {
            threads[0].shutdownNow();
            threads[1].shutdownNow();
        }
        long[] sorted = Samples.sorted(samples);
        return String.format(
                Locale.ROOT,
                "{\"peer\":\"redisson\",\"workload\":\"handoff\",\"handoffs\":%d,\"seconds\":%.3f,"
                        + "\"p50_us\":%.1f,\"p99_us\":%.1f,\"all_handoffs\":%d}",
                sorted.length,
                seconds,
                micros(sorted, 0.50),
                micros(sorted, 0.99),
                all);
    }

    /** Takes the lock and answers when lock() had returned. */
    private static Callable<Long> timedLock(RLock lock) {
        return () -> {
            lock.lock();
            return System.nanoTime();
        };
    }

    private static double micros(long[] sorted, double quantile) {
        if (sorted.length == 0) {
            throw new IllegalStateException("nothing was measured: the round was too short");
        }
        return sorted[(int) Math.min(sorted.length - 1, (long) (quantile * sorted.length))] / 1e3;
    }

    /** Every latency of one thread, in nanoseconds. */
    private static final class Samples {
        private long[] values = new long[1 << 14];
        private int size;

        void add(long value) {
            if (size == values.length) {
                values = Arrays.copyOf(values, 2 * size);
            }
            values[size++] = value;
        }

        static long[] sorted(Samples... parts) {
            int total = 0;
            for (Samples part : parts) {
                total += part.size;
            }
            long[] all = new long[total];
            int at = 0;
            for (Samples part : parts) {
                System.arraycopy(part.values, 0, all, at, part.size);
                at += part.size;
            }
            Arrays.sort(all);
            return all;
        }
    }
}
