package triglot;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterResult;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;

/** The calls of the admin client, one command each. */
final class Administration {
    private Administration() {}

    static Object run(Command command) throws Exception {
        try (Admin admin = Admin.create(command.properties())) {
            switch (command.name) {
                case "create-topic":
                    return createTopic(admin, command);
                case "list-topics":
                    return admin.listTopics().names().get();
                case "describe-topic":
                    return describeTopic(admin, command);
                case "describe-configs":
                    return describeConfigs(admin, command);
                case "alter-configs":
                    return alterConfigs(admin, command);
                case "create-partitions":
                    admin.createPartitions(Map.of(command.text("topic"),
                        NewPartitions.increaseTo(command.number("partitions")))).all().get();
                    return null;
                case "list-offsets":
                    return listOffsets(admin, command);
                case "delete-records":
                    return deleteRecords(admin, command);
                case "delete-topic":
                    admin.deleteTopics(List.of(command.text("topic"))).all().get();
                    return null;
                case "describe-cluster":
                    return describeCluster(admin);
                default:
                    throw new IllegalArgumentException("no command " + command.name);
            }
        }
    }

    private static Object createTopic(Admin admin, Command command) throws Exception {
        String name = command.text("topic");
        NewTopic topic = new NewTopic(
            name, Optional.of(command.number("partitions")), Optional.empty());
        topic.configs(command.under("config."));
        var created = admin.createTopics(List.of(topic));
        created.all().get();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", created.topicId(name).get());
        answer.put("partitions", created.numPartitions(name).get());
        answer.put("replication", created.replicationFactor(name).get());
        return answer;
    }

    private static Object describeTopic(Admin admin, Command command) throws Exception {
        String name = command.text("topic");
        TopicDescription topic =
            admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        List<Object> partitions = new ArrayList<>();
        for (TopicPartitionInfo info : topic.partitions()) {
            Map<String, Object> partition = new LinkedHashMap<>();
            partition.put("partition", info.partition());
            partition.put("leader", info.leader().id());
            partition.put("replicas",
                info.replicas().stream().map(node -> node.id()).collect(Collectors.toList()));
            partition.put("isr",
                info.isr().stream().map(node -> node.id()).collect(Collectors.toList()));
            partitions.add(partition);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", topic.topicId());
        answer.put("internal", topic.isInternal());
        answer.put("partitions", partitions);
        return answer;
    }

    private static Object describeConfigs(Admin admin, Command command) throws Exception {
        ConfigResource resource = resource(command);
        Map<String, Object> answer = new TreeMap<>();
        for (ConfigEntry entry
                : admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()) {
            answer.put(entry.name(), Map.of(
                "value", String.valueOf(entry.value()),
                "source", entry.source(),
                "type", entry.type(),
                "read_only", entry.isReadOnly()));
        }
        return answer;
    }

    /** A word {@code set.key=value} sets a key, {@code unset.key=} takes a setting away. */
    private static Object alterConfigs(Admin admin, Command command) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        command.under("set.").forEach((key, value) -> changes.add(
            new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET)));
        command.under("unset.").forEach((key, value) -> changes.add(
            new AlterConfigOp(new ConfigEntry(key, null), AlterConfigOp.OpType.DELETE)));
        admin.incrementalAlterConfigs(Map.of(resource(command), changes)).all().get();
        return null;
    }

    /** At is earliest, latest, max-timestamp, or milliseconds. */
    private static Object listOffsets(Admin admin, Command command) throws Exception {
        TopicPartition partition =
            new TopicPartition(command.text("topic"), command.number("partition"));
        ListOffsetsResultInfo found = admin.listOffsets(Map.of(partition, at(command.text("at"))))
            .partitionResult(partition).get();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("offset", found.offset());
        answer.put("timestamp", found.timestamp());
        return answer;
    }

    private static OffsetSpec at(String word) {
        switch (word) {
            case "earliest":
                return OffsetSpec.earliest();
            case "latest":
                return OffsetSpec.latest();
            case "max-timestamp":
                return OffsetSpec.maxTimestamp();
            default:
                return OffsetSpec.forTimestamp(Long.parseLong(word));
        }
    }

    private static Object deleteRecords(Admin admin, Command command) throws Exception {
        TopicPartition partition =
            new TopicPartition(command.text("topic"), command.number("partition"));
        RecordsToDelete before = RecordsToDelete.beforeOffset(command.number("before"));
        return admin.deleteRecords(Map.of(partition, before))
            .lowWatermarks().get(partition).get().lowWatermark();
    }

    private static Object describeCluster(Admin admin) throws Exception {
        DescribeClusterResult cluster = admin.describeCluster();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", cluster.clusterId().get());
        answer.put("controller", cluster.controller().get().id());
        answer.put("nodes", cluster.nodes().get().stream()
            .map(node -> node.host() + ":" + node.port()).collect(Collectors.toList()));
        return answer;
    }

    private static ConfigResource resource(Command command) {
        Map<String, String> topic = command.under("topic");
        return topic.isEmpty()
            ? new ConfigResource(ConfigResource.Type.BROKER, command.text("broker"))
            : new ConfigResource(ConfigResource.Type.TOPIC, topic.get(""));
    }
}
