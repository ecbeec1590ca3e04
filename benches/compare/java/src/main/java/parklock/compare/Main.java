package parklock.compare;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/** Plays Redisson at the word of the main process: one JSON object a line, orders in, replies out. */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
    private final Map<String, RedissonClient> clients = new HashMap<>();

    public static void main(String[] args) throws Exception {
        Main main = new Main();
        main.say(main.hello());
        for (JsonNode order = main.next(); order != null; order = main.next()) {
            try {
                main.job(order);
            } catch (Exception error) {
                main.say(reply("failed").put("why", error.toString()));
            }
        }
        System.exit(0);
    }

    static ObjectNode reply(String kind) {
        return JSON.createObjectNode().put("reply", kind);
    }

    private ObjectNode hello() {
        ObjectNode hello = reply("hello");
        hello.putObject("versions")
                .put("jvm", System.getProperty("java.vm.name") + " " + System.getProperty("java.vm.version"))
                .put("redisson", Redisson.class.getPackage().getImplementationVersion());
        return hello;
    }

    private void job(JsonNode order) throws Exception {
        switch (order.get("order").asText()) {
            case "turns" -> turns(order);
            case "relay" -> relay(order);
            default -> throw new IllegalArgumentException("not played here: " + order);
        }
    }

    private void turns(JsonNode order) throws Exception {
        boolean ownClients = order.get("own_clients").asBoolean();
        Turns turns = new Turns(order, (task, name) -> lock(order.get("setup"), ownClients ? task : 0, name));
        turns.run(order.get("warm_ms").asLong());
        say(reply("ready"));
        expect("go");
        say(turns.run(order.get("timed_ms").asLong()));
    }

    /** The times are System.nanoTime: on Linux the clock that the main process reads, too. */
    private void relay(JsonNode order) throws Exception {
        Turnstile lock = lock(order.get("setup"), 0, order.get("name").asText());
        say(reply("ready"));
        for (JsonNode word = next(); word != null; word = next()) {
            switch (word.get("order").asText()) {
                case "lock" -> {
                    lock.take();
                    say(reply("locked").put("at_ns", System.nanoTime()));
                }
                case "unlock" -> {
                    long called = System.nanoTime();
                    lock.give();
                    say(reply("unlocked").put("called_ns", called));
                }
                default -> {
                    say(reply("stopped").put("valid", 0));
                    return;
                }
            }
        }
    }

    /** Clients stay connected from job to job, so that they stay warm. */
    private Turnstile lock(JsonNode setup, int number, String name) {
        String url = setup.get("url").asText();
        RedissonClient client = clients.computeIfAbsent(number + " " + url, first -> {
            Config config = new Config();
            config.useSingleServer().setAddress(url);
            return Redisson.create(config);
        });
        return Turnstile.of(client, setup.get("kind"), name);
    }

    private void expect(String word) throws IOException {
        JsonNode order = next();
        if (order == null || !order.get("order").asText().equals(word)) {
            throw new IllegalStateException("expected the word to " + word + ", not " + order);
        }
    }

    private JsonNode next() throws IOException {
        String line = orders.readLine();
        return line == null ? null : JSON.readTree(line);
    }

    private void say(ObjectNode reply) throws IOException {
        System.out.println(JSON.writeValueAsString(reply));
        System.out.flush();
    }
}
