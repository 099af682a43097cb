package triglot;

import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Collectors;
import java.util.stream.StreamSupport;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Polls, tells what it read, and commits exactly that before it polls again. */
final class GroupMember implements Runnable, ConsumerRebalanceListener {
    private static final long POLL_MS = 100;
    private static final long REST_MS = 100;
    /** Of what a member has in hand when it leaves. */
    private static final int COMMIT_TRIES = 5;

    private final String name;
    private final String topic;
    private final Properties properties;
    private final Reports reports;
    private final BlockingQueue<String> orders = new LinkedBlockingQueue<>();
    /** Where the next record of each partition is that was read from. */
    private final Map<Integer, Long> last = new TreeMap<>();
    /** The same of what is not committed yet. */
    private final Map<Integer, Long> uncommitted = new TreeMap<>();
    private Consumer<String, String> consumer;

    GroupMember(String name, String topic, Properties properties, Reports reports) {
        this.name = name;
        this.topic = topic;
        this.properties = properties;
        this.reports = reports;
    }

    /** {@code hold}, {@code commit}, {@code go} or {@code leave}; the events tell when it is done. */
    void order(String order) {
        orders.add(order);
    }

    @Override
    public void run() {
        try (Consumer<String, String> opened = new KafkaConsumer<>(
                properties, new StringDeserializer(), new StringDeserializer())) {
            consumer = opened;
            consumer.subscribe(List.of(topic), this);
            while (obey()) {
                read(Calls.poll(consumer, POLL_MS));
                commit(new TreeMap<>(uncommitted));
            }
            for (int tries = 0; tries < COMMIT_TRIES; tries++) {
                commit(new TreeMap<>(uncommitted));
            }
        } catch (Exception error) {
            reports.event(name, "failed", Map.of("why", String.valueOf(error)));
            return;
        }
        reports.event(name, "left", Map.of());
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        reports.event(name, "gained", Map.of("partitions", numbers(partitions)));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        Map<Integer, Long> theirs = new TreeMap<>(uncommitted);
        theirs.keySet().retainAll(numbers(partitions));
        commit(theirs);
        gave(partitions, "gave");
    }

    /** Known to the interface from 2.4 on; by default it would be the method before. */
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        gave(partitions, "lost");
    }

    private void gave(Collection<TopicPartition> partitions, String event) {
        List<Integer> numbers = numbers(partitions);
        last.keySet().removeAll(numbers);
        uncommitted.keySet().removeAll(numbers);
        reports.event(name, event, Map.of("partitions", numbers));
    }

    private boolean obey() throws InterruptedException {
        Map<Integer, Long> held = null;
        while (held != null || !orders.isEmpty()) {
            switch (orders.take()) {
                case "leave":
                    return false;
                case "hold":
                    held = new TreeMap<>(last);
                    reports.event(name, "held", Map.of("offsets", held));
                    break;
                case "commit":
                    commit(held == null ? Map.of() : held);
                    break;
                default:
                    held = null;
            }
        }
        return true;
    }

    private void read(ConsumerRecords<String, String> records) {
        for (TopicPartition partition : records.partitions()) {
            List<ConsumerRecord<String, String>> run = records.records(partition);
            long first = run.get(0).offset();
            last.put(partition.partition(), first + run.size());
            uncommitted.put(partition.partition(), first + run.size());
            reports.event(name, "read", Map.of("partition", partition.partition(), "offset", first,
                "values", run.stream().map(ConsumerRecord::value).collect(Collectors.toList())));
        }
    }

    private void commit(Map<Integer, Long> offsets) {
        if (offsets.isEmpty()) {
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
        offsets.forEach((partition, offset) ->
            wanted.put(new TopicPartition(topic, partition), new OffsetAndMetadata(offset)));
        try {
            consumer.commitSync(wanted);
        } catch (RuntimeException error) {
            reports.event(name, "refused", Map.of("offsets", offsets, "why", String.valueOf(error)));
            LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(REST_MS));
            return;
        }
        offsets.forEach(uncommitted::remove);
        reports.event(name, "committed", Map.of("offsets", offsets));
    }

    private static List<Integer> numbers(Iterable<TopicPartition> partitions) {
        return StreamSupport.stream(partitions.spliterator(), false)
            .map(TopicPartition::partition).sorted().collect(Collectors.toList());
    }
}
