package parklock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;

/**
 * Permits with a lease: {@code permitset name n}, {@code permitacquire name [lease]}, {@code permittry name wait
 * [lease]}, both answered by the permit's id or null; {@code permitrelease name id}, {@code permitlease name id [new
 * lease]}, {@code permitavailable}, {@code permitacquired}, {@code permittotal}, {@code permitresize name n}.
 */
final class Permits {
    private final RedissonClient redisson;

    Permits(RedissonClient redisson) {
        this.redisson = redisson;
    }

    Object carryOut(String verb, Args args) throws InterruptedException {
        RPermitExpirableSemaphore permits = redisson.getPermitExpirableSemaphore(args.name());
        switch (verb) {
            case "set":
                return permits.trySetPermits(args.small(0));
            case "acquire":
                return args.has(0) ? permits.acquire(args.number(0), MILLISECONDS) : permits.acquire();
            case "try":
                return String.valueOf(args.has(1)
                        ? permits.tryAcquire(args.number(0), args.number(1), MILLISECONDS)
                        : permits.tryAcquire(args.number(0), MILLISECONDS));
            case "release":
                return permits.tryRelease(args.text(0));
            case "lease":
                return args.has(1)
                        ? permits.updateLeaseTime(args.text(0), args.number(1), MILLISECONDS)
                        : permits.getLeaseTime(args.text(0));
            case "available":
                return permits.availablePermits();
            case "acquired":
                return permits.acquiredPermits();
            case "total":
                return permits.getPermits();
            case "resize":
                permits.setPermits(args.small(0));
                return null;
            default:
                throw new IllegalArgumentException("not known here: permit" + verb);
        }
    }
}
