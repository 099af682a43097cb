package triglot;

import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Writing and reading records, without a group. */
final class Records {
    private Records() {}

    /**
     * Writes the records of a file in their order; answers with the count of acks. Before it is
     * closed the producer stays open for {@code open-ms}, if that is given.
     */
    static Object produce(Command command) throws Exception {
        Properties properties = command.properties();
        properties.put("acks", "all");
        properties.put("enable.idempotence", command.text("idempotent"));
        if (!Boolean.parseBoolean(command.text("idempotent"))) {
            properties.put("max.in.flight.requests.per.connection", "1");
        }
        properties.put("compression.type", command.text("codec"));
        properties.put("linger.ms", "5");
        properties.put("max.block.ms", String.valueOf(Command.TIMEOUT_MS));
        properties.put("request.timeout.ms", String.valueOf(Command.TIMEOUT_MS - 1_000));
        properties.put("delivery.timeout.ms", String.valueOf(Command.TIMEOUT_MS));
        List<Future<RecordMetadata>> acks = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (String line : Files.readAllLines(Path.of(command.text("file")))) {
                acks.add(producer.send(RecordLine.parse(command.text("topic"), line)));
            }
            producer.flush();
            for (Future<RecordMetadata> ack : acks) {
                ack.get();
            }
            Thread.sleep(command.number("open-ms", 0));
        }
        return acks.size();
    }

    /**
     * Sends one record as the client does by itself, but for the time after which it gives up;
     * answers with the longest throttle time that its metrics tell of.
     */
    static Object deliver(Command command) throws Exception {
        Properties properties = command.properties();
        properties.put("linger.ms", "0");
        properties.put("request.timeout.ms", command.text("give-up-ms"));
        properties.put("delivery.timeout.ms", command.text("give-up-ms"));
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            byte[] value = command.text("value").getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(command.text("topic"), value)).get();
            return producer.metrics().values().stream()
                .filter(metric -> metric.metricName().name().equals("produce-throttle-time-max"))
                .findFirst().orElseThrow().metricValue();
        }
    }

    /** Makes a transactional producer ready. */
    static Object beginTransactions(Command command) {
        Properties properties = command.properties();
        properties.put("transactional.id", command.text("id"));
        properties.put("max.block.ms", String.valueOf(Command.TIMEOUT_MS));
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
        }
        return null;
    }

    /** Reads all partitions from their beginning to their present end, into a file. */
    static Object consume(Command command) throws Exception {
        Properties properties = command.properties();
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        properties.put("isolation.level", command.text("isolation"));
        String topic = command.text("topic");
        long count = 0;
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                 properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             PrintWriter lines = new PrintWriter(command.text("file"), StandardCharsets.UTF_8)) {
            List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(topic, info.partition()))
                .filter(partition -> command.wants(partition.partition()))
                .collect(Collectors.toList());
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            long deadline = System.currentTimeMillis() + Command.TIMEOUT_MS;
            while (ends.entrySet().stream()
                    .anyMatch(end -> consumer.position(end.getKey()) < end.getValue())) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("read " + count + " records, ends are " + ends);
                }
                for (ConsumerRecord<byte[], byte[]> record
                        : consumer.poll(Duration.ofMillis(500))) {
                    lines.print(RecordLine.print(record) + "\n");
                    count++;
                }
            }
        }
        return count;
    }

    /** Reads partition 0 from its beginning and on, until the client has an error to tell. */
    static Object readOn(Command command) {
        Properties properties = command.properties();
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        TopicPartition partition = new TopicPartition(command.text("topic"), 0);
        long count = 0;
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            long deadline = System.currentTimeMillis() + Command.TIMEOUT_MS;
            while (System.currentTimeMillis() < deadline) {
                count += consumer.poll(Duration.ofMillis(500)).count();
            }
        }
        return count;
    }
}
