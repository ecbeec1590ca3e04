package parklock.torture;

import java.util.SplittableRandom;

/** What {@code examples/torture/settings.rs} says to the workers of Rust. */
final class Names {
    /** In milliseconds. */
    static final long LEASE = 1_200;

    static final String FAIR = "in line";
    /** In whose line Redisson waits. */
    static final String LINE = "line{2}";
    static final String FENCED = "gate";
    static final String RW = "book";
    static final String TRIED = "tried";
    static final String[] SEMAPHORES = {"berths", "key"};
    static final int[] PERMITS = {3, 1};

    /** So many readers there never are. */
    static final int READERS = 1 << 20;

    private static final String[] LOCKS = {
        "hot", "warm", "busy{1}", "orders:42", "naïve", "a b", "50%", "stock", "quiet"
    };

    private Names() {}

    /** The first ones are asked for most. */
    static String any(SplittableRandom random) {
        return LOCKS[Math.min(random.nextInt(LOCKS.length), random.nextInt(LOCKS.length))];
    }
}
