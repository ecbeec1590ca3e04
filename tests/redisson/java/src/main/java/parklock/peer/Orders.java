package parklock.peer;

import org.redisson.api.RedissonClient;

/** What a test may order. Each kind of primitive has its own words; those below belong to none. */
final class Orders {
    private final RedissonClient redisson;
    private final Locks locks;
    private final Semaphores semaphores;
    private final Permits permits;
    private final Latches latches;

    Orders(RedissonClient redisson) {
        this.redisson = redisson;
        locks = new Locks(redisson);
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
            default -> ofAKind(words[0], args);
        };
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
