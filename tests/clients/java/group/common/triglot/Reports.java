package triglot;

import java.io.PrintStream;
import java.util.LinkedHashMap;
import java.util.Map;

/** Events, as lines of JSON among the answers. */
final class Reports {
    private final PrintStream stream;

    Reports(PrintStream stream) {
        this.stream = stream;
    }

    /** The time of an event is in ns of the clock that all programs of a machine share. */
    void event(String member, String name, Map<String, ?> facts) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("at", System.nanoTime());
        event.put("member", member);
        event.put("event", name);
        event.putAll(facts);
        stream.println(Json.print(event));
        stream.flush();
    }
}
