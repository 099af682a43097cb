import java.io.File;
import java.lang.reflect.Array;
import java.lang.reflect.Method;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.Arrays;
import java.util.Collection;
import java.util.Optional;

/**
 * Prints what brokers of each release advertise, one line for each API: release, key, name, lowest
 * and highest version. Arguments are RELEASE=LISTENER=JAR, with a jar of kafka-clients; LISTENER is
 * the kind of listener that clients of that release connect to, where the jar tells kinds apart.
 */
public final class Ranges {
    private static final String PROTOCOL = "org.apache.kafka.common.protocol.";

    public static void main(String[] arguments) throws Exception {
        for (String argument : arguments) {
            String[] parts = argument.split("=", 3);
            URL[] jar = {new File(parts[2]).toURI().toURL()};
            try (URLClassLoader loader =
                    new URLClassLoader(jar, ClassLoader.getSystemClassLoader())) {
                Class<?> keys = loader.loadClass(PROTOCOL + "ApiKeys");
                for (Object key : served(keys, loader, parts[1])) {
                    print(parts[0], key, range(key, loader, parts[1]));
                }
            }
        }
    }

    private static void print(String release, Object key, int[] range) throws Exception {
        if (range != null && range[0] <= range[1]) {
            Object id = key.getClass().getField("id").get(key);
            Object name = key.getClass().getField("name").get(key);
            System.out.println(release + " " + id + " " + name + " " + range[0] + " " + range[1]);
        }
    }

    private static Collection<?> served(Class<?> keys, ClassLoader loader, String listener)
            throws Exception {
        Method ofListener = method(keys, "apisForListener", 1);
        if (ofListener != null) {
            return (Collection<?>) ofListener.invoke(null, kind(loader, listener));
        }
        Method enabled = method(keys, "enabledApis", 0);
        return enabled != null
                ? (Collection<?>) enabled.invoke(null)
                : Arrays.asList(keys.getEnumConstants());
    }

    private static int[] range(Object key, ClassLoader loader, String listener) throws Exception {
        Method answered = method(key.getClass(), "toApiVersionForApiResponse", 2);
        if (answered != null) {
            return of((Optional<?>) answered.invoke(key, false, kind(loader, listener)));
        }
        Method stable = method(key.getClass(), "toApiVersion", 1);
        if (stable != null) {
            return of((Optional<?>) stable.invoke(key, false));
        }
        Method oldest = method(key.getClass(), "oldestVersion", 0);
        if (oldest != null) {
            Method latest = method(key.getClass(), "latestVersion", 0);
            return new int[] {number(oldest.invoke(key)), number(latest.invoke(key))};
        }
        return ofSchemas(key, loader);
    }

    /** Before 0.11: arrays of schemas by key and version, where the oldest may be null. */
    private static int[] ofSchemas(Object key, ClassLoader loader) throws Exception {
        Class<?> protocol = loader.loadClass(PROTOCOL + "Protocol");
        int id = number(key.getClass().getField("id").get(key));
        Object schemas = Array.get(protocol.getField("REQUESTS").get(null), id);
        int count = schemas == null ? 0 : Array.getLength(schemas);
        int lowest = 0;
        while (lowest < count && Array.get(schemas, lowest) == null) {
            lowest++;
        }
        return new int[] {lowest, count - 1};
    }

    private static int[] of(Optional<?> advertised) throws Exception {
        if (!advertised.isPresent()) {
            return null;
        }
        Object found = advertised.get();
        Method lowest = method(found.getClass(), "minVersion", 0);
        Method highest = method(found.getClass(), "maxVersion", 0);
        return new int[] {number(lowest.invoke(found)), number(highest.invoke(found))};
    }

    private static Object kind(ClassLoader loader, String listener) throws Exception {
        Class<?> kinds =
                loader.loadClass("org.apache.kafka.common.message.ApiMessageType$ListenerType");
        return kinds.getMethod("valueOf", String.class).invoke(null, listener);
    }

    private static Method method(Class<?> of, String name, int parameters) {
        for (Method one : of.getMethods()) {
            if (one.getName().equals(name) && one.getParameterCount() == parameters) {
                return one;
            }
        }
        return null;
    }

    private static int number(Object value) {
        return ((Number) value).intValue();
    }
}
