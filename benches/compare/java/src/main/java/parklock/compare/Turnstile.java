package parklock.compare;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.concurrent.locks.Lock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** One of Redisson's locks, whatever its kind: taken, and given back. */
interface Turnstile {
    void take() throws InterruptedException;

    void give();

    /** Of the kind that the order names: a word, or so many permits. */
    static Turnstile of(RedissonClient client, JsonNode kind, String name) {
        if (kind.has("permits")) {
            return of(client.getSemaphore(name), kind.get("permits").asInt());
        }
        return switch (kind.asText()) {
            case "lock" -> of(client.getLock(name));
            case "fair" -> of(client.getFairLock(name));
            case "read" -> of(client.getReadWriteLock(name).readLock());
            case "write" -> of(client.getReadWriteLock(name).writeLock());
            default -> throw new IllegalArgumentException("no such kind: " + kind);
        };
    }

    private static Turnstile of(Lock lock) {
        return new Turnstile() {
            @Override
            public void take() throws InterruptedException {
                lock.lockInterruptibly();
            }

            @Override
            public void give() {
                lock.unlock();
            }
        };
    }

    /** Whoever comes first says how many there are. */
    private static Turnstile of(RSemaphore semaphore, int permits) {
        semaphore.trySetPermits(permits);
        return new Turnstile() {
            @Override
            public void take() throws InterruptedException {
                semaphore.acquire();
            }

            @Override
            public void give() {
                semaphore.release();
            }
        };
    }
}
