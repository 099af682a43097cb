import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Base64;
import java.util.zip.CRC32;
import org.apache.kafka.common.record.LogEntry;
import org.apache.kafka.common.record.MemoryRecords;

/**
 * Reads one message set per line, in base64, as the consumer of its release does. Answers each with
 * one line: "offset:key:value" of every message, each field as its length and CRC-32 or "-" for
 * null; or "error" and why. With the argument "lz4" the lines are lz4 frames, for 0.8.2.
 */
public final class ReadSets {
    /** It was renamed after 0.8.2. */
    private static final Method OPEN =
            Arrays.stream(MemoryRecords.class.getMethods())
                    .filter(method -> method.getName().matches("(iterable|readable)Records"))
                    .findFirst()
                    .orElseThrow();

    private ReadSets() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "US-ASCII"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            byte[] input = Base64.getDecoder().decode(line);
            boolean isFrame = arguments.length > 0 && arguments[0].equals("lz4");
            try {
                System.out.println(isFrame ? expand(input) : read(input));
            } catch (RuntimeException | IOException | ReflectiveOperationException error) {
                Throwable cause = error;
                while (cause.getCause() != null) {
                    cause = cause.getCause();
                }
                System.out.println("error " + cause.getMessage());
            }
        }
    }

    private static String read(byte[] set) throws ReflectiveOperationException {
        StringBuilder out = new StringBuilder();
        ByteBuffer buffer = ByteBuffer.wrap(set);
        if (OPEN.getName().startsWith("iterable")) {
            buffer.position(set.length); // 0.8.2 reads what is before the position
        }
        for (LogEntry entry : (MemoryRecords) OPEN.invoke(null, buffer)) {
            entry.record().ensureValid();
            out.append(entry.offset());
            out.append(':').append(text(entry.record().key()));
            out.append(':').append(text(entry.record().value())).append(' ');
        }
        return out.toString();
    }

    private static String expand(byte[] frame)
            throws IOException, ReflectiveOperationException {
        Object stream =
                Class.forName("org.apache.kafka.common.message.KafkaLZ4BlockInputStream")
                        .getConstructor(InputStream.class)
                        .newInstance(new ByteArrayInputStream(frame));
        return text(ByteBuffer.wrap(((InputStream) stream).readAllBytes()));
    }

    private static String text(ByteBuffer field) {
        if (field == null) {
            return "-";
        }
        byte[] content = new byte[field.remaining()];
        field.duplicate().get(content);
        CRC32 checksum = new CRC32();
        checksum.update(content);
        return content.length + "/" + Long.toHexString(checksum.getValue());
    }
}
