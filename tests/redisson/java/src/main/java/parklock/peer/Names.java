package parklock.peer;

import java.lang.reflect.Proxy;
import org.redisson.config.Config;

/**
 * Redisson's {@code NameMapper} that puts a prefix before each name. Versions of Redisson have it in different packages,
 * and set it in different places.
 */
final class Names {
    private Names() {}

    static void prefix(Config config, Object servers, String prefix) throws ReflectiveOperationException {
        if (prefix.isEmpty()) {
            return;
        }
        Class<?> type;
        try {
            type = Class.forName("org.redisson.config.NameMapper");
        } catch (ClassNotFoundException old) {
            type = Class.forName("org.redisson.api.NameMapper");
        }
        Object mapper = Proxy.newProxyInstance(
                type.getClassLoader(), new Class<?>[] {type}, (self, method, arguments) -> switch (method.getName()) {
                    case "map" -> prefix + arguments[0];
                    case "unmap" -> ((String) arguments[0]).substring(prefix.length());
                    default -> method.invoke(prefix, arguments);
                });
        Object place = servers;
        try {
            config.getClass().getMethod("setNameMapper", type);
            place = config;
        } catch (NoSuchMethodException old) {
            // It is a setting of the servers.
        }
        place.getClass().getMethod("setNameMapper", type).invoke(place, mapper);
    }
}
