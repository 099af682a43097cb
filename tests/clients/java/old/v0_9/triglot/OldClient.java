package triglot;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * kafka-clients 0.9: the first consumer in Java, message format 0, no asking for versions.
 *
 * <p>Where a partition begins and ends is told: a position that was not set is looked for in a
 * group first.
 */
public final class OldClient {
    private OldClient() {}

    public static void main(String[] arguments) throws Exception {
        CommandLoop.run(arguments, command ->
            command.name.equals("produce") ? produce(command) : consume(command));
    }

    private static Object produce(Command command) throws Exception {
        Properties properties = command.properties();
        properties.put("acks", "all");
        properties.put("max.in.flight.requests.per.connection", "1");
        properties.put("compression.type", command.text("codec"));
        properties.put("linger.ms", "5");
        List<Future<?>> acks = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (Line line : Line.read(Path.of(command.text("file")))) {
                acks.add(producer.send(new ProducerRecord<>(command.text("topic"), line.partition,
                    line.key, line.value)));
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
        // Less than a partition holds, so that answers end in the middle of a message.
        properties.put("max.partition.fetch.bytes", String.valueOf(1 << 16));
        properties.put("group.id", "not-used");
        long count = 0;
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                 properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             PrintWriter lines = new PrintWriter(command.text("file"), StandardCharsets.UTF_8)) {
            Map<TopicPartition, Long> ends = new HashMap<>();
            command.ends().forEach((partition, end) ->
                ends.put(new TopicPartition(command.text("topic"), partition), end));
            consumer.assign(new ArrayList<>(ends.keySet()));
            ends.keySet().forEach(partition -> consumer.seek(partition, command.number("start")));
            long deadline = System.currentTimeMillis() + Command.TIMEOUT_MS;
            while (ends.entrySet().stream()
                    .anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("read " + count + " records, ends are " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(500)) {
                    lines.print(Line.print(record.offset(), record.partition(), Line.NO_TIMESTAMP,
                        record.key(), record.value(), ""));
                    count++;
                }
            }
        }
        return count;
    }
}
