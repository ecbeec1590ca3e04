package parklock.peer;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RBucket;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * {@code lock name [lease]}, {@code trylock name [wait [lease]]}, {@code unlock}, {@code count}, {@code isheld},
 * {@code islocked}, {@code ttl}, {@code force}, {@code increment name counter times}; the same with {@code fair},
 * {@code fenced}, {@code read}, {@code write} or {@code spin} before it: {@code fairtrylock name 500}; with
 * {@code multi}, several names with commas between them: {@code multilock a,b}. Times are in milliseconds.
 */
final class Locks {
    private static final String[] KINDS = {"fair", "fenced", "multi", "read", "write", "spin"};

    private final RedissonClient redisson;
    private final FairLocks fair;

    Locks(RedissonClient redisson, FairLocks fair) {
        this.redisson = redisson;
        this.fair = fair;
    }

    Object carryOut(String order, Args args) throws Exception {
        for (String kind : KINDS) {
            if (order.startsWith(kind)) {
                String verb = order.substring(kind.length());
                RLock lock = lock(kind, args.name());
                return kind.equals("fenced") ? fenced(lock, verb, args) : carryOut(lock, verb, args);
            }
        }
        return carryOut(redisson.getLock(args.name()), order, args);
    }

    /** Reads and writes as two commands, so that only the lock keeps others from coming between. */
    private Object increment(RLock lock, Args args) {
        RBucket<String> counter = redisson.getBucket(args.text(0), StringCodec.INSTANCE);
        for (long left = args.number(1); left > 0; left--) {
            lock.lock();
            try {
                String value = counter.get();
                counter.set(Long.toString(value == null ? 1 : Long.parseLong(value) + 1));
            } finally {
                lock.unlock();
            }
        }
        return null;
    }

    private RLock lock(String kind, String name) throws Exception {
        return switch (kind) {
            case "fair" -> fair.lock(redisson, name);
            case "fenced" -> (RLock) Since.call(
                    RedissonClient.class, redisson, "getFencedLock", Since.types(String.class), name);
            case "multi" -> redisson.getMultiLock(
                    Arrays.stream(name.split(",")).map(redisson::getLock).toArray(RLock[]::new));
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write" -> redisson.getReadWriteLock(name).writeLock();
            default -> redisson.getSpinLock(name);
        };
    }

    private Object carryOut(RLock lock, String verb, Args args) throws InterruptedException {
        switch (verb) {
            case "increment":
                return increment(lock, args);
            case "lock":
                return acquire(lock, args);
            case "trylock":
                return tryAcquire(lock, args);
            case "unlock":
                lock.unlock();
                return null;
            case "count":
                return lock.getHoldCount();
            case "isheld":
                return lock.isHeldByCurrentThread();
            case "islocked":
                return lock.isLocked();
            case "ttl":
                return lock.remainTimeToLive();
            case "force":
                return lock.forceUnlock();
            default:
                throw new IllegalArgumentException("not known here: " + verb);
        }
    }

    /** A lease of -1 is none. */
    private static Object acquire(RLock lock, Args args) {
        lock.lock(args.has(0) ? args.number(0) : -1, MILLISECONDS);
        return null;
    }

    /** Whether it was granted. */
    private static Object tryAcquire(RLock lock, Args args) throws InterruptedException {
        long lease = args.has(1) ? args.number(1) : -1;
        return args.has(0) ? lock.tryLock(args.number(0), lease, MILLISECONDS) : lock.tryLock();
    }

    /** The answer is the token, or null in words. Redisson has it from version 3.19 on. */
    private Object fenced(RLock lock, String verb, Args args) throws Exception {
        Class<?> type = Class.forName("org.redisson.api.RFencedLock");
        if (verb.equals("lock")) {
            long lease = args.has(0) ? args.number(0) : -1;
            Class<?>[] types = Since.types(long.class, TimeUnit.class);
            return Since.call(type, lock, "lockAndGetToken", types, lease, MILLISECONDS);
        }
        if (verb.equals("trylock")) {
            long wait = args.has(0) ? args.number(0) : 0;
            long lease = args.has(1) ? args.number(1) : -1;
            Class<?>[] types = Since.types(long.class, long.class, TimeUnit.class);
            return String.valueOf(Since.call(type, lock, "tryLockAndGetToken", types, wait, lease, MILLISECONDS));
        }
        return carryOut(lock, verb, args);
    }
}
