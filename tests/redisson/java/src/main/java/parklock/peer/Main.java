package parklock.peer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.redisson.Redisson;
import org.redisson.config.BaseMasterSlaveServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ReadMode;
import org.redisson.config.SingleServerConfig;

/**
 * Plays Redisson at the word of a test: {@code Main <url, as parklock takes it> <lockWatchdogTimeout in ms>
 * <fairLockWaitTimeout in ms> [prefix of all names]}. It first says {@code ready} and the version of Redisson.
 *
 * <p>One order a line on stdin, one answer a line on stdout. An order may begin with the thread that is to carry it
 * out, and its answer then does too: {@code @t1 lock orders} is answered by {@code @t1 ok 12}. Threads are made when
 * first named and live on, for a thread is what owns a lock; each does one order at a time. Without a name it is
 * always the same thread.
 *
 * <p>The answer is {@code ok <milliseconds it took> [result]}, or {@code error <class> <message>}. It ends when
 * stdin does, and leaves behind what it holds.
 */
public final class Main {
    private final Orders orders;
    private final PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private final Map<String, ExecutorService> threads = new HashMap<>();

    private Main(Orders orders) {
        this.orders = orders;
    }

    public static void main(String[] args) throws Exception {
        Config config = new Config();
        config.setLockWatchdogTimeout(Long.parseLong(args[1]));
        FairLocks fair = new FairLocks(config, Long.parseLong(args[2]));
        connectTo(config, args[0], args.length > 3 ? args[3] : "");
        Main main = new Main(new Orders(Redisson.create(config), fair));
        main.say("ready " + Redisson.class.getPackage().getImplementationVersion());
        main.obey(new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)));
        System.exit(0);
    }

    /** Connections are made when they are needed: it starts sooner. Nothing is read from a replica, which may be behind. */
    private static void connectTo(Config config, String url, String prefix) throws ReflectiveOperationException {
        String[] parts = url.split("://|/");
        String[] servers = Arrays.stream(parts[1].split(",")).map(host -> "redis://" + host).toArray(String[]::new);
        BaseMasterSlaveServersConfig<?> several =
                switch (parts[0]) {
                    case "redis-cluster" -> config.useClusterServers().addNodeAddress(servers);
                    case "redis-sentinel" -> config.useSentinelServers()
                            .setMasterName(parts[2])
                            .addSentinelAddress(servers);
                    default -> null;
                };
        if (several == null) {
            SingleServerConfig single = config.useSingleServer().setAddress(url).setConnectionMinimumIdleSize(1);
            Names.prefix(config, single, prefix);
            return;
        }
        several.setReadMode(ReadMode.MASTER)
                .setMasterConnectionMinimumIdleSize(1)
                .setSlaveConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionMinimumIdleSize(1);
        Names.prefix(config, several, prefix);
    }

    private void obey(BufferedReader lines) throws IOException {
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            boolean named = line.startsWith("@");
            int end = named ? line.indexOf(' ') + 1 : 0;
            String thread = line.substring(0, end);
            String order = line.substring(end);
            thread(thread).execute(() -> say(thread + answer(order)));
        }
    }

    private ExecutorService thread(String name) {
        return threads.computeIfAbsent(name, any -> Executors.newSingleThreadExecutor());
    }

    private String answer(String order) {
        long began = System.nanoTime();
        try {
            Object result = orders.carryOut(order.split(" "));
            long took = (System.nanoTime() - began) / 1_000_000;
            return result == null ? "ok " + took : "ok " + took + " " + result;
        } catch (Exception error) {
            return "error " + error.getClass().getSimpleName() + " " + oneLine(error.getMessage());
        }
    }

    private static String oneLine(String text) {
        return text == null ? "" : text.replaceAll("\\s+", " ");
    }

    private void say(String line) {
        synchronized (answers) {
            answers.println(line);
        }
    }
}
