package triglot;

import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Future;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.OffsetResponse;
import kafka.javaapi.PartitionMetadata;
import kafka.javaapi.TopicMetadata;
import kafka.javaapi.TopicMetadataRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.Message;
import kafka.message.MessageAndOffset;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka 0.8.2: the first producer in Java, and SimpleConsumer, the consumer without ZooKeeper.
 *
 * <p>Everything is sent in version 0 and nothing is asked before.
 */
public final class OldClient {
    private static final String CLIENT_ID = "simple";
    /** Less than a partition holds, so that answers end in the middle of a message. */
    private static final int FETCH_BYTES = 1 << 16;

    private OldClient() {}

    public static void main(String[] arguments) throws Exception {
        CommandLoop.run(arguments, OldClient::run);
    }

    private static Object run(Command command) throws Exception {
        switch (command.name) {
            case "produce":
                return produce(command);
            case "produce-scala":
                return ScalaProducer.produce(command);
            default:
                return consume(command);
        }
    }

    private static Object produce(Command command) throws Exception {
        Properties properties = command.properties();
        properties.put("acks", "all");
        properties.put("compression.type", command.text("codec"));
        properties.put("linger.ms", "5");
        List<Future<?>> acks = new ArrayList<>();
        try (Producer<byte[], byte[]> producer = new KafkaProducer<>(
                properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (Line line : Line.read(Path.of(command.text("file")))) {
                acks.add(producer.send(new ProducerRecord<>(
                    command.text("topic"), line.partition, line.key, line.value)));
            }
            for (Future<?> ack : acks) {
                ack.get();
            }
        }
        return acks.size();
    }

    private static Object consume(Command command) throws Exception {
        long count = 0;
        try (PrintWriter lines = new PrintWriter(command.text("file"), StandardCharsets.UTF_8)) {
            for (Map.Entry<String, List<Integer>> led : byLeader(command).entrySet()) {
                SimpleConsumer consumer = connected(led.getKey());
                try {
                    count += readAll(consumer, command, led.getValue(), lines);
                } finally {
                    consumer.close();
                }
            }
        }
        return count;
    }

    private static SimpleConsumer connected(String server) {
        String[] address = server.split(":");
        return new SimpleConsumer(
            address[0], Integer.parseInt(address[1]), Command.TIMEOUT_MS, FETCH_BYTES, CLIENT_ID);
    }

    /** The partitions that are to be read, by the address of the broker that leads them. */
    private static Map<String, List<Integer>> byLeader(Command command) {
        Map<String, List<Integer>> led = new TreeMap<>();
        SimpleConsumer consumer = connected(command.text("bootstrap"));
        try {
            for (PartitionMetadata found : look(consumer, command.text("topic"))) {
                if (command.ends().containsKey(found.partitionId())) {
                    String leader = found.leader().host() + ":" + found.leader().port();
                    led.computeIfAbsent(leader, (key) -> new ArrayList<>())
                        .add(found.partitionId());
                }
            }
        } finally {
            consumer.close();
        }
        return led;
    }

    private static long readAll(SimpleConsumer consumer, Command command, List<Integer> partitions,
            PrintWriter lines) {
        String topic = command.text("topic");
        Map<Integer, Long> positions = new HashMap<>();
        Map<Integer, Long> ends = new HashMap<>();
        for (int partition : partitions) {
            long earliest =
                offset(consumer, topic, partition, kafka.api.OffsetRequest.EarliestTime());
            positions.put(partition, Math.max(earliest, command.number("start")));
            ends.put(partition,
                offset(consumer, topic, partition, kafka.api.OffsetRequest.LatestTime()));
        }
        return read(consumer, topic, positions, ends, lines);
    }

    private static long read(SimpleConsumer consumer, String topic, Map<Integer, Long> positions,
            Map<Integer, Long> ends, PrintWriter lines) {
        long count = 0;
        long deadline = System.currentTimeMillis() + Command.TIMEOUT_MS;
        while (true) {
            FetchRequestBuilder request = new FetchRequestBuilder().clientId(CLIENT_ID);
            List<Integer> unfinished = new ArrayList<>();
            ends.forEach((partition, end) -> {
                if (positions.get(partition) < end) {
                    unfinished.add(partition);
                    request.addFetch(topic, partition, positions.get(partition), FETCH_BYTES);
                }
            });
            if (unfinished.isEmpty()) {
                return count;
            }
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("read up to " + positions + " of " + ends);
            }
            FetchResponse response = consumer.fetch(request.maxWait(500).minBytes(1).build());
            for (int partition : unfinished) {
                check(response.errorCode(topic, partition));
                for (MessageAndOffset found : response.messageSet(topic, partition)) {
                    // Of a compressed set that was begun before, all comes again.
                    if (found.offset() < positions.get(partition)) {
                        continue;
                    }
                    Message message = found.message();
                    lines.print(Line.print(found.offset(), partition, Line.NO_TIMESTAMP,
                        bytes(message.key()), bytes(message.payload()), ""));
                    positions.put(partition, found.nextOffset());
                    count++;
                }
            }
        }
    }

    /** Metadata: of this topic, and of all by an empty list; its partitions. */
    private static List<PartitionMetadata> look(SimpleConsumer consumer, String topic) {
        List<PartitionMetadata> partitions = List.of();
        for (List<String> asked : List.of(List.of(topic), Collections.<String>emptyList())) {
            boolean found = false;
            for (TopicMetadata metadata
                    : consumer.send(new TopicMetadataRequest(asked)).topicsMetadata()) {
                if (metadata.topic().equals(topic) && metadata.errorCode() == 0) {
                    found = true;
                    partitions = metadata.partitionsMetadata();
                }
            }
            if (!found) {
                throw new IllegalStateException("no metadata of " + topic);
            }
        }
        return partitions;
    }

    private static long offset(SimpleConsumer consumer, String topic, int partition, long time) {
        OffsetResponse response = consumer.getOffsetsBefore(new OffsetRequest(
            Map.of(new TopicAndPartition(topic, partition), new PartitionOffsetRequestInfo(time, 1)),
            kafka.api.OffsetRequest.CurrentVersion(), CLIENT_ID));
        check(response.errorCode(topic, partition));
        return response.offsets(topic, partition)[0];
    }

    private static void check(short code) {
        if (code != 0) {
            throw new IllegalStateException("error " + code);
        }
    }

    private static byte[] bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return null;
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        return bytes;
    }
}
