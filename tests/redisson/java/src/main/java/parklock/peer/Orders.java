package parklock.peer;

import java.util.Arrays;
import java.util.concurrent.Semaphore;
import org.redisson.api.RedissonClient;

/** What a test may order. Each kind of primitive has its own words; those below belong to none. */
final class Orders {
    private final RedissonClient redisson;
    private final Locks locks;
    private final Semaphores semaphores;
    private final Permits permits;
    private final Latches latches;

    Orders(RedissonClient redisson, FairLocks fair) {
        this.redisson = redisson;
        locks = new Locks(redisson, fair);
        semaphores = new Semaphores(redisson);
        permits = new Permits(redisson);
        latches = new Latches(redisson);
    }

    /** The result as it is to be written; null if there is none to speak of. */
    Object carryOut(String[] words) throws Exception {
        Args args = new Args(words);
        return switch (words[0]) {
            // The owner field of this thread.
            case "owner" -> redisson.getId() + ":" + Thread.currentThread().getId();
            // Answers once this many threads wait for a message.
            case "parked" -> parked(Long.parseLong(words[1]));
            default -> ofAKind(words[0], args);
        };
    }

    /**
     * Redisson wakes those that are parked on the semaphore of the lock at that instant. A thread that has subscribed
     * and is about to park misses the message, and sleeps until the TTL ends.
     */
    private static Object parked(long threads) throws InterruptedException {
        while (Thread.getAllStackTraces().values().stream().filter(Orders::isParked).count() < threads) {
            Thread.sleep(5);
        }
        return null;
    }

    private static boolean isParked(StackTraceElement[] calls) {
        boolean parks = calls.length > 1 && calls[0].getMethodName().equals("park");
        return parks && Arrays.stream(calls).anyMatch(call -> call.getClassName().equals(Semaphore.class.getName()));
    }

    private Object ofAKind(String order, Args args) throws Exception {
        if (order.startsWith("sem")) {
            return semaphores.carryOut(order.substring("sem".length()), args);
        }
        if (order.startsWith("permit")) {
            return permits.carryOut(order.substring("permit".length()), args);
        }
        if (order.startsWith("latch")) {
            return latches.carryOut(order.substring("latch".length()), args);
        }
        return locks.carryOut(order, args);
    }
}
