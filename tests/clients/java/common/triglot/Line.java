package triglot;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;

/** A record as a line of text, for clients of every age; tests/clients/records.py describes it. */
final class Line {
    /** A client that knows of no timestamps shows this one. */
    static final long NO_TIMESTAMP = -1;

    private static final String NULL = "~";

    final int partition;
    final long timestamp;
    final byte[] key;
    final byte[] value;
    /** As text; "" is none. */
    final String headers;

    private Line(String[] fields) {
        partition = Integer.parseInt(fields[0]);
        timestamp = Long.parseLong(fields[1]);
        key = bytes(fields[2]);
        value = bytes(fields[3]);
        headers = fields[4];
    }

    static List<Line> read(Path file) throws IOException {
        List<Line> lines = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            lines.add(new Line(line.split("\t", -1)));
        }
        return lines;
    }

    static String print(
            long offset, int partition, long timestamp, byte[] key, byte[] value, String headers) {
        return String.join("\t", String.valueOf(offset), String.valueOf(partition),
            String.valueOf(timestamp), text(key), text(value), headers) + "\n";
    }

    static byte[] bytes(String text) {
        return text.equals(NULL) ? null : Base64.getDecoder().decode(text);
    }

    static String text(byte[] bytes) {
        return bytes == null ? NULL : Base64.getEncoder().encodeToString(bytes);
    }
}
