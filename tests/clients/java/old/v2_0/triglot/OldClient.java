package triglot;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.StringJoiner;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** kafka-clients from 2.0, where poll takes a duration, to this day. */
public final class OldClient {
    private OldClient() {}

    public static void main(String[] arguments) throws Exception {
        CommandLoop.run(arguments, command ->
            command.name.equals("produce") ? produce(command) : consume(command));
    }

    private static Object produce(Command command) throws Exception {
        Properties properties = command.properties();
        properties.put("acks", "all");
        // Formats 0 and 1 have no place for producer ids, which are the default from 3.0 on.
        properties.put("enable.idempotence", "false");
        properties.put("max.in.flight.requests.per.connection", "1");
        properties.put("compression.type", command.text("codec"));
        properties.put("linger.ms", "5");
        List<Future<?>> acks = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (Line line : Line.read(Path.of(command.text("file")))) {
                acks.add(producer.send(new ProducerRecord<>(command.text("topic"), line.partition,
                    line.timestamp, line.key, line.value, headers(line))));
            }
            for (Future<?> ack : acks) {
                ack.get();
            }
        }
        return acks.size();
    }

    private static Object consume(Command command) throws Exception {
        Properties properties = command.properties();
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        // Until 2.2 there is a group id even where no group is joined.
        properties.put("group.id", "not-used");
        long count = 0;
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                 properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             PrintWriter lines = new PrintWriter(command.text("file"), StandardCharsets.UTF_8)) {
            List<TopicPartition> partitions = new ArrayList<>();
            for (int partition : command.ends().keySet()) {
                partitions.add(new TopicPartition(command.text("topic"), partition));
            }
            consumer.assign(partitions);
            partitions.forEach(partition -> consumer.seek(partition, command.number("start")));
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.currentTimeMillis() + Command.TIMEOUT_MS;
            while (ends.entrySet().stream()
                    .anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("read " + count + " records, ends are " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    lines.print(Line.print(record.offset(), record.partition(), record.timestamp(),
                        record.key(), record.value(), text(record.headers())));
                    count++;
                }
            }
        }
        return count;
    }

    private static List<Header> headers(Line line) {
        List<Header> headers = new ArrayList<>();
        for (String header : line.headers.isEmpty() ? new String[0] : line.headers.split(",")) {
            String[] pair = header.split(":", -1);
            String name = new String(Line.bytes(pair[0]), StandardCharsets.UTF_8);
            headers.add(new RecordHeader(name, Line.bytes(pair[1])));
        }
        return headers;
    }

    private static String text(Iterable<Header> headers) {
        StringJoiner text = new StringJoiner(",");
        for (Header header : headers) {
            byte[] name = header.key().getBytes(StandardCharsets.UTF_8);
            text.add(Line.text(name) + ":" + Line.text(header.value()));
        }
        return text.toString();
    }
}
