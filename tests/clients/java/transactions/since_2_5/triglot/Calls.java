package triglot;

import java.time.Duration;
import java.util.Map;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.common.TopicPartition;

/** What releases before 2.5 do not have: offsets by a member of a group and its generation. */
final class Calls {
    private Calls() {}

    static ConsumerRecords<String, String> poll(Consumer<String, String> consumer, long ms) {
        return consumer.poll(Duration.ofMillis(ms));
    }

    static void sendOffsets(
            Producer<String, String> producer,
            Map<TopicPartition, OffsetAndMetadata> offsets,
            Consumer<String, String> consumer,
            String group) {
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }
}
