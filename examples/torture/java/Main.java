package parklock.torture;

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.ConstantDelay;

/**
 * A worker of the torture run that is Redisson in a JVM. It takes the same arguments as a worker of Rust, and leaves the same
 * record: see {@code examples/torture/worker/}. It ends in order when its stdin does.
 */
public final class Main {
    private static final int TASKS = 6;

    /** For this long a task may take to come to its end: longer than any wait for a lock of the run. */
    private static final long PATIENCE = 30_000;

    /** For so long, in nanoseconds, a thread may sleep too long before that is noted. */
    private static final long LATE = 60_000_000;

    private static volatile boolean stopped;

    private Main() {}

    public static void main(String[] args) throws Exception {
        Map<String, String> options = new HashMap<>();
        for (int at = 0; at + 1 < args.length; at += 2) {
            options.put(args[at], args[at + 1]);
        }
        Record record = new Record(options.get("--record"), options.getOrDefault("--namespace", ""));
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> record.violation("a thread of Java failed: " + error));
        checkClock(record, Long.parseLong(options.get("--started")));
        daemon(() -> watchOurselves(record));
        daemon(Main::listen);
        RedissonClient redisson = connect(options.get("--url"), record);
        if (redisson != null) {
            SplittableRandom random = new SplittableRandom(Long.parseLong(options.get("--seed")));
            work(redisson, record, options.get("--worker"), random);
            redisson.shutdown();
        }
        record.reached("worker ended in order");
        System.exit(0);
    }

    /** {@code nanoTime} is CLOCK_MONOTONIC on Linux, as the times of all other processes are. Nothing promises that. */
    private static void checkClock(Record record, long started) {
        long since = System.nanoTime() - started;
        if (since < 0 || since > Duration.ofDays(7).toNanos()) {
            record.violation("Java has a clock of its own");
        }
    }

    private static RedissonClient connect(String url, Record record) throws InterruptedException {
        Config config = new Config();
        config.setLockWatchdogTimeout(Names.LEASE);
        // A thread that died in the line of a fair lock keeps the others waiting for this long.
        config.setFairLockWaitTimeout(2 * Names.LEASE);
        config.setThreads(4);
        config.setNettyThreads(4);
        config.useSingleServer()
                .setAddress(url)
                .setTimeout(500)
                .setConnectTimeout(500)
                .setRetryAttempts(0)
                .setReconnectionDelay(new ConstantDelay(Duration.ofMillis(100)))
                .setPingConnectionInterval(1_000)
                .setConnectionMinimumIdleSize(2)
                .setConnectionPoolSize(16);
        while (!stopped) {
            try {
                return Redisson.create(config);
            } catch (RuntimeException error) {
                record.reached("java: could not connect");
                Thread.sleep(100);
            }
        }
        return null;
    }

    private static void work(RedissonClient redisson, Record record, String worker, SplittableRandom random)
            throws InterruptedException {
        List<Thread> tasks = new ArrayList<>();
        for (int at = 0; at < TASKS; at++) {
            SplittableRandom own = random.split();
            tasks.add(daemon(() -> endless(redisson, record, worker, own)));
        }
        while (!stopped) {
            Thread.sleep(20);
        }
        long until = System.nanoTime() + PATIENCE * 1_000_000;
        for (Thread task : tasks) {
            task.join(Math.max(1, (until - System.nanoTime()) / 1_000_000));
            if (task.isAlive()) {
                record.violation("a task of Java never came to an end");
            }
        }
    }

    /**
     * One step after the other, each a thread. To Redisson a thread is an owner: one whose acquire failed may have the lock
     * nevertheless, and its next acquire would count it twice.
     */
    private static void endless(RedissonClient redisson, Record record, String worker, SplittableRandom random) {
        while (!stopped) {
            SplittableRandom own = random.split();
            Thread step = daemon(() -> new Step(redisson, record, worker, own).take());
            try {
                step.join();
                Thread.sleep(own.nextInt(40));
            } catch (InterruptedException never) {
                return;
            }
        }
    }

    private static void listen() {
        try {
            System.in.read();
        } catch (IOException closed) {
            // As good as its end.
        }
        stopped = true;
    }

    /** Notes each time for which this process got no processor. */
    private static void watchOurselves(Record record) {
        try {
            while (true) {
                long before = System.nanoTime();
                Thread.sleep(5);
                long now = System.nanoTime();
                if (now - before > LATE) {
                    record.line("l", before, now);
                }
            }
        } catch (InterruptedException never) {
            // It ends with the process.
        }
    }

    private static Thread daemon(Runnable work) {
        Thread thread = new Thread(work);
        thread.setDaemon(true);
        thread.start();
        return thread;
    }
}
