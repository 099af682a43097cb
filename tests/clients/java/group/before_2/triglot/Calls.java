package triglot;

import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What later releases do not have: the times as numbers, one partition at a time. */
final class Calls {
    private Calls() {}

    static ConsumerRecords<String, String> poll(Consumer<String, String> consumer, long ms) {
        return consumer.poll(ms);
    }

    static OffsetAndMetadata committed(Consumer<String, String> consumer, TopicPartition partition) {
        return consumer.committed(partition);
    }
}
