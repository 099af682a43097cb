package triglot;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/** Records as lines of text; the form is described in tests/clients/records.py. */
final class RecordLine {
    private static final String NULL = "~";

    private RecordLine() {}

    static ProducerRecord<byte[], byte[]> parse(String topic, String line) {
        String[] fields = line.split("\t", -1);
        List<Header> headers = new ArrayList<>();
        if (!fields[4].isEmpty()) {
            for (String header : fields[4].split(",")) {
                String[] pair = header.split(":", -1);
                String name = new String(bytes(pair[0]), StandardCharsets.UTF_8);
                headers.add(new RecordHeader(name, bytes(pair[1])));
            }
        }
        return new ProducerRecord<>(topic, Integer.parseInt(fields[0]), Long.parseLong(fields[1]),
            bytes(fields[2]), bytes(fields[3]), headers);
    }

    static String print(ConsumerRecord<byte[], byte[]> record) {
        StringJoiner headers = new StringJoiner(",");
        for (Header header : record.headers()) {
            byte[] name = header.key().getBytes(StandardCharsets.UTF_8);
            headers.add(text(name) + ":" + text(header.value()));
        }
        return String.join("\t", String.valueOf(record.offset()),
            String.valueOf(record.partition()), String.valueOf(record.timestamp()),
            text(record.key()), text(record.value()), headers.toString());
    }

    private static byte[] bytes(String text) {
        return text.equals(NULL) ? null : Base64.getDecoder().decode(text);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? NULL : Base64.getEncoder().encodeToString(bytes);
    }
}
