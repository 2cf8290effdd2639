import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Modifier;
import java.net.URLDecoder;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.redisson.Redisson;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A Java service with Redisson locks, driven over stdin and stdout by the interop tests.
 *
 * <pre>
 * Peer &lt;url of {@link Settings}&gt; [watchdogTimeoutMs [shardedSubscriptionMode]]
 *
 * first line:  ready &lt;redisson version&gt; &lt;client uuid&gt;
 * request:     &lt;id&gt; &lt;thread&gt; &lt;verb&gt; [args...]      one space between tokens, tokens percent-encoded
 * response:    &lt;id&gt; ok [values...]
 *              &lt;id&gt; err &lt;SimpleClassName&gt; &lt;message, percent-encoded; - if there is none&gt;
 * </pre>
 *
 * Each thread label is one Java thread, which runs its requests in order; labels run concurrently, so the
 * responses of different labels come in any order. A lock L is KIND:NAME with a KIND of {@link #KINDS}, or
 * GROUP:L,L... with a GROUP of {@link #GROUPS}; a lease of -1, or none, means that the watchdog renews the hold. The
 * verbs are those of {@link #VERBS}, and two that run at once, whatever else is running: "quit" shuts the client down
 * (which leaves holds to their leases) and exits with 0, "halt" ends the process like a crash does, without an answer.
 * The end of stdin is a halt.
 */
public final class Peer {

    /** The constructor of each KIND of lock. A new kind is one line here. */
    private static final Map<String, BiFunction<RedissonClient, String, RLock>> KINDS = new LinkedHashMap<>();

    static {
        KINDS.put("reentrant", RedissonClient::getLock);
        KINDS.put("plain", RedissonClient::getLock);
        KINDS.put("fair", RedissonClient::getFairLock);
        KINDS.put("read", (client, name) -> client.getReadWriteLock(name).readLock());
        KINDS.put("write", (client, name) -> client.getReadWriteLock(name).writeLock());
        KINDS.put("fenced", RedissonClient::getFencedLock);
        KINDS.put("spin", RedissonClient::getSpinLock);
        KINDS.put("nonreentrant", (client, name) -> since440(client, "getNonReentrantLock", name));
        KINDS.put("nonreentrantfair", (client, name) -> since440(client, "getNonReentrantFairLock", name));
    }

    /** The constructor of each GROUP of locks. */
    private static final Map<String, BiFunction<RedissonClient, RLock[], RLock>> GROUPS = new LinkedHashMap<>();

    static {
        GROUPS.put("multi", RedissonClient::getMultiLock);
        GROUPS.put("redlock", RedissonClient::getRedLock);
    }

    /** A lock that old versions of Redisson lack. This compiles with them, and fails when it is called. */
    private static RLock since440(RedissonClient client, String method, String name) {
        try {
            return (RLock) RedissonClient.class.getMethod(method, String.class).invoke(client, name);
        } catch (ReflectiveOperationException e) {
            throw new UnsupportedOperationException("this Redisson has no " + method, e);
        }
    }

    /** Runs a request in the label's thread. Returns the answer's values, joined by spaces. */
    @FunctionalInterface
    private interface Verb {
        String run(Peer peer, Worker self, Args args) throws Exception;
    }

    private static final Map<String, Verb> VERBS = new LinkedHashMap<>();

    static {
        // Acquisitions answer "true <epoch ms when inside> <elapsed ms> [<fencing token>]" or the same with false.
        VERBS.put("lock", Peer::lock); //              L [leaseMs]
        VERBS.put("trylock", Peer::tryLock); //        L [waitMs [leaseMs]]; without waitMs: tryLock()
        VERBS.put("unlock", (peer, self, args) -> {
            peer.lockOf(args).unlock();
            return "";
        });
        VERBS.put("forceunlock", (peer, self, args) -> "" + peer.lockOf(args).forceUnlock());
        VERBS.put("islocked", (peer, self, args) -> "" + peer.lockOf(args).isLocked());
        VERBS.put("isheld", (peer, self, args) -> "" + peer.lockOf(args).isHeldByCurrentThread());
        VERBS.put("holdcount", (peer, self, args) -> "" + peer.lockOf(args).getHoldCount());
        VERBS.put("ttl", (peer, self, args) -> "" + peer.lockOf(args).remainTimeToLive());
        // The number in this thread's owner "<client uuid>:<n>".
        VERBS.put("threadid", (peer, self, args) -> "" + Thread.currentThread().getId());
        // The epoch ms of this thread's latest successful acquisition, 0 before the first.
        VERBS.put("now", (peer, self, args) -> "" + self.insideAt);
        // L counterKey n: n increments, by GET and SET, of a counter that only the lock protects; elapsed ms.
        VERBS.put("work", Peer::work);
        // L counterKey n: reads a counter twice, n times; returns how often it changed in between.
        VERBS.put("watch", Peer::watch);
        // label: interrupts that label's lock, trylock or work; false if none was running.
        VERBS.put("interrupt", (peer, self, args) -> "" + peer.worker(args.next("label")).interruptAcquisition());
        // label: whether that label's thread has parked at Redisson's semaphore for a lock, where a message wakes it.
        VERBS.put("isparked", (peer, self, args) -> "" + peer.worker(args.next("label")).isParked());
        // CLASS [regex]: its own public methods, whose names match, as name(Type,Type).
        VERBS.put("methods", Peer::methods);
        // KIND NAME CALL [args...]: see Synchronizers.
        VERBS.put("sync", (peer, self, args) -> {
            String kind = args.next("kind");
            String name = args.next("name");
            String call = args.next("call");
            List<String> rest = new ArrayList<>();
            while (args.hasNext()) {
                rest.add(args.next("argument"));
            }
            return Synchronizers.call(peer.client, kind, name, call, rest);
        });
        // TEXT: what Redisson reads from it, as Redisson writes it.
        VERBS.put("yaml", (peer, self, args) -> encode(Config.fromYAML(args.next("text")).toYAML()));
        // ms: delays this label only.
        VERBS.put("sleep", (peer, self, args) -> {
            Thread.sleep(args.nextLong("ms"));
            return "";
        });
    }

    private static String methods(Peer peer, Worker self, Args args) throws ClassNotFoundException {
        Class<?> type = Class.forName(args.next("class"));
        String regex = args.hasNext() ? args.next("regex") : ".*";
        return Stream.of(type.getDeclaredMethods())
                .filter(method -> Modifier.isPublic(method.getModifiers()) && !method.isSynthetic())
                .filter(method -> method.getName().matches(regex))
                .map(method -> method.getName() + Stream.of(method.getParameterTypes())
                        .map(Class::getSimpleName)
                        .collect(Collectors.joining(",", "(", ")")))
                .collect(Collectors.joining(" "));
    }

    private final RedissonClient client;
    private final PrintStream out;
    private final Map<String, Worker> workers = new ConcurrentHashMap<>();

    private Peer(RedissonClient client, PrintStream out) {
        this.client = client;
        this.out = out;
    }

    public static void main(String[] argv) throws Exception {
        // Libraries print to stderr, and only answers go to stdout.
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        if (argv.length < 1 || argv.length > 3) {
            System.err.println("usage: Peer <url> [watchdogTimeoutMs [shardedSubscriptionMode]]");
            System.exit(2);
        }
        RedissonClient client;
        try {
            long watchdogTimeoutMs = argv.length > 1 ? Long.parseLong(argv[1]) : 0;
            client = Redisson.create(Settings.of(argv[0], watchdogTimeoutMs, argv.length > 2 ? argv[2] : null));
        } catch (Exception e) {
            Throwable cause = e;
            while (cause.getCause() != null) {
                cause = cause.getCause();
            }
            System.err.println("Peer: cannot connect to Redis: " + cause);
            Runtime.getRuntime().halt(1);
            return;
        }
        Peer peer = new Peer(client, out);
        peer.say("ready " + redissonVersion() + " " + client.getId());
        peer.serve(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
    }

    private static String redissonVersion() throws IOException {
        Properties pom = new Properties();
        try (InputStream in =
                Redisson.class.getResourceAsStream("/META-INF/maven/org.redisson/redisson/pom.properties")) {
            if (in != null) {
                pom.load(in);
            }
        }
        return pom.getProperty("version", "unknown");
    }

    private void serve(BufferedReader in) throws IOException {
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            if (line.isBlank()) {
                continue;
            }
            String[] tokens = line.trim().split(" ");
            String verb = tokens[Math.min(2, tokens.length - 1)];
            if (verb.equals("halt")) {
                break;
            }
            if (verb.equals("quit")) {
                client.shutdown();
                if (tokens.length > 1) {
                    answer(tokens[0], "");
                }
                Runtime.getRuntime().halt(0);
            }
            if (tokens.length < 3) {
                refuse(tokens[0], new IllegalArgumentException("expected: <id> <thread> <verb> [args...]"));
                continue;
            }
            worker(tokens[1]).submit(tokens);
        }
        Runtime.getRuntime().halt(137);
    }

    private Worker worker(String label) {
        return workers.computeIfAbsent(label, l -> new Worker(this, l));
    }

    private void run(Worker self, String[] tokens) {
        String id = tokens[0];
        try {
            Verb verb = VERBS.get(tokens[2]);
            if (verb == null) {
                throw new IllegalArgumentException(
                        "unknown verb " + tokens[2] + "; known: " + VERBS.keySet() + ", quit, halt");
            }
            answer(id, verb.run(this, self, new Args(tokens, 3)));
        } catch (Throwable e) {
            refuse(id, e);
        }
    }

    private RLock lockOf(Args args) {
        return lockOf(args.next("lock KIND:NAME"));
    }

    private RLock lockOf(String lock) {
        String[] words = lock.split(":", 2);
        String name = words[words.length - 1];
        if (GROUPS.containsKey(words[0])) {
            RLock[] members = Stream.of(name.split(",")).map(this::lockOf).toArray(RLock[]::new);
            return GROUPS.get(words[0]).apply(client, members);
        }
        BiFunction<RedissonClient, String, RLock> kind = words.length < 2 ? null : KINDS.get(words[0]);
        if (kind == null) {
            throw new IllegalArgumentException(
                    "unknown kind in " + lock + "; known: " + KINDS.keySet() + ", " + GROUPS.keySet());
        }
        return kind.apply(client, name);
    }

    private static String lock(Peer peer, Worker self, Args args) throws Exception {
        RLock lock = peer.lockOf(args);
        long lease = args.nextLong("leaseMs", -1);
        return self.acquire(() -> {
            if (lock instanceof RFencedLock) {
                RFencedLock fenced = (RFencedLock) lock;
                // lockAndGetToken ignores its lease.
                return lease < 0
                        ? fenced.lockAndGetToken()
                        : fenced.tryLockAndGetToken(TimeUnit.DAYS.toMillis(1), lease, TimeUnit.MILLISECONDS);
            }
            if (lease < 0) {
                lock.lockInterruptibly();
            } else {
                lock.lockInterruptibly(lease, TimeUnit.MILLISECONDS);
            }
            return true;
        });
    }

    private static String tryLock(Peer peer, Worker self, Args args) throws Exception {
        RLock lock = peer.lockOf(args);
        boolean once = !args.hasNext();
        long wait = args.nextLong("waitMs", 0);
        long lease = args.nextLong("leaseMs", -1);
        return self.acquire(() -> {
            if (lock instanceof RFencedLock) {
                RFencedLock fenced = (RFencedLock) lock;
                // Without a limit, tryLockAndGetToken waits for the lock.
                return fenced.tryLockAndGetToken(wait, lease, TimeUnit.MILLISECONDS);
            }
            return once ? lock.tryLock() : lock.tryLock(wait, lease, TimeUnit.MILLISECONDS);
        });
    }

    private static String work(Peer peer, Worker self, Args args) throws Exception {
        long start = System.nanoTime();
        inside(peer, self, args, counter -> {
            String value = counter.get();
            counter.set(Long.toString(value == null ? 1 : Long.parseLong(value) + 1));
        });
        return "" + TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    }

    private static String watch(Peer peer, Worker self, Args args) throws Exception {
        long[] changed = new long[1];
        inside(peer, self, args, counter -> {
            String before = counter.get();
            Thread.sleep(1);
            changed[0] += Objects.equals(before, counter.get()) ? 0 : 1;
        });
        return "" + changed[0];
    }

    /** Uses the counter while the lock is held. */
    @FunctionalInterface
    private interface Body {
        void run(RBucket<String> counter) throws Exception;
    }

    private static void inside(Peer peer, Worker self, Args args, Body body) throws Exception {
        RLock lock = peer.lockOf(args);
        RBucket<String> counter = peer.client.getBucket(args.next("counter key"), StringCodec.INSTANCE);
        for (long n = args.nextLong("n"); n > 0; n--) {
            self.acquire(() -> {
                lock.lockInterruptibly();
                return true;
            });
            try {
                body.run(counter);
            } finally {
                lock.unlock();
            }
        }
    }

    private void answer(String id, String values) {
        say(values.isEmpty() ? id + " ok" : id + " ok " + values);
    }

    private void refuse(String id, Throwable e) {
        String message = e.getMessage() == null || e.getMessage().isEmpty() ? "-" : e.getMessage();
        say(id + " err " + e.getClass().getSimpleName() + " " + encode(message));
    }

    private static String encode(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    private void say(String line) {
        synchronized (out) {
            out.print(line + "\n");
            out.flush();
        }
    }

    /** The thread of one label. */
    private static final class Worker {
        /** Acquires a lock. Returns false or null if it was refused, else true or a fencing token. */
        @FunctionalInterface
        interface Acquisition {
            Object run() throws Exception;
        }

        private final LinkedBlockingQueue<String[]> requests = new LinkedBlockingQueue<>();
        private final Thread thread;
        private boolean acquiring;
        volatile long insideAt;

        Worker(Peer peer, String label) {
            thread = new Thread(
                    () -> {
                        while (true) {
                            try {
                                peer.run(this, requests.take());
                            } catch (InterruptedException e) {
                                // Only acquisitions are interrupted, and they clear the flag themselves.
                            }
                        }
                    },
                    label);
            thread.setDaemon(true);
            thread.start();
        }

        void submit(String[] request) {
            requests.add(request);
        }

        String acquire(Acquisition acquisition) throws Exception {
            synchronized (this) {
                acquiring = true;
            }
            long start = System.nanoTime();
            Object got;
            long inside;
            long elapsed;
            try {
                got = acquisition.run();
                inside = System.currentTimeMillis();
                elapsed = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
            } finally {
                synchronized (this) {
                    acquiring = false;
                    Thread.interrupted(); // an interrupt that came too late must not hit the next request
                }
            }
            boolean held = got != null && !Boolean.FALSE.equals(got);
            if (held) {
                insideAt = inside;
            }
            return held + " " + inside + " " + elapsed + (got instanceof Long ? " " + got : "");
        }

        boolean isParked() {
            List<String> frames = Stream.of(thread.getStackTrace()).map(StackTraceElement::getClassName).toList();
            return frames.contains("java.util.concurrent.locks.LockSupport")
                    && frames.contains("java.util.concurrent.Semaphore");
        }

        synchronized boolean interruptAcquisition() {
            if (acquiring) {
                thread.interrupt();
            }
            return acquiring;
        }
    }

    /** A request's arguments, percent-decoded one by one ('+' stands for itself). */
    private static final class Args {
        private final String[] tokens;
        private int next;

        Args(String[] tokens, int next) {
            this.tokens = tokens;
            this.next = next;
        }

        boolean hasNext() {
            return next < tokens.length;
        }

        String next(String what) {
            if (!hasNext()) {
                throw new IllegalArgumentException("missing argument: " + what);
            }
            return URLDecoder.decode(tokens[next++].replace("+", "%2B"), StandardCharsets.UTF_8);
        }

        long nextLong(String what) {
            return Long.parseLong(next(what));
        }

        long nextLong(String what, long absent) {
            return hasNext() ? nextLong(what) : absent;
        }
    }
}
