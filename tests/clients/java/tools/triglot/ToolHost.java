package triglot;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Apache Kafka's command line tools, run one after the other in one virtual machine.
 *
 * <p>{@code run tool=CLASS words=a,b,c} calls the tool's {@code main}; the answer has its exit code and what
 * it printed.
 */
public final class ToolHost {
    private ToolHost() {}

    /** A tool has ended itself. */
    private static final class Ended extends RuntimeException {
        private static final long serialVersionUID = 1L;
        final int code;

        Ended(int code) {
            this.code = code;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> {
            if (message != null) {
                System.err.println(message);
            }
            throw new Ended(code);
        });
        CommandLoop.run(arguments, ToolHost::run);
    }

    private static Object run(Command command) throws Exception {
        String[] words = command.text("words").split(",");
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        PrintStream outBefore = System.out;
        PrintStream errBefore = System.err;
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        int code = 0;
        try {
            Class.forName(command.text("tool"))
                .getMethod("main", String[].class)
                .invoke(null, (Object) words);
        } catch (InvocationTargetException error) {
            code = codeOf(error.getCause(), words);
        } finally {
            System.setOut(outBefore);
            System.setErr(errBefore);
        }
        Map<String, Object> ended = new LinkedHashMap<>();
        ended.put("code", code);
        ended.put("out", out.toString(StandardCharsets.UTF_8));
        ended.put("err", err.toString(StandardCharsets.UTF_8));
        return ended;
    }

    private static int codeOf(Throwable error, String[] words) {
        if (error instanceof Ended) {
            return ((Ended) error).code;
        }
        throw new IllegalStateException(Arrays.toString(words) + " ended with " + error, error);
    }
}
