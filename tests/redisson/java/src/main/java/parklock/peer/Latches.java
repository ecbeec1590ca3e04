package parklock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

/**
 * {@code latchset name n}, {@code latchdown name}, {@code latchawait name [wait]}, {@code latchcount},
 * {@code latchdelete}.
 */
final class Latches {
    private final RedissonClient redisson;

    Latches(RedissonClient redisson) {
        this.redisson = redisson;
    }

    Object carryOut(String verb, Args args) throws InterruptedException {
        RCountDownLatch latch = redisson.getCountDownLatch(args.name());
        switch (verb) {
            case "set":
                return latch.trySetCount(args.number(0));
            case "down":
                latch.countDown();
                return null;
            case "await":
                if (args.has(0)) {
                    return latch.await(args.number(0), MILLISECONDS);
                }
                latch.await();
                return null;
            case "count":
                return latch.getCount();
            case "delete":
                return latch.delete();
            default:
                throw new IllegalArgumentException("not known here: latch" + verb);
        }
    }
}
