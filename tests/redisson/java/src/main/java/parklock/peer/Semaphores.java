package parklock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * {@code semset name n [ttl]}, {@code semacquire name [n]}, {@code semtry name [n [wait]]}, {@code semrelease name
 * [n]}, {@code semreleaseifexists name [n]}, {@code semavailable}, {@code semdrain}, {@code semadd name n}.
 */
final class Semaphores {
    private final RedissonClient redisson;

    Semaphores(RedissonClient redisson) {
        this.redisson = redisson;
    }

    Object carryOut(String verb, Args args) throws InterruptedException {
        RSemaphore semaphore = redisson.getSemaphore(args.name());
        switch (verb) {
            case "set":
                return args.has(1)
                        ? semaphore.trySetPermits(args.small(0), Duration.ofMillis(args.number(1)))
                        : semaphore.trySetPermits(args.small(0));
            case "acquire":
                semaphore.acquire(args.count());
                return null;
            case "try":
                return args.has(1)
                        ? semaphore.tryAcquire(args.count(), args.number(1), MILLISECONDS)
                        : semaphore.tryAcquire(args.count());
            case "release":
                semaphore.release(args.count());
                return null;
            case "releaseifexists":
                return semaphore.releaseIfExists(args.count());
            case "available":
                return semaphore.availablePermits();
            case "drain":
                return semaphore.drainPermits();
            case "add":
                semaphore.addPermits(args.small(0));
                return null;
            default:
                throw new IllegalArgumentException("not known here: sem" + verb);
        }
    }
}
