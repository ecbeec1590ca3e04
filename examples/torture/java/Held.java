package parklock.torture;

/** Something that Redisson may be asked for, be asked about, and be given back. */
interface Held {
    /** Null if it was not granted. Otherwise its token, which is 0 if it has none. */
    Long acquire() throws Exception;

    /** For how many milliseconds Redis keeps it, if nobody renews it; at most 0 if Redis has it no more. */
    long remaining();

    /** Whether Redis had it. Redisson throws an {@code IllegalMonitorStateException} if it had not. */
    boolean release();
}
