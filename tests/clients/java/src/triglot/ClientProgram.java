package triglot;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.protocol.Errors;

/**
 * Makes the Java client do what a test says.
 *
 * <p>A command is a line of words, {@code name key=value ...}; its answer is one line of JSON,
 * {@code {"ok": ...}} or {@code {"error": "...", "code": n}}. One command may be given as arguments; without
 * arguments commands are read from standard input until it ends, so that a test run pays for one
 * start of the virtual machine only.
 */
public final class ClientProgram {
    private ClientProgram() {}

    public static void main(String[] arguments) throws Exception {
        // Libraries may print; answers must not be mixed with that.
        PrintStream answers = System.out;
        System.setOut(System.err);
        if (arguments.length > 0) {
            answers.println(answer(String.join(" ", arguments)));
            return;
        }
        BufferedReader commands =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            answers.println(answer(line));
            answers.flush();
        }
    }

    private static String answer(String line) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            Command command = Command.parse(line);
            answer.put("ok", run(command));
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            answer.put("code", Errors.forException(cause).code());
        }
        return Json.print(answer);
    }

    private static Object run(Command command) throws Exception {
        switch (command.name) {
            case "produce":
                return Records.produce(command);
            case "consume":
                return Records.consume(command);
            default:
                return Administration.run(command);
        }
    }
}
