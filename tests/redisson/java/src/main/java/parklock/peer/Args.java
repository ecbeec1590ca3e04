package parklock.peer;

/** The words after the order: a name first, then mostly numbers. */
record Args(String[] words) {
    String name() {
        return word(1);
    }

    /** The words after the name are counted from 0. */
    boolean has(int index) {
        return index + 2 < words.length;
    }

    String text(int index) {
        return word(index + 2);
    }

    long number(int index) {
        return Long.parseLong(text(index));
    }

    int small(int index) {
        return Integer.parseInt(text(index));
    }

    /** One, unless the test says otherwise. */
    int count() {
        return has(0) ? small(0) : 1;
    }

    private String word(int at) {
        if (at >= words.length) {
            throw new IllegalArgumentException("too few words: " + String.join(" ", words));
        }
        return words[at];
    }
}
