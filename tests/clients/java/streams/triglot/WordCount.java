package triglot;

import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Counts words exactly once, in a store on the disk: each word with each of its counts, 1, 2, 3 and so on, is
 * written once.
 *
 * <p>Arguments: address, application, topic to read, topic to write, folder of the store, processing guarantee.
 */
public final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("application.id", arguments[1]);
        properties.put("state.dir", arguments[4]);
        properties.put("processing.guarantee", arguments[5]);
        properties.put("replication.factor", "1");
        properties.put("num.stream.threads", "1");
        properties.put("commit.interval.ms", "100");
        // Every count is written, not only the last of a commit. Releases before 3.4 know the first name alone.
        properties.put("cache.max.bytes.buffering", "0");
        properties.put("statestore.cache.max.bytes", "0");
        properties.put("auto.offset.reset", "earliest");
        // What was killed is missed soon.
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "1000");
        properties.put("producer.transaction.timeout.ms", "10000");

        StreamsBuilder builder = new StreamsBuilder();
        builder
            .stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long, KeyValueStore<Bytes, byte[]>>as("counts")
                .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()))
            .toStream()
            .mapValues(String::valueOf)
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), properties);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
