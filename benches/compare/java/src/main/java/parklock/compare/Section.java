package parklock.compare;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** The critical section: a read, a plain write, and a count of the updates that got lost between them. */
abstract class Section {
    /** Each so many turns of a thread, it lets others run between read and write. */
    private static final long OPENED_EACH = 64;

    static Section of(JsonNode check) throws IOException {
        return switch (check.get("kind").asText()) {
            case "memory" -> new InMemory();
            case "file" -> new InFile(Path.of(check.get("path").asText()));
            default -> new Open();
        };
    }

    /** Adds one, in two steps that nothing but the lock holds together. */
    void pass(long turn) throws IOException {
        long seen = read();
        if (turn % OPENED_EACH == 0) {
            Thread.yield();
        }
        write(seen + 1);
    }

    /** How many updates a number in memory lacks. A file is judged by who shares it out. */
    long lost(long entered) throws IOException {
        return 0;
    }

    abstract long read() throws IOException;

    abstract void write(long value) throws IOException;

    /** Nobody contends. */
    private static final class Open extends Section {
        @Override
        void pass(long turn) {}

        @Override
        long read() {
            return 0;
        }

        @Override
        void write(long value) {}
    }

    private static final class InMemory extends Section {
        private volatile long number;

        @Override
        long read() {
            return number;
        }

        @Override
        void write(long value) {
            number = value;
        }

        @Override
        long lost(long entered) {
            return Math.max(entered - number, 0);
        }
    }

    private static final class InFile extends Section {
        private final FileChannel file;

        InFile(Path path) throws IOException {
            file = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE);
        }

        @Override
        long read() throws IOException {
            ByteBuffer bytes = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
            file.read(bytes, 0);
            return bytes.getLong(0);
        }

        @Override
        void write(long value) throws IOException {
            ByteBuffer bytes = ByteBuffer.allocate(Long.BYTES).order(ByteOrder.LITTLE_ENDIAN);
            file.write(bytes.putLong(0, value), 0);
        }
    }
}
