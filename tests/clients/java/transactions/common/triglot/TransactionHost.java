package triglot;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers by name, in any release from 0.11 on.
 *
 * <p>Commands are those of tests/clients/transactions/hosts.py.
 */
public final class TransactionHost {
    private static final Map<String, Producer<String, String>> PRODUCERS = new HashMap<>();

    private TransactionHost() {}

    public static void main(String[] arguments) throws Exception {
        CommandLoop.run(arguments, TransactionHost::run);
        // Producers have threads that would go on.
        System.exit(0);
    }

    private static Object run(Command command) throws Exception {
        if (command.name.equals("open")) {
            Producer<String, String> opened = open(command);
            PRODUCERS.put(command.text("producer"), opened);
            if (command.number("two-phase", 0) == 1) {
                TwoPhase.init(opened, false);
            } else {
                opened.initTransactions();
            }
            return null;
        }
        if (command.name.equals("recover")) {
            Producer<String, String> opened = open(command);
            PRODUCERS.put(command.text("producer"), opened);
            return TwoPhase.recover(opened);
        }
        if (command.name.equals("read")) {
            return read(command);
        }
        if (command.name.equals("release")) {
            PRODUCERS.values().forEach(Producer::close);
            PRODUCERS.clear();
            return null;
        }
        Producer<String, String> producer = PRODUCERS.get(command.text("producer"));
        switch (command.name) {
            case "begin":
                producer.beginTransaction();
                return null;
            case "send":
                return producer
                    .send(new ProducerRecord<>(command.text("topic"), 0, null, command.text("value")))
                    .get(Command.TIMEOUT_MS, TimeUnit.MILLISECONDS)
                    .offset();
            case "copy":
                return copy(command, producer);
            case "prepare":
                return TwoPhase.prepare(producer);
            case "commit":
                producer.commitTransaction();
                return null;
            case "abort":
                producer.abortTransaction();
                return null;
            default:
                throw new IllegalArgumentException(command.name);
        }
    }

    private static Producer<String, String> open(Command command) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.text("bootstrap"));
        properties.put("transactional.id", command.text("id"));
        properties.put("transaction.timeout.ms", command.text("timeout-ms"));
        properties.put("max.block.ms", String.valueOf(Command.TIMEOUT_MS));
        return new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
    }

    /** Reads as a member of a group, writes what it has read, and adds the offsets. */
    private static Object copy(Command command, Producer<String, String> producer) {
        Properties properties = reading(command, "read_committed");
        properties.put("group.id", command.text("group"));
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        int count = 0;
        try (Consumer<String, String> consumer = consumer(properties)) {
            consumer.subscribe(Collections.singletonList(command.text("source")));
            long deadline = System.currentTimeMillis() + Command.TIMEOUT_MS;
            while (count < command.number("count") && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : Calls.poll(consumer, 200)) {
                    producer.send(new ProducerRecord<>(command.text("target"), 0, null, record.value()));
                    offsets.put(new TopicPartition(record.topic(), record.partition()),
                        new OffsetAndMetadata(record.offset() + 1));
                    count++;
                }
            }
            Calls.sendOffsets(producer, offsets, consumer, command.text("group"));
        }
        return count;
    }

    /** The values of partition 0 up to its present end, which depends on the isolation. */
    private static Object read(Command command) {
        List<Object> values = new ArrayList<>();
        TopicPartition partition = new TopicPartition(command.text("topic"), 0);
        try (Consumer<String, String> consumer =
                consumer(reading(command, command.text("isolation")))) {
            consumer.assign(Arrays.asList(partition));
            consumer.seekToBeginning(Arrays.asList(partition));
            long end = consumer.endOffsets(Arrays.asList(partition)).get(partition);
            long deadline = System.currentTimeMillis() + Command.TIMEOUT_MS;
            while (consumer.position(partition) < end) {
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("read " + values + ", the end is " + end);
                }
                for (ConsumerRecord<String, String> record : Calls.poll(consumer, 200)) {
                    values.add(record.value());
                }
            }
        }
        return values.stream().map(String::valueOf).collect(Collectors.toList());
    }

    private static Properties reading(Command command, String isolation) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.text("bootstrap"));
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", isolation);
        return properties;
    }

    private static Consumer<String, String> consumer(Properties properties) {
        return new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer());
    }
}
