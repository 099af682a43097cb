package triglot;

import java.util.Map;
import java.util.StringJoiner;

/** Maps, iterables, numbers, booleans, strings and null, as one line of JSON. */
final class Json {
    private Json() {}

    static String print(Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            return String.valueOf(value);
        }
        if (value instanceof Map) {
            StringJoiner members = new StringJoiner(", ", "{", "}");
            ((Map<?, ?>) value).forEach((key, member) ->
                members.add(quote(String.valueOf(key)) + ": " + print(member)));
            return members.toString();
        }
        if (value instanceof Iterable) {
            StringJoiner items = new StringJoiner(", ", "[", "]");
            ((Iterable<?>) value).forEach(item -> items.add(print(item)));
            return items.toString();
        }
        return quote(String.valueOf(value));
    }

    private static String quote(String text) {
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
