package triglot;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;

/**
 * Runs kafka.tools.DumpLogSegments several times in one JVM. The arguments of one run end with a
 * comma of their own.
 */
public final class DumpFiles {
    private static final String END_OF_RUN = ",";

    private DumpFiles() {}

    public static void main(String[] words) throws ReflectiveOperationException {
        // By name, because Kafka's core is compiled from another language.
        Method main = Class.forName("kafka.tools.DumpLogSegments").getMethod("main", String[].class);
        List<String> run = new ArrayList<>();
        for (String word : words) {
            if (!word.equals(END_OF_RUN)) {
                run.add(word);
                continue;
            }
            main.invoke(null, (Object) run.toArray(new String[0]));
            run.clear();
        }
    }
}
