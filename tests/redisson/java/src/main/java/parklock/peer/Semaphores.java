package parklock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import org.redisson.api.RBucket;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * {@code semset name n [ttl]}, {@code semacquire name [n]}, {@code semtry name [n [wait]]}, {@code semrelease name
 * [n]}, {@code semreleaseifexists name [n]}, {@code semavailable}, {@code semdrain}, {@code semadd name n}, {@code semincrement name counter
 * times}.
 */
final class Semaphores {
    private final RedissonClient redisson;

    Semaphores(RedissonClient redisson) {
        this.redisson = redisson;
    }

    Object carryOut(String verb, Args args) throws Exception {
        RSemaphore semaphore = redisson.getSemaphore(args.name());
        switch (verb) {
            case "set":
                return args.has(1)
                        ? since("trySetPermits", semaphore, Since.types(int.class, Duration.class), args.small(0),
                                Duration.ofMillis(args.number(1)))
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
                return since("releaseIfExists", semaphore, Since.types(int.class), args.count());
            case "available":
                return semaphore.availablePermits();
            case "drain":
                return semaphore.drainPermits();
            case "add":
                semaphore.addPermits(args.small(0));
                return null;
            case "increment":
                increment(semaphore, args);
                return null;
            default:
                throw new IllegalArgumentException("not known here: sem" + verb);
        }
    }

    private static Object since(String method, RSemaphore semaphore, Class<?>[] types, Object... args) throws Exception {
        return Since.call(RSemaphore.class, semaphore, method, types, args);
    }

    /** Reads and writes as two commands, so that only a semaphore of one permit keeps others from coming between. */
    private void increment(RSemaphore semaphore, Args args) throws Exception {
        RBucket<String> counter = redisson.getBucket(args.text(0), StringCodec.INSTANCE);
        for (long left = args.number(1); left > 0; left--) {
            semaphore.acquire();
            try {
                String value = counter.get();
                counter.set(Long.toString(value == null ? 1 : Long.parseLong(value) + 1));
            } finally {
                semaphore.release();
            }
        }
    }
}
