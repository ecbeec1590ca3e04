package parklock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.redisson.api.RBucket;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * Permits with a lease: {@code permitset name n}, {@code permitacquire name [lease]}, {@code permittry name wait
 * [lease]}, both answered by the permit's id or null; {@code permitrelease name id}, {@code permitlease name id [new
 * lease]}, {@code permitavailable}, {@code permitacquired}, {@code permittotal}, {@code permitresize name n},
 * {@code permitmany name n [lease]}, answered by so many ids with commas between, {@code permitreleasemany name ids},
 * {@code permitexpire name ttl}, {@code permitincrement name counter times}.
 */
final class Permits {
    private final RedissonClient redisson;

    Permits(RedissonClient redisson) {
        this.redisson = redisson;
    }

    Object carryOut(String verb, Args args) throws Exception {
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
                        : since("getLeaseTime", permits, Since.types(String.class), args.text(0));
            case "available":
                return permits.availablePermits();
            case "acquired":
                return since("acquiredPermits", permits, Since.types());
            case "total":
                return since("getPermits", permits, Since.types());
            case "resize":
                return since("setPermits", permits, Since.types(int.class), args.small(0));
            case "many":
                return many(permits, args);
            case "releasemany":
                return since("tryRelease", permits, Since.types(List.class), Arrays.asList(args.text(0).split(",")));
            case "expire":
                return permits.expire(Duration.ofMillis(args.number(0)));
            case "increment":
                increment(permits, args);
                return null;
            default:
                throw new IllegalArgumentException("not known here: permit" + verb);
        }
    }

    private static String many(RPermitExpirableSemaphore permits, Args args) throws Exception {
        Object ids = args.has(1)
                ? since("acquire", permits, Since.types(int.class, long.class, TimeUnit.class), args.small(0),
                        args.number(1), MILLISECONDS)
                : since("acquire", permits, Since.types(int.class), args.small(0));
        return ((List<?>) ids).stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    private static Object since(String method, RPermitExpirableSemaphore permits, Class<?>[] types, Object... args)
            throws Exception {
        return Since.call(RPermitExpirableSemaphore.class, permits, method, types, args);
    }

    /** As with a semaphore that has one permit. */
    private void increment(RPermitExpirableSemaphore permits, Args args) throws InterruptedException {
        RBucket<String> counter = redisson.getBucket(args.text(0), StringCodec.INSTANCE);
        for (long left = args.number(1); left > 0; left--) {
            String permit = permits.acquire();
            try {
                String value = counter.get();
                counter.set(Long.toString(value == null ? 1 : Long.parseLong(value) + 1));
            } finally {
                permits.release(permit);
            }
        }
    }
}
