package triglot;

import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/**
 * What an administrator does to a group without members: {@code GroupAdmin BOOTSTRAP TOPIC GROUP}.
 *
 * <p>Lists and describes it, moves an offset, deletes one, and deletes the group.
 */
public final class GroupAdmin {
    private GroupAdmin() {}

    // Kafka 4.1 has a newer name for the list; 3.9 has only this one.
    @SuppressWarnings("removal")
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        String group = arguments[2];
        List<String> groups = List.of(group);
        Set<TopicPartition> first = Set.of(new TopicPartition(topic, 0));
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(properties)) {
            Map<TopicPartition, OffsetAndMetadata> moved =
                Collections.singletonMap(new TopicPartition(topic, 1), new OffsetAndMetadata(1));
            admin.alterConsumerGroupOffsets(group, moved).all().get();
            admin.listConsumerGroups().all().get();
            admin.describeConsumerGroups(groups).all().get();
            admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
            admin.deleteConsumerGroupOffsets(group, first).all().get();
            admin.deleteConsumerGroups(groups).all().get();
        }
    }
}
