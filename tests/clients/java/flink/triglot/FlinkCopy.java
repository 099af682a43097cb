package triglot;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Copies numbers from topic to topic exactly once, in a cluster of Flink within this process.
 *
 * <p>Arguments: address, topic to read, topic to write, its partitions, folder of the checkpoints, the number at
 * which the job fails once. It goes on where the newest checkpoint in the folder was made, and runs until it is killed.
 */
public final class FlinkCopy {
    private FlinkCopy() {}

    public static void main(String[] arguments) throws Exception {
        Path checkpoints = Path.of(arguments[4]);
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "200 ms");
        configuration.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        configuration.setString("state.checkpoints.dir", checkpoints.toUri().toString());
        configuration.setString("restart-strategy.type", "fixed-delay");
        configuration.setString("restart-strategy.fixed-delay.attempts", "1000");
        configuration.setString("restart-strategy.fixed-delay.delay", "200 ms");
        Optional<Path> newest = newest(checkpoints);
        newest.ifPresent(path -> configuration.setString("execution.savepoint.path", path.toUri().toString()));

        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, configuration);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setGroupId("flink")
            .setTopics(arguments[1])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setRecordSerializer(new ToPartition(arguments[2], Integer.parseInt(arguments[3])))
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix("flink")
            // Flink's own is longer than brokers allow.
            .setProperty("transaction.timeout.ms", "60000")
            .build();
        environment
            .fromSource(source, WatermarkStrategy.noWatermarks(), "source")
            .map(new FailOnce(arguments[5]))
            .sinkTo(sink);
        System.out.println("started from " + newest.map(Path::toString).orElse("nothing"));
        environment.execute("copy");
    }

    /** The newest checkpoint that is complete, of whichever run. */
    private static Optional<Path> newest(Path checkpoints) throws IOException {
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files.filter(file -> file.endsWith("_metadata"))
                .max(Comparator.comparingLong(file -> file.toFile().lastModified()))
                .map(Path::getParent);
        }
    }

    private static final class FailOnce implements MapFunction<String, String> {
        private static final long serialVersionUID = 1;
        private static final AtomicBoolean FAILED = new AtomicBoolean();
        private final String last;

        FailOnce(String last) {
            this.last = last;
        }

        @Override
        public String map(String value) {
            if (value.equals(last) && !FAILED.getAndSet(true)) {
                throw new IllegalStateException("the failure that was asked for");
            }
            return value;
        }
    }

    private static final class ToPartition implements KafkaRecordSerializationSchema<String> {
        private static final long serialVersionUID = 1;
        private final String topic;
        private final int partitions;

        ToPartition(String topic, int partitions) {
            this.topic = topic;
            this.partitions = partitions;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(String value, KafkaSinkContext context, Long timestamp) {
            int partition = Integer.parseInt(value) % partitions;
            return new ProducerRecord<>(topic, partition, null, value.getBytes(StandardCharsets.UTF_8));
        }
    }
}
