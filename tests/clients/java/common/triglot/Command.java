package triglot;

import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/** A command's name and its {@code key=value} words. */
final class Command {
    /** Time for any one call of the client; past it the call fails instead of waiting on. */
    static final int TIMEOUT_MS = 30_000;

    final String name;
    private final Map<String, String> words;

    private Command(String name, Map<String, String> words) {
        this.name = name;
        this.words = words;
    }

    static Command parse(String line) {
        String[] parts = line.trim().split(" ");
        Map<String, String> words = new LinkedHashMap<>();
        for (int i = 1; i < parts.length; i++) {
            String[] pair = parts[i].split("=", 2);
            words.put(pair[0], pair[1]);
        }
        return new Command(parts[0], words);
    }

    String text(String key) {
        String value = words.get(key);
        if (value == null) {
            throw new IllegalArgumentException(name + " wants " + key + "=");
        }
        return value;
    }

    /** Whether a partition is to be read: all are, if none are named. */
    boolean wants(int partition) {
        String partitions = words.get("partitions");
        return partitions == null
            || List.of(partitions.split(",")).contains(String.valueOf(partition));
    }

    int number(String key) {
        return Integer.parseInt(text(key));
    }

    int number(String key, int otherwise) {
        return words.containsKey(key) ? number(key) : otherwise;
    }

    /** The partitions to read, and for each the offset at which it ends. */
    Map<Integer, Long> ends() {
        String[] partitions = text("partitions").split(",");
        String[] ends = text("ends").split(",");
        Map<Integer, Long> found = new LinkedHashMap<>();
        for (int i = 0; i < partitions.length; i++) {
            found.put(Integer.valueOf(partitions[i]), Long.valueOf(ends[i]));
        }
        return found;
    }

    /** The words whose key begins with a prefix, without it. */
    Map<String, String> under(String prefix) {
        Map<String, String> found = new LinkedHashMap<>();
        words.forEach((key, value) -> {
            if (key.startsWith(prefix)) {
                found.put(key.substring(prefix.length()), value);
            }
        });
        return found;
    }

    /** Client properties: the address, and every {@code client.} word. */
    Properties properties() {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", text("bootstrap"));
        properties.put("default.api.timeout.ms", String.valueOf(TIMEOUT_MS));
        under("client.").forEach(properties::put);
        return properties;
    }
}
