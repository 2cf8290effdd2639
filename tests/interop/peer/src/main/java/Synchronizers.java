import java.util.List;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Semaphores and latches, for the verb "sync" of {@link Peer}: KIND NAME CALL [args...], with the names of Redisson's methods. */
final class Synchronizers {
    private Synchronizers() {
    }

    static String call(RedissonClient client, String kind, String name, String call, List<String> args)
            throws InterruptedException {
        return switch (kind) {
            case "semaphore" -> semaphore(client.getSemaphore(name), call, args);
            case "expirable" -> expirable(client.getPermitExpirableSemaphore(name), call, args);
            case "latch" -> latch(client.getCountDownLatch(name), call, args);
            default -> throw new IllegalArgumentException("no such kind: " + kind);
        };
    }

    private static String semaphore(RSemaphore semaphore, String call, List<String> args) throws InterruptedException {
        int permits = args.isEmpty() ? 0 : Integer.parseInt(args.get(0));
        switch (call) {
            case "trySetPermits":
                return "" + semaphore.trySetPermits(permits);
            case "acquire":
                semaphore.acquire(permits);
                return "";
            case "tryAcquire":
                return "" + semaphore.tryAcquire(permits);
            case "tryAcquireFor":
                return "" + semaphore.tryAcquire(permits, Long.parseLong(args.get(1)), TimeUnit.MILLISECONDS);
            case "release":
                semaphore.release(permits);
                return "";
            case "addPermits":
                semaphore.addPermits(permits);
                return "";
            case "drainPermits":
                return "" + semaphore.drainPermits();
            case "availablePermits":
                return "" + semaphore.availablePermits();
            case "turns":
                for (int turn = 0; turn < permits; turn++) {
                    semaphore.acquire();
                    semaphore.release();
                }
                return "";
            default:
                throw new IllegalArgumentException("no such call: " + call);
        }
    }

    private static String expirable(RPermitExpirableSemaphore semaphore, String call, List<String> args)
            throws InterruptedException {
        switch (call) {
            case "trySetPermits":
                return "" + semaphore.trySetPermits(Integer.parseInt(args.get(0)));
            case "setPermits":
                semaphore.setPermits(Integer.parseInt(args.get(0)));
                return "";
            case "addPermits":
                semaphore.addPermits(Integer.parseInt(args.get(0)));
                return "";
            case "acquire":
                return args.isEmpty()
                        ? semaphore.acquire()
                        : semaphore.acquire(Long.parseLong(args.get(0)), TimeUnit.MILLISECONDS);
            case "tryAcquire":
                return "" + semaphore.tryAcquire(0, Long.parseLong(args.get(0)), TimeUnit.MILLISECONDS);
            case "acquireList":
                return String.join(
                        ",",
                        semaphore.acquire(
                                Integer.parseInt(args.get(0)), Long.parseLong(args.get(1)), TimeUnit.MILLISECONDS));
            case "tryAcquireList":
                return String.join(",", semaphore.tryAcquire(Integer.parseInt(args.get(0))));
            case "tryReleaseList":
                return "" + semaphore.tryRelease(List.of(args.get(0).split(",")));
            case "tryRelease":
                return "" + semaphore.tryRelease(args.get(0));
            case "updateLeaseTime":
                return "" + semaphore.updateLeaseTime(args.get(0), Long.parseLong(args.get(1)), TimeUnit.MILLISECONDS);
            case "availablePermits":
                return "" + semaphore.availablePermits();
            case "acquiredPermits":
                return "" + semaphore.acquiredPermits();
            case "getPermits":
                return "" + semaphore.getPermits();
            default:
                throw new IllegalArgumentException("no such call: " + call);
        }
    }

    private static String latch(RCountDownLatch latch, String call, List<String> args) throws InterruptedException {
        switch (call) {
            case "trySetCount":
                return "" + latch.trySetCount(Long.parseLong(args.get(0)));
            case "countDown":
                latch.countDown();
                return "";
            case "getCount":
                return "" + latch.getCount();
            case "await":
                latch.await();
                return "";
            case "awaitFor":
                return "" + latch.await(Long.parseLong(args.get(0)), TimeUnit.MILLISECONDS);
            case "delete":
                return "" + latch.delete();
            default:
                throw new IllegalArgumentException("no such call: " + call);
        }
    }
}
