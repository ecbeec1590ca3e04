package parklock.torture;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.SplittableRandom;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/** One thing that a thread does: it asks for something of any kind, works, and gives it back. */
final class Step {
    private final RedissonClient redisson;
    private final Record record;
    private final String worker;
    private final SplittableRandom random;

    Step(RedissonClient redisson, Record record, String worker, SplittableRandom random) {
        this.redisson = redisson;
        this.record = record;
        this.worker = worker;
        this.random = random;
    }

    void take() {
        int kind = random.nextInt(100);
        if (kind < 45) {
            String name = Names.any(random);
            hold("lock", name, redisson.getLock(record.label(name)), manner());
        } else if (kind < 55) {
            hold("lock", Names.TRIED, redisson.getLock(record.label(Names.TRIED)), Manner.TRY);
        } else if (kind < 65) {
            // A thread that dies in the line keeps everybody waiting for minutes.
            boolean waits = random.nextBoolean();
            String name = waits ? Names.LINE : Names.FAIR;
            hold("fair lock", name, redisson.getFairLock(record.label(name)), waits ? manner() : Manner.TRY);
        } else if (kind < 75) {
            // `tryLockAndGetToken()` waits, too.
            hold("fenced lock", Names.FENCED, redisson.getFencedLock(record.label(Names.FENCED)), Manner.WAIT);
        } else if (kind < 90) {
            readOrWrite(redisson.getReadWriteLock(record.label(Names.RW)), manner());
        } else {
            int which = random.nextInt(Names.SEMAPHORES.length);
            String name = Names.SEMAPHORES[which];
            int of = Names.PERMITS[which];
            Permit permit = new Permit(redisson.getPermitExpirableSemaphore(record.label(name)), of);
            hold("permit", name, 1, of, Manner.TRY, permit);
        }
    }

    private void hold(String kind, String name, RLock lock, Manner manner) {
        hold(kind, name, 1, 1, manner, new Lock(lock, manner));
    }

    private void readOrWrite(RReadWriteLock lock, Manner manner) {
        if (random.nextInt(3) == 0) {
            Lock writing = new Lock(lock.writeLock(), manner);
            hold("write lock", Names.RW, Names.READERS, Names.READERS, manner, writing);
        } else {
            hold("read lock", Names.RW, 1, Names.READERS, manner, new Reading(lock.readLock(), manner));
        }
    }

    private void hold(String kind, String name, int part, int of, Manner manner, Held held) {
        Call call = Call.begin(record, worker, name, part, of);
        Claim claim;
        try {
            Long token = held.acquire();
            if (token == null) {
                // A `tryLock` with a limit says "no" also if it has heard nothing, and that of a fair lock if the dead are in line.
                call.answered(manner == Manner.TRY && !kind.equals("fair lock") ? "none" : "unknown");
                return;
            }
            claim = Claim.begin(record, held, call, token);
            record.reached("java: " + kind);
        } catch (Exception error) {
            call.answered("unknown");
            record.heard(error.getClass().getSimpleName(), error);
            return;
        }
        try {
            claim.work(length());
        } catch (InterruptedException never) {
            return;
        }
        claim.giveBack();
    }

    /** Mostly short, sometimes longer than a lease. */
    private long length() {
        int kind = random.nextInt(100);
        return kind < 72 ? random.nextInt(3) : kind < 90 ? random.nextInt(3, 25)
                : kind < 98 ? random.nextInt(50, 200) : random.nextInt(300, 2_000);
    }

    private Manner manner() {
        int kind = random.nextInt(100);
        return kind < 60 ? Manner.WAIT : kind < 80 ? Manner.TRY : Manner.TRY_FOR;
    }

    private enum Manner { WAIT, TRY, TRY_FOR }

    private class Lock implements Held {
        private final RLock lock;
        private final Manner manner;

        Lock(RLock lock, Manner manner) {
            this.lock = lock;
            this.manner = manner;
        }

        @Override
        public Long acquire() throws Exception {
            // One in five has a lease of its own, and no watchdog.
            long lease = random.nextInt(5) == 0 ? random.nextLong(60, Names.LEASE) : -1;
            if (lock instanceof RFencedLock fenced) {
                return fenced.lockAndGetToken();
            }
            boolean granted = switch (manner) {
                case TRY -> lock.tryLock();
                case TRY_FOR -> lock.tryLock(random.nextInt(1, 400), lease, MILLISECONDS);
                case WAIT -> {
                    lock.lock(lease, MILLISECONDS);
                    yield true;
                }
            };
            return granted ? 0L : null;
        }

        /** The TTL may be that of the next holder, unless this thread has it afterwards, too. */
        @Override
        public long remaining() {
            long remaining = lock.remainTimeToLive();
            return lock.isHeldByCurrentThread() ? remaining : 0;
        }

        @Override
        public boolean release() {
            lock.unlock();
            return true;
        }
    }

    /** Each reader has a lease of its own, in a key of its own. */
    private final class Reading extends Lock {
        Reading(RLock lock, Manner manner) {
            super(lock, manner);
        }

        @Override
        public long remaining() {
            String key = "{" + record.label(Names.RW) + "}:" + redisson.getId() + ":" + Thread.currentThread().getId()
                    + ":rwlock_timeout:1";
            long own = redisson.getBucket(key, StringCodec.INSTANCE).remainTimeToLive();
            return Math.min(own, super.remaining());
        }
    }

    private final class Permit implements Held {
        private final RPermitExpirableSemaphore semaphore;
        private final int of;
        private String id;
        private long over;

        Permit(RPermitExpirableSemaphore semaphore, int of) {
            this.semaphore = semaphore;
            this.of = of;
        }

        @Override
        public Long acquire() throws Exception {
            semaphore.trySetPermits(of);
            over = System.nanoTime() + Names.LEASE * 1_000_000;
            id = semaphore.tryAcquire(0, Names.LEASE, MILLISECONDS);
            return id == null ? null : 0L;
        }

        /** Nobody renews it. */
        @Override
        public long remaining() {
            return (over - System.nanoTime()) / 1_000_000;
        }

        @Override
        public boolean release() {
            return semaphore.tryRelease(id);
        }
    }
}
