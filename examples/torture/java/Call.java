package parklock.torture;

/** An acquire that has been called, of so much of how much. */
record Call(Record record, long id, String lock, String owner, long called, int part, int of) {
    static Call begin(Record record, String worker, String lock, int part, int of) {
        long id = record.nextId();
        // The judge knows by this name whose it is: how soon Redisson wakes its threads is not our affair.
        String owner = worker + "/java-" + id;
        long called = System.nanoTime();
        // A thread may be refused for what another one is about to give back: to the judge, each is a client.
        record.line("a", id, id, called, record.label(lock), "acquire", part + "/" + of + " " + owner);
        return new Call(record, id, lock, owner, called, part, of);
    }

    /** Unless it was granted. */
    void answered(String outcome) {
        record.line("r", id, System.nanoTime(), outcome);
    }
}
