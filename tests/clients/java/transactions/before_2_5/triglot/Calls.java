package triglot;

import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;

/** What later releases do not have: times as numbers, offsets by the name of a group. */
final class Calls {
    private Calls() {}

    static ConsumerRecords<String, String> poll(Consumer<String, String> consumer, long ms) {
        return consumer.poll(ms);
    }

    static void sendOffsets(
            Producer<String, String> producer,
            Map<TopicPartition, OffsetAndMetadata> offsets,
            Consumer<String, String> consumer,
            String group) {
        producer.sendOffsetsToTransaction(offsets, group);
    }
}
