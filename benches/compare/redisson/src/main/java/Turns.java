import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Turns at one lock, with work while it is held and a pause behind each turn. */
final class Turns {
    private final Clients clients;

    Turns(Clients clients) {
        this.clients = clients;
    }

    String run(String kind, String[] names, String tasks, Pause work, Pause think, double seconds, double warmUp)
            throws Exception {
        String[] counts = tasks.contains("x") ? tasks.split("x") : new String[] {"1", tasks};
        List<Task> all = new ArrayList<>();
        Round round = new Round(work, think);
        for (RedissonClient client : clients.forTurns(Integer.parseInt(counts[0]), Integer.parseInt(counts[1]))) {
            for (int i = 0; i < Integer.parseInt(counts[1]); i++) {
                all.add(new Task(round, lock(client, kind, names)));
            }
        }
        all.forEach(Thread::start);
        round.begin = System.nanoTime() + (long) (warmUp * 1e9);
        round.end = round.begin + (long) (seconds * 1e9);
        round.go.countDown();
        for (Task task : all) {
            task.join();
        }
        if (round.failure.get() != null) {
            throw new Exception("a task failed: " + round.failure.get(), round.failure.get());
        }
        List<Long> waits = all.stream().flatMap(task -> task.waits.stream()).sorted().toList();
        return String.format(
                Locale.ROOT,
                "{\"count\":%d,\"all\":%d,\"seconds\":%.3f,\"longest_wait_us\":%.1f,\"wait_p99_us\":%.1f}",
                all.stream().mapToLong(task -> task.count).sum(),
                all.stream().mapToLong(task -> task.all).sum(),
                seconds,
                waits.isEmpty() ? 0 : waits.get(waits.size() - 1) / 1e3,
                waits.isEmpty() ? 0 : waits.get(Math.min(waits.size() - 1, (int) (0.99 * waits.size()))) / 1e3);
    }

    private static RLock lock(RedissonClient client, String kind, String[] names) {
        if (kind.equals("multi")) {
            return client.getMultiLock(Arrays.stream(names).map(client::getLock).toArray(RLock[]::new));
        }
        if (names.length != 1) {
            throw new IllegalArgumentException("several names are of a multi-lock only");
        }
        return Clients.lock(client, kind, names[0]);
    }

    /** A time in milliseconds, or a range of which each pause is a random part. */
    static final class Pause {
        private final double least;
        private final double most;

        private Pause(double least, double most) {
            this.least = least;
            this.most = most;
        }

        static Pause of(String word) {
            String[] ends = word.split("-");
            return new Pause(Double.parseDouble(ends[0]), Double.parseDouble(ends[ends.length - 1]));
        }

        void sleep() throws InterruptedException {
            if (most > 0) {
                double part = ThreadLocalRandom.current().nextDouble();
                TimeUnit.NANOSECONDS.sleep((long) ((least + (most - least) * part) * 1e6));
            }
        }
    }

    /** What the tasks of one command share. */
    private static final class Round {
        final CountDownLatch go = new CountDownLatch(1);
        final AtomicReference<Throwable> failure = new AtomicReference<>();
        final Pause work;
        final Pause think;
        long begin;
        long end;

        Round(Pause work, Pause think) {
            this.work = work;
            this.think = think;
        }
    }

    private static final class Task extends Thread {
        long count;
        long all;
        final List<Long> waits = new ArrayList<>();
        private final Round round;
        private final RLock lock;

        Task(Round round, RLock lock) {
            this.round = round;
            this.lock = lock;
        }

        @Override
        public void run() {
            try {
                round.go.await();
                for (long asked = System.nanoTime(); asked - round.end < 0; asked = System.nanoTime()) {
                    lock.lock();
                    waited(asked, System.nanoTime());
                    round.work.sleep();
                    lock.unlock();
                    ended(System.nanoTime());
                    round.think.sleep();
                }
            } catch (Throwable e) {
                round.failure.compareAndSet(null, e);
            }
        }

        /** Of a wait that lasts at the end, the part until then counts. */
        private void waited(long asked, long taken) {
            if (taken - round.begin >= 0) {
                long until = taken - round.end <= 0 ? taken : round.end;
                waits.add(until - asked);
            }
        }

        private void ended(long released) {
            all++;
            if (released - round.begin >= 0 && released - round.end <= 0) {
                count++;
            }
        }
    }
}
