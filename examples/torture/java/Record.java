package parklock.torture;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.redisson.client.RedisConnectionException;
import org.redisson.client.RedisLoadingException;
import org.redisson.client.RedisNoScriptException;
import org.redisson.client.RedisNodeNotFoundException;
import org.redisson.client.RedisOutOfMemoryException;
import org.redisson.client.RedisTimeoutException;

/** What a worker leaves behind, as {@code worker/record.rs} writes it: a line a fact, in one write. */
final class Record {
    private final FileOutputStream file;
    private final String prefix;
    private final AtomicLong next = new AtomicLong();

    Record(String path, String namespace) throws IOException {
        file = new FileOutputStream(path, true);
        prefix = namespace.isEmpty() ? "" : namespace + ":";
    }

    /** The name of a lock in Redis, and in the record. */
    String label(String lock) {
        return prefix + lock;
    }

    long nextId() {
        return next.getAndIncrement();
    }

    void line(Object... words) {
        String line = Arrays.stream(words).map(String::valueOf).collect(Collectors.joining("\t", "", "\n"));
        try {
            file.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    void reached(String path) {
        line("c", path);
    }

    /** What a call may fail with in this run: a server that is away, is not ready, or has no memory left. */
    void heard(String path, Exception error) {
        reached("java: " + path);
        Throwable last = error;
        for (Throwable cause = error; cause != null; cause = cause.getCause()) {
            if (cause instanceof RedisTimeoutException || cause instanceof RedisConnectionException
                    || cause instanceof RedisNodeNotFoundException || cause instanceof RedisOutOfMemoryException
                    || cause instanceof RedisLoadingException || cause instanceof RedisNoScriptException
                    || cause instanceof IOException) {
                return;
            }
            last = cause;
        }
        violation("unexpected: " + path + ": " + error + ", because of " + last);
    }

    void violation(String what) {
        line("v", what.replaceAll("[\t\n]", " "));
    }
}
