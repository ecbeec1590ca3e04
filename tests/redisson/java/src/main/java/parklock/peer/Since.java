package parklock.peer;

import java.lang.reflect.InvocationTargetException;

/**
 * Methods that only some versions of Redisson have. They are looked up when a test asks for them, so that this
 * program compiles with each version. A version without one answers with {@link NoSuchMethodException}.
 */
final class Since {
    private Since() {}

    /** The names of the parameters' types are those of the interface. */
    static Object call(Class<?> type, Object object, String method, Class<?>[] parameters, Object... arguments)
            throws Exception {
        try {
            return type.getMethod(method, parameters).invoke(object, arguments);
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Exception cause) {
                throw cause;
            }
            throw thrown;
        }
    }

    static Class<?>[] types(Class<?>... parameters) {
        return parameters;
    }
}
