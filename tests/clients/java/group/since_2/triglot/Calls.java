package triglot;

import java.time.Duration;
import java.util.Set;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** What releases before 2.4 do not have. */
final class Calls {
    private Calls() {}

    static ConsumerRecords<String, String> poll(Consumer<String, String> consumer, long ms) {
        return consumer.poll(Duration.ofMillis(ms));
    }

    static OffsetAndMetadata committed(Consumer<String, String> consumer, TopicPartition partition) {
        return consumer.committed(Set.of(partition)).get(partition);
    }
}
