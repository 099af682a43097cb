package triglot;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import kafka.api.ConsumerMetadataRequest;
import kafka.cluster.Broker;
import kafka.common.OffsetAndMetadata;
import kafka.common.OffsetMetadataAndError;
import kafka.common.TopicAndPartition;
import kafka.javaapi.ConsumerMetadataResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetCommitResponse;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.network.BlockingChannel;

/**
 * Kafka 0.8.2: offsets of groups, in version 0, which any broker keeps, or 1, which the coordinator
 * does, by SimpleConsumer. Its groups need ZooKeeper.
 *
 * <p>Of the commands of tests/clients/python/group_host.py it knows {@code put} and {@code get}.
 */
public final class GroupHost {
    private static final String CLIENT_ID = "simple";
    private static final int BUFFER_BYTES = 1 << 16;
    /** The third code: version 0 says so where nothing was committed. */
    private static final short UNKNOWN_TOPIC_OR_PARTITION = 3;

    private GroupHost() {}

    public static void main(String[] arguments) throws Exception {
        CommandLoop.run(arguments, GroupHost::run);
    }

    private static Object run(Command command) {
        String[] address = command.text("bootstrap").split(":");
        String host = address[0];
        int port = Integer.parseInt(address[1]);
        if (version(command) > 0) {
            Broker coordinator = coordinator(host, port, command.text("group"));
            host = coordinator.host();
            port = coordinator.port();
        }
        SimpleConsumer consumer = new SimpleConsumer(
            host, port, Command.TIMEOUT_MS, BUFFER_BYTES, CLIENT_ID);
        try {
            return command.name.equals("put") ? put(command, consumer) : get(command, consumer);
        } finally {
            consumer.close();
        }
    }

    /** The broker that keeps the group's offsets, as any broker tells. */
    private static Broker coordinator(String host, int port, String group) {
        BlockingChannel channel =
            new BlockingChannel(host, port, BUFFER_BYTES, BUFFER_BYTES, Command.TIMEOUT_MS);
        channel.connect();
        try {
            short version = ConsumerMetadataRequest.CurrentVersion();
            channel.send(new ConsumerMetadataRequest(group, version, 0, CLIENT_ID));
            ConsumerMetadataResponse answer =
                ConsumerMetadataResponse.readFrom(channel.receive().buffer());
            if (answer.errorCode() != 0) {
                throw new IllegalStateException("no coordinator: error " + answer.errorCode());
            }
            return answer.coordinator();
        } finally {
            channel.disconnect();
        }
    }

    private static Object put(Command command, SimpleConsumer consumer) {
        Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (String pair : command.text("offsets").split(",")) {
            String[] parts = pair.split(":");
            offsets.put(new TopicAndPartition(command.text("topic"), Integer.parseInt(parts[0])),
                new OffsetAndMetadata(Long.parseLong(parts[1]), command.text("metadata"),
                    System.currentTimeMillis()));
        }
        OffsetCommitResponse response = consumer.commitOffsets(new OffsetCommitRequest(
            command.text("group"), offsets, 0, CLIENT_ID, version(command)));
        if (response.hasError()) {
            throw new IllegalStateException("errors " + response.errors());
        }
        return null;
    }

    private static Object get(Command command, SimpleConsumer consumer) {
        List<TopicAndPartition> wanted = new ArrayList<>();
        for (String number : command.text("partitions").split(",")) {
            wanted.add(new TopicAndPartition(command.text("topic"), Integer.parseInt(number)));
        }
        List<Object> found = new ArrayList<>();
        Map<TopicAndPartition, OffsetMetadataAndError> answers = consumer.fetchOffsets(
            new OffsetFetchRequest(command.text("group"), wanted, version(command), 0, CLIENT_ID))
            .offsets();
        wanted.forEach(partition -> {
            OffsetMetadataAndError answer = answers.get(partition);
            if (answer.error() != 0 && answer.error() != UNKNOWN_TOPIC_OR_PARTITION) {
                throw new IllegalStateException("error " + answer.error());
            }
            found.add(List.of(partition.partition(), answer.offset(), answer.metadata()));
        });
        return found;
    }

    private static short version(Command command) {
        return (short) command.number("version");
    }
}
