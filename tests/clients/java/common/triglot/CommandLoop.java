package triglot;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.protocol.Errors;

/**
 * Takes commands and answers them.
 *
 * <p>A command is a line of words, {@code name key=value ...}; its answer is one line of JSON,
 * {@code {"ok": ...}} or {@code {"error": "...", "code": n}}. One command may be given as arguments; without
 * arguments commands are read from standard input until it ends, so that a test run pays for one
 * start of the virtual machine only.
 */
final class CommandLoop {
    private CommandLoop() {}

    /** What a program does with a command. */
    interface Commands {
        Object run(Command command) throws Exception;
    }

    static void run(String[] arguments, Commands commands) throws Exception {
        // Libraries may print; answers must not be mixed with that.
        PrintStream answers = System.out;
        System.setOut(System.err);
        if (arguments.length > 0) {
            answers.println(answer(String.join(" ", arguments), commands));
            return;
        }
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            answers.println(answer(line, commands));
            answers.flush();
        }
    }

    private static String answer(String line, Commands commands) {
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            answer.put("ok", commands.run(Command.parse(line)));
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            answer.put("error", cause.getClass().getSimpleName() + ": " + cause.getMessage());
            answer.put("code", Errors.forException(cause).code());
        }
        return Json.print(answer);
    }
}
