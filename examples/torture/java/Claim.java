package parklock.torture;

/**
 * One hold on the record. Redisson tells a holder neither that its lease was renewed nor that it was lost. So this one asks Redis
 * for the TTL of its own hold, again and again, and believes in it for as long as an answer said, counted from before the
 * question was sent. What the watchdog does besides makes a hold longer, and nobody relies on it.
 */
final class Claim {
    /** How often it asks while it works, in milliseconds. */
    private static final long LOOK = 60;

    private enum Heard { HAS_IT, LOST, NOTHING }

    private final Record record;
    private final Held held;
    private final long id;
    /** Whether it stands in the record. Otherwise nobody has believed in it. */
    private boolean noted;
    private boolean open;
    private long deadline;
    private long last;

    private Claim(Record record, Held held, long id) {
        this.record = record;
        this.held = held;
        this.id = id;
    }

    /** To be called right after the acquire returned. */
    static Claim begin(Record record, Held held, Call call, long token) {
        Claim claim = new Claim(record, held, call.id());
        long acquired = System.nanoTime();
        if (claim.ask() != Heard.HAS_IT) {
            record.reached("java: over before it was looked at");
            call.answered("unknown");
            return claim;
        }
        claim.noted = true;
        claim.open = true;
        record.line("o", call.id(), record.label(call.lock()), call.owner(), token, call.called(), acquired, acquired,
                claim.last, claim.deadline, call.id(), call.part(), call.of());
        return claim;
    }

    /** Works for so many milliseconds, or until it is over. */
    void work(long millis) throws InterruptedException {
        long until = System.nanoTime() + millis * 1_000_000;
        for (long left = millis; open && left > 0; left = (until - System.nanoTime()) / 1_000_000) {
            Thread.sleep(Math.min(left, LOOK));
            if (left > LOOK) {
                look();
            }
        }
    }

    private void look() {
        long before = deadline;
        Heard heard = ask();
        if (heard == Heard.LOST) {
            end(false);
        } else if (deadline > before) {
            record.line("d", id, deadline, last);
        }
    }

    /** Of what is left it takes off a hundredth and two milliseconds, since two clocks count it. */
    private Heard ask() {
        long sent = System.nanoTime();
        try {
            long remaining = held.remaining();
            if (remaining <= 0) {
                return Heard.LOST;
            }
            last = Math.max(last, sent);
            deadline = Math.max(deadline, sent + (remaining - remaining / 100 - 2) * 1_000_000);
            return Heard.HAS_IT;
        } catch (RuntimeException error) {
            record.heard("asked in vain", error);
            return Heard.NOTHING;
        }
    }

    /** Ends the claim, and only then gives it back. */
    void giveBack() {
        boolean wasValid = open && end(true);
        String outcome;
        try {
            outcome = held.release() ? "g" : "u";
        } catch (IllegalMonitorStateException lost) {
            outcome = "u";
        } catch (RuntimeException unknown) {
            record.heard("nobody knows of a release", unknown);
            return;
        }
        // That what was over is lost is no news.
        if (noted && (wasValid || outcome.equals("g"))) {
            record.line(outcome, id, System.nanoTime());
        }
    }

    /** Whether it was valid to the end. */
    private boolean end(boolean believed) {
        open = false;
        long now = System.nanoTime();
        boolean valid = believed && now < deadline;
        record.line("x", id, Math.min(now, deadline), valid ? "valid" : "lost", now);
        return valid;
    }
}
