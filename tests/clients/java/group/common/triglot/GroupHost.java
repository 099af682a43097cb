package triglot;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of consumer groups, each on a thread of its own, in any release from 0.9 on.
 *
 * <p>Commands and events are those of tests/clients/python/group_host.py.
 */
public final class GroupHost {
    private static final Map<String, GroupMember> MEMBERS = new ConcurrentHashMap<>();

    private GroupHost() {}

    public static void main(String[] arguments) throws Exception {
        Reports reports = new Reports(System.out);
        CommandLoop.run(arguments, command -> run(command, reports));
        // Clients have threads that would go on.
        System.exit(0);
    }

    private static Object run(Command command, Reports reports) {
        switch (command.name) {
            case "put":
                return put(command);
            case "get":
                return get(command);
            case "join":
                Map<String, String> client = command.under("client.");
                GroupMember member = new GroupMember(command.text("member"),
                    command.text("topic"), properties(command, client), reports);
                MEMBERS.put(command.text("member"), member);
                Thread thread = new Thread(member, command.text("member"));
                thread.setDaemon(true);
                thread.start();
                return null;
            default:
                MEMBERS.get(command.text("member")).order(command.name);
                return null;
        }
    }

    private static Properties properties(Command command, Map<String, String> more) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", command.text("bootstrap"));
        properties.put("group.id", command.text("group"));
        properties.put("enable.auto.commit", "false");
        properties.put("auto.offset.reset", "earliest");
        more.forEach(properties::put);
        return properties;
    }

    private static Object put(Command command) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
        for (String pair : command.text("offsets").split(",")) {
            String[] parts = pair.split(":");
            offsets.put(
                new TopicPartition(command.text("topic"), Integer.parseInt(parts[0])),
                new OffsetAndMetadata(Long.parseLong(parts[1]), command.text("metadata")));
        }
        try (Consumer<String, String> consumer = consumer(command)) {
            consumer.assign(new ArrayList<>(offsets.keySet()));
            consumer.commitSync(offsets);
        }
        return null;
    }

    private static Object get(Command command) {
        List<Object> found = new ArrayList<>();
        try (Consumer<String, String> consumer = consumer(command)) {
            for (String number : command.text("partitions").split(",")) {
                int partition = Integer.parseInt(number);
                OffsetAndMetadata committed =
                    Calls.committed(consumer, new TopicPartition(command.text("topic"), partition));
                found.add(committed == null
                    ? Arrays.asList(partition, -1, null)
                    : Arrays.asList(partition, committed.offset(), committed.metadata()));
            }
        }
        return found;
    }

    private static Consumer<String, String> consumer(Command command) {
        return new KafkaConsumer<>(properties(command, Map.of()),
            new StringDeserializer(), new StringDeserializer());
    }
}
