package parklock.compare;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.BiFunction;
import org.HdrHistogram.Histogram;
import org.HdrHistogram.HistogramIterationValue;

/** Each thread locks and unlocks its name until the time is over, and notes how long each lock took. */
final class Turns {
    /** How long a thread may still wait for the lock when the time is over. */
    private static final long GRACE_NS = TimeUnit.SECONDS.toNanos(20);

    private final List<Turnstile> locks = new ArrayList<>();
    private final JsonNode check;

    Turns(JsonNode order, BiFunction<Integer, String, Turnstile> lockOf) {
        order.get("names").forEach(name -> locks.add(lockOf.apply(locks.size(), name.asText())));
        check = order.get("check");
    }

    ObjectNode run(long millis) throws Exception {
        Section section = Section.of(check);
        long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
        List<Turner> turners = new ArrayList<>();
        for (Turnstile lock : locks) {
            Turner turner = new Turner(lock, section, end);
            turners.add(turner);
            turner.start();
        }
        for (Turner turner : turners) {
            long left = TimeUnit.NANOSECONDS.toMillis(end + GRACE_NS - System.nanoTime());
            turner.join(Math.max(left, 1));
            turner.interrupt();
            turner.join();
        }
        return total(turners, section);
    }

    private static ObjectNode total(List<Turner> turners, Section section) throws Exception {
        ObjectNode total = Main.reply("turned");
        ArrayNode turns = total.putArray("turns");
        Histogram waits = new Histogram(2);
        long entered = 0;
        long unfinished = 0;
        for (Turner turner : turners) {
            if (turner.failure != null) {
                throw turner.failure;
            }
            turns.add(turner.inTime);
            waits.add(turner.waits);
            entered += turner.entered;
            unfinished += turner.unserved ? 1 : 0;
        }
        ArrayNode bars = total.putArray("waits");
        for (HistogramIterationValue bar : waits.recordedValues()) {
            bars.addArray().add(bar.getValueIteratedTo()).add(bar.getCountAddedInThisIterationStep());
        }
        return total.put("entered", entered).put("unfinished", unfinished).put("lost", section.lost(entered));
    }

    /** One thread. */
    private static final class Turner extends Thread {
        private final Turnstile lock;
        private final Section section;
        private final long end;
        private final Histogram waits = new Histogram(2);
        private long inTime;
        private long entered;
        private boolean unserved;
        private Exception failure;

        Turner(Turnstile lock, Section section, long end) {
            this.lock = lock;
            this.section = section;
            this.end = end;
        }

        @Override
        public void run() {
            long asked = System.nanoTime();
            try {
                while (asked < end) {
                    lock.take();
                    waits.recordValue(System.nanoTime() - asked);
                    section.pass(entered);
                    lock.give();
                    asked = System.nanoTime();
                    entered++;
                    inTime += asked <= end ? 1 : 0;
                }
            } catch (InterruptedException late) {
                waits.recordValue(System.nanoTime() - asked);
                unserved = true;
            } catch (Exception error) {
                failure = error;
            }
        }
    }
}
