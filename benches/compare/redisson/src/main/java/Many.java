import java.util.ArrayList;
import java.util.List;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Locks that are held, and waits that do not end, by the thousands. */
final class Many {
    private final Clients clients;
    private final List<RLock> held = new ArrayList<>();
    private RedissonClient waiting;
    private long waiters;

    Many(Clients clients) {
        this.clients = clients;
    }

    String hold(String prefix, int count) {
        for (int i = 0; i < count; i++) {
            RLock lock = clients.usual().getLock(prefix + ":" + i);
            lock.lock();
            held.add(lock);
        }
        return "true";
    }

    String free() {
        for (RLock lock : held) {
            lock.unlock();
        }
        held.clear();
        return "true";
    }

    /** Every waiter has a thread id of its own, so that none of them is another's second entry. */
    String await(String prefix, int count, int names) {
        if (waiting == null) {
            waiting = clients.forManyNames();
        }
        for (int i = 0; i < count; i++) {
            waiting.getLock(prefix + ":" + i % names).lockAsync(++waiters);
        }
        return "true";
    }

    /** A future of lockAsync that is cancelled goes on waiting, and gives the lock back when it has it. */
    String giveUp() {
        if (waiting != null) {
            waiting.shutdown();
            waiting = null;
        }
        return "true";
    }
}
